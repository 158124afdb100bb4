"""Where keys are kept: any store by URL."""

from __future__ import annotations

import uuid

import pytest

from semel.client import Client
from tests.client.conftest import Open
from tests.client.service import CutBefore, Service
from tests.servers.databases import Databases


def test_keys_may_be_kept_in_memory(open_door: Open, service: Service) -> None:
    service.next("/pay", CutBefore())
    door = open_door("memory://")
    assert [door.post(f"{service.url}/pay", "buy").status for _ in range(2)] == [201, 201]
    assert len(set(service.keys())) == 1
    assert len(service.seen) == 2


@pytest.mark.slow
def test_a_fleet_shares_its_intents_on_postgresql(open_door: Open, service: Service, postgresql: Databases) -> None:
    url, name = postgresql.url, uuid.uuid4().hex
    service.next("/pay", *[CutBefore()] * 2)
    first = open_door(url, tries=1, name=name)
    with pytest.raises(Exception):  # noqa: B017, PT011 - each library has its own
        first.post(f"{service.url}/pay", "buy", b"body")
    second = open_door(url, name=name)
    [resumed] = second.resume()
    assert resumed.response is not None
    assert resumed.response.status == 201
    assert first.post(f"{service.url}/pay", "buy", b"body").replayed
    assert len(set(service.keys())) == 1
    assert service.effects["/pay"] == 1


def test_a_file_is_named_by_url_or_path(service: Service, keys: object) -> None:
    for place in (f"sqlite:///{keys}", keys):
        with Client(place, trust_env=False) as client:
            answer = client.post(f"{service.url}/pay", headers={"Semel-Intent": "buy"})
            assert answer.status_code == 201
    assert len(service.seen) == 1
