"""Who gets a key, and when it is on disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from semel import Semel
from semel.client import INTENT
from semel.core.record import Status
from tests.client.conftest import Open
from tests.client.doors import Door
from tests.client.service import Say, Seen, Service


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_every_unsafe_method_gets_a_key(door: Door, service: Service, method: str) -> None:
    assert door.request(method, f"{service.url}/things").status == 201
    assert len(service.keys()[0] or "") == 64


def test_reading_takes_no_key(door: Door, service: Service) -> None:
    door.request("GET", f"{service.url}/things", body=b"")
    assert service.seen[0].key is None


def test_the_intent_of_a_reading_request_is_not_sent_either(door: Door, service: Service) -> None:
    door.request("GET", f"{service.url}/things", body=b"", headers={INTENT: "look"})
    assert INTENT.lower() not in service.seen[0].headers


def test_the_key_is_sent_in_quotes(door: Door, service: Service) -> None:
    door.post(f"{service.url}/things")
    assert service.seen[0].headers["idempotency-key"].startswith('"')


def test_a_service_can_have_the_key_without_quotes_in_a_header_of_its_own(open_door: Open, service: Service) -> None:
    door = open_door(quoted=False, header=lambda method, url: "X-Pay-Key" if url.endswith("/pay") else "X-Key")
    door.post(f"{service.url}/pay")
    door.post(f"{service.url}/other")
    assert len(service.seen[0].headers["x-pay-key"]) == 64
    assert "x-key" in service.seen[1].headers


def test_key_and_request_are_on_disk_when_the_first_byte_arrives(door: Door, service: Service, keys: Path) -> None:
    found: list[tuple[Status, bool]] = []

    def look(seen: Seen) -> None:
        with Semel(keys) as other:
            for record in other.records(operation="semel.client"):
                whole = other.read(record.key)
                assert whole is not None
                found.append((record.status, b"precious" in whole.steps[0].outcome))

    service.on_arrival = look
    door.post(f"{service.url}/things", body=b"precious")
    assert found == [(Status.RUNNING, True)]


def test_a_store_that_is_down_means_that_nothing_is_sent(open_door: Open, service: Service, tmp_path: Path) -> None:
    door = open_door(tmp_path / "no such folder" / "keys.db")
    with pytest.raises(Exception, match=r"(?i)nothing"):
        door.post(f"{service.url}/things")
    assert service.seen == []


def test_calls_without_a_name_have_keys_of_their_own(door: Door, service: Service) -> None:
    for _ in range(3):
        door.post(f"{service.url}/things")
    assert len(set(service.keys())) == 3
    assert service.effects["/things"] == 3


def test_a_key_that_the_caller_gives_is_sent_as_it_is(door: Door, service: Service) -> None:
    for _ in range(2):
        door.post(f"{service.url}/things", Idempotency_Key="mine-1")
    assert [seen.headers["idempotency-key"] for seen in service.seen] == ["mine-1"]


@pytest.mark.parametrize("given", ["", "x" * 201])
def test_a_key_that_cannot_be_kept_is_refused(door: Door, service: Service, given: str) -> None:
    with pytest.raises(Exception, match="Idempotency-Key takes 1 to 200"):
        door.post(f"{service.url}/things", Idempotency_Key=given)
    assert service.seen == []


def test_the_intent_is_taken_out(door: Door, service: Service) -> None:
    door.post(f"{service.url}/things", "buy milk")
    assert INTENT.lower() not in service.seen[0].headers


def test_the_file_is_readable_for_its_owner_alone(open_door: Open, service: Service, keys: Path) -> None:
    before = os.umask(0)
    try:
        open_door().post(f"{service.url}/things")
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in keys.parent.glob("keys.db*")}
    assert set(modes.values()) == {0o600}, modes


def test_a_body_over_the_limit_is_refused(open_door: Open, service: Service) -> None:
    door = open_door(max_body=10)
    with pytest.raises(Exception, match="11 bytes, more than the 10"):
        door.post(f"{service.url}/things", body=b"x" * 11)
    assert service.seen == []


def test_a_body_of_just_the_limit_is_kept_and_can_be_sent_again(open_door: Open, service: Service) -> None:
    service.always["/things"] = Say(500)
    door = open_door(tries=1)
    door.post(f"{service.url}/things", body=b"x" * 1024 * 1024)
    service.always.clear()
    [resumed] = door.resume()
    assert resumed.response is not None
    assert len(service.seen[-1].body) == 1024 * 1024
