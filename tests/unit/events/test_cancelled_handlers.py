"""Handlers that end by a cancellation which nobody asked for, or by what is no error: nobody else stands still."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from semel.events import Backoff, Consumer, Event
from semel.events.brokers.listening import Message, run_listener
from semel.events.event import JSON_EVENT
from semel.handlers import WasCancelled
from semel.stores.memory import MemoryStore
from tests.unit.events.test_listening import Asked

LONG = 10
EVENT = Event(id="e-1", type="registered", source="/facilities/7")
SETTINGS: dict[str, Any] = {"backoff": Backoff(first=7.0, most=7.0, spread=0), "in_doubt": "rerun", "max_attempts": 2}


async def wait_for_what_is_cancelled() -> None:
    shared = asyncio.create_task(asyncio.Event().wait())
    shared.cancel()
    await shared


def send(broker: Asked, *events: Event) -> None:
    for event in events:
        broker.take(Message({"content-type": JSON_EVENT}, event.to_json(), None))


@pytest.mark.anyio
async def test_a_cancellation_that_nobody_asked_for_is_a_failure_like_any_other() -> None:
    consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing", **SETTINGS)
    consumer.on("registered")(wait_for_what_is_cancelled)
    first = await consumer.handle(EVENT)
    assert (first.action, first.status) == ("retry", "failed")
    assert isinstance(first.error, WasCancelled)
    assert first.retry_after is not None
    assert first.retry_after.total_seconds() == 7
    second = await consumer.handle(EVENT)
    assert (second.action, second.status) == ("dead_letter", "exhausted")


def test_the_same_holds_for_a_thread_that_runs_an_event_loop() -> None:
    consumer: Consumer[Semel] = Consumer(Semel(MemoryStore()), "billing", **SETTINGS)

    @consumer.on("registered")
    def registered() -> None:
        asyncio.run(wait_for_what_is_cancelled())

    done = consumer.handle(EVENT)
    assert (done.action, done.status) == ("retry", "failed")
    assert isinstance(done.error, WasCancelled)


@pytest.mark.anyio
async def test_whoever_is_cancelled_is_told_so() -> None:
    consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing", **SETTINGS)
    began = asyncio.Event()

    @consumer.on("registered")
    async def registered() -> None:
        began.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(consumer.handle(EVENT))
    await asyncio.wait_for(began.wait(), LONG)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.anyio
async def test_a_listener_goes_on_after_a_cancellation_that_nobody_asked_for() -> None:
    consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing", **SETTINGS)
    consumer.on("registered")(wait_for_what_is_cancelled)
    is_done = asyncio.Event()

    @consumer.on("moved")
    async def moved() -> None:
        is_done.set()

    broker = Asked()
    async with run_listener(consumer, broker, concurrency=1, stop_within=LONG):
        send(broker, EVENT, Event(id="e-2", type="moved", source="/facilities/7"))
        await asyncio.wait_for(is_done.wait(), LONG)


@pytest.mark.anyio
async def test_what_is_no_error_ends_a_listener_and_not_a_worker_of_it_alone() -> None:
    class Stop(BaseException):
        pass

    consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing", **SETTINGS)

    @consumer.on("registered")
    async def registered() -> None:
        raise Stop

    async def listen() -> None:
        broker = Asked()
        async with run_listener(consumer, broker, concurrency=1, stop_within=LONG):
            send(broker, EVENT)
            await asyncio.Event().wait()

    with pytest.raises(Stop):
        await asyncio.wait_for(listen(), LONG)


class Transaction:
    """A transaction on a file, of which one call is cancelled by somebody who does not cancel the consumer."""

    def __init__(self, path: Path, cancelled: str) -> None:
        self.path = path
        self.cancelled = cancelled

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[sqlite3.Connection]:
        await self._call("begin")
        with closing(sqlite3.connect(self.path)) as connection, connection:
            yield connection
            await self._call("commit")

    async def _call(self, name: str) -> None:
        if name == self.cancelled:
            await wait_for_what_is_cancelled()


@pytest.mark.anyio
@pytest.mark.parametrize(("cancelled", "status"), [("begin", "unavailable"), ("commit", "failed")])
async def test_a_transaction_that_is_cancelled_is_one_that_fails(tmp_path: Path, cancelled: str, status: str) -> None:
    transaction = Transaction(tmp_path / "shop.db", cancelled)
    async with AsyncSemel(f"sqlite:///{transaction.path}") as semel:
        consumer: Consumer[AsyncSemel] = Consumer(semel, "billing", transaction=transaction.begin, **SETTINGS)

        @consumer.on("registered")
        async def registered() -> None: ...

        done = await consumer.handle(EVENT)
        assert (done.action, done.status) == ("retry", status)
        assert isinstance(done.error, WasCancelled)
        transaction.cancelled = "nothing"
        assert (await consumer.handle(EVENT)).status == "processed"


@pytest.mark.anyio
async def test_a_broker_whose_client_was_cancelled_ends_a_listener_and_not_a_worker_of_it_alone() -> None:
    class Cancelled(Asked):
        async def acknowledge(self, message: Message) -> None:
            await wait_for_what_is_cancelled()

    consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing", **SETTINGS)

    @consumer.on("registered")
    async def registered() -> None: ...

    async def listen() -> None:
        broker = Cancelled()
        async with run_listener(consumer, broker, concurrency=1, stop_within=LONG):
            send(broker, EVENT)
            await asyncio.Event().wait()

    with pytest.raises(WasCancelled):
        await asyncio.wait_for(listen(), LONG)
