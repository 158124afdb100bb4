"""`max_handlers` bounds what runs: what had to wait for room is no failure, and claims of semel's own take none."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, Limits, Semel
from semel.events import Consumer, Event, Outbox, Relay
from semel.stores.memory import MemoryStore
from tests.events.desk import an_event
from tests.events.places import Broker

ONE = Limits(max_handlers=1)
pytestmark = pytest.mark.anyio


def transaction_in(path: Path) -> Any:
    @contextmanager
    def transaction() -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(path)) as connection, connection:
            yield connection

    return transaction


def async_transaction_in(path: Path) -> Any:
    @asynccontextmanager
    async def transaction() -> AsyncIterator[sqlite3.Connection]:
        with transaction_in(path)() as connection:
            yield connection

    return transaction


@pytest.mark.parametrize("joins", [True, False], ids=["transaction", "alone"])
def test_an_event_that_finds_no_room_for_its_handler_has_not_failed(tmp_path: Path, *, joins: bool) -> None:
    path = tmp_path / "semel.db"
    with Semel(path, limits=ONE) as semel:
        consumer = Consumer(semel, "billing", max_attempts=1, transaction=transaction_in(path) if joins else None)
        consumer.on("asset.registered")(lambda: None)
        busy = semel.open("another", operation="pay", fingerprint=None)
        told = [consumer.handle(an_event()) for _ in range(3)]
        assert [(one.status, one.action) for one in told] == [("unavailable", "retry")] * 3
        assert list(consumer.dead_letters()) == []
        busy.finish(None)
        assert consumer.handle(an_event()).status == "processed"


async def test_an_awaited_event_that_finds_no_room_for_its_handler_has_not_failed(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"
    async with AsyncSemel(path, limits=ONE) as semel:
        consumer = Consumer(semel, "billing", max_attempts=1, transaction=async_transaction_in(path))

        @consumer.on("asset.registered")
        async def registered() -> None:
            """Nothing to do."""

        busy = await semel.open("another", operation="pay", fingerprint=None)
        told = [await consumer.handle(an_event()) for _ in range(3)]
        assert [(one.status, one.action) for one in told] == [("unavailable", "retry")] * 3
        await busy.finish(None)
        assert (await consumer.handle(an_event())).status == "processed"


def test_the_turn_of_a_subject_takes_no_room_from_its_handler() -> None:
    with Semel(MemoryStore(), limits=ONE) as semel:
        consumer = Consumer(semel, "billing", serial_by="subject")
        consumer.on("asset.registered")(lambda: None)
        assert consumer.handle(an_event()).status == "processed"


async def test_the_awaited_turn_of_a_subject_takes_no_room_from_its_handler() -> None:
    async with AsyncSemel(MemoryStore(), limits=ONE) as semel:
        consumer = Consumer(semel, "billing", serial_by="subject")

        @consumer.on("asset.registered")
        async def registered() -> None:
            """Nothing to do."""

        assert (await consumer.handle(an_event())).status == "processed"


async def test_a_running_relay_takes_no_room_from_handlers() -> None:
    arrived = asyncio.Event()

    async def arrive(_events: Any) -> None:
        arrived.set()

    async with AsyncSemel(MemoryStore(), limits=ONE) as semel:
        outbox = Outbox(semel)
        await outbox.add(Event(type="asset.moved", source="/test", id="e-1"), autonomous=True)
        relay = Relay(outbox, Broker(before=arrive), parts=2)
        running = asyncio.create_task(relay.run())
        await arrived.wait()

        async def pay() -> int:
            return 1

        assert (await semel.run("k", pay, operation="pay", fingerprint=None)).value == 1
        relay.stop()
        await running
