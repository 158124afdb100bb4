"""Inside a handler: keys come from the running attempt, so that a rerun asks the next service for the same things."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

from semel import AsyncSemel, Semel
from semel.client import INTENT, AsyncClient, Client
from semel.client.requests import OnceAdapter
from semel.engine.engine import engine_of
from semel.errors import KeyTooOld, UsageError
from semel.stores.sqlite import SqliteStore
from semel.testing.clock import VirtualClock
from tests.client.service import Service

Scene = Callable[..., None]


class Died(Exception):
    """The handler ends here, and nobody knows what it did."""


def _in_threads(outer: Any, keys: Path, story: list[tuple[str, str]], *, die: bool, **run: Any) -> None:
    """Play a story: posts by path, `in step` ones inside a step of that name; at its end it dies or returns."""
    with Semel(outer) as semel, Client(keys, trust_env=False) as client:

        def handler() -> str:
            for step, url in story:
                headers = {INTENT: step[1:]} if step.startswith("#") else None
                if step and headers is None:
                    semel.current().step(step, lambda url=url: client.post(url).text)
                else:
                    client.post(url, headers=headers)
            if die:
                raise Died
            return "done"

        semel.run("k", handler, **({"operation": "order", "fingerprint": None} | run))


def _awaited(outer: Any, keys: Path, story: list[tuple[str, str]], *, die: bool, **run: Any) -> None:
    async def play() -> None:
        async with AsyncSemel(outer) as semel, AsyncClient(keys, trust_env=False) as client:

            async def text(url: str) -> str:
                return (await client.post(url)).text

            async def handler() -> str:
                for step, url in story:
                    headers = {INTENT: step[1:]} if step.startswith("#") else None
                    if step and headers is None:
                        await semel.current().step(step, text, url)
                    else:
                        await client.post(url, headers=headers)
                if die:
                    raise Died
                return "done"

            await semel.run("k", handler, **({"operation": "order", "fingerprint": None} | run))

    asyncio.run(play())


@pytest.fixture(params=[_in_threads, _awaited], ids=["threads", "awaited"])
def play(request: pytest.FixtureRequest, tmp_path: Path, keys: Path) -> Scene:
    """Plays a story in a handler of either colour."""

    def played(story: list[tuple[str, str]], *, die: bool = False, outer: Any = None, **run: Any) -> None:
        try:
            request.param(outer or tmp_path / "outer.db", keys, story, die=die, **run)
        except Died:
            assert die

    return played


def test_a_rerun_sends_the_same_keys_in_the_same_order(play: Scene, service: Service) -> None:
    story = [("", f"{service.url}/a"), ("", f"{service.url}/a"), ("", f"{service.url}/b")]
    play(story, die=True)
    play(story)
    keys = service.keys()
    assert keys[:3] == keys[3:]
    assert len(set(keys)) == 3
    assert service.effects == {"/a": 2, "/b": 1}


def test_a_step_that_is_passed_over_does_not_move_what_follows(play: Scene, service: Service) -> None:
    story = [("hold", f"{service.url}/a"), ("", f"{service.url}/a")]
    play(story, die=True)
    play(story)
    keys = service.keys()
    assert len(keys) == 3
    assert keys[1] == keys[2]
    assert keys[0] != keys[1]


def test_two_tenants_with_one_key_value_get_different_keys_downstream(play: Scene, service: Service) -> None:
    for tenant in ("a", "b"):
        play([("", f"{service.url}/pay")], scope=tenant)
    assert len(set(service.keys())) == 2
    assert not {"k"} & set(service.keys())


def test_two_operations_with_one_key_value_get_different_keys_downstream(play: Scene, service: Service) -> None:
    for operation in ("pay", "refund"):
        play([("", f"{service.url}/pay")], operation=operation)
    assert len(set(service.keys())) == 2


def test_an_intent_has_one_key_however_often_it_is_asked_for(play: Scene, service: Service) -> None:
    play([("#a", f"{service.url}/pay"), ("#b", f"{service.url}/pay"), ("#a", f"{service.url}/pay")])
    first, second, third = service.keys()
    assert first == third
    assert first != second


def test_nothing_is_kept_beside_the_attempt(play: Scene, service: Service, keys: Path) -> None:
    play([("", f"{service.url}/pay")])
    with Semel(keys) as semel:
        assert list(semel.records()) == []


def test_a_rerun_past_what_the_service_remembers_is_refused(play: Scene, service: Service, tmp_path: Path) -> None:
    clock = VirtualClock()  # it stands in the future of the machine's clock: what was created then is not old
    story = [("", f"{service.url}/pay")]
    past = SqliteStore(tmp_path / "past.db", clock=lambda: 1_000_000 * 1_000_000)
    play(story, die=True, outer=past)
    with pytest.raises(KeyTooOld, match="resolve the record of this attempt"):
        play(story, outer=SqliteStore(tmp_path / "past.db", clock=clock.store_clock))
    assert len(service.asked()) == 1


def test_the_adapter_of_requests_derives_too(service: Service, keys: Path, tmp_path: Path) -> None:
    with Semel(tmp_path / "outer.db") as semel, requests.Session() as session:
        session.mount("http://", OnceAdapter(keys))

        def handler() -> int:
            session.post(f"{service.url}/pay", data=b"{}")
            raise Died

        for _ in range(2):
            with pytest.raises(Died):
                semel.run("k", handler, operation="order", fingerprint=None)
    assert len(service.keys()) == 2
    assert len(set(service.keys())) == 1


def test_inside_a_transaction_on_the_database_of_the_keys_nothing_is_sent(service: Service, keys: Path) -> None:
    import sqlite3

    with Semel(keys) as semel, Client(semel) as client:
        semel.sweep()
        connection = sqlite3.connect(keys, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        try:
            with semel.within(connection), pytest.raises(UsageError, match="inside a transaction"):
                client.post(f"{service.url}/pay")
        finally:
            connection.rollback()
            connection.close()
    assert service.seen == []


def test_a_client_leaves_an_engine_that_was_handed_in_open(service: Service, keys: Path) -> None:
    with Semel(keys) as semel:
        runtime = engine_of(semel).runtime()
        with Client(semel) as client:
            client.post(f"{service.url}/pay")
        assert engine_of(semel).runtime() is runtime


def test_a_transport_serves_a_client_of_ones_own(service: Service, keys: Path) -> None:
    from semel.client import OnceTransport

    with httpx.Client(transport=OnceTransport(keys)) as client:
        assert client.post(f"{service.url}/pay").status_code == 201
    assert service.keys()[0] is not None
