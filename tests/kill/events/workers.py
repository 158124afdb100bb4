"""The workers of a run with events, and the zygote that forks them: a producer, relays and consumers.

A worker costs a fork instead of an interpreter. The zygote reads orders from its standard input: `spawn ROLE SLOT`
answers with a process id, `reap PID` waits for that process and answers with its exit status. What always holds: nobody
is reaped unasked, so an id that the killer knows still names the process it meant; when the killer is gone, all end.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg

from semel import AsyncAttempt, AsyncSemel
from semel.events import Backoff, Consumer, Event, Outbox, Relay
from semel.events import relay as relay_module
from tests.kill.events.board import At, Board, Field, Slot
from tests.kill.events.places import Way, way_over

BOARD, ERRORS = "board", "errors.txt"
LEASE: Final = timedelta(seconds=1)
_SOON: Final = Backoff(first=timedelta(milliseconds=50), most=timedelta(milliseconds=500))
_ENDLESS: Final = 1_000_000
"""Attempts: a kill uses one up, and what is proved here is not when a consumer gives up."""


@dataclass
class Worker:
    """What every role is given."""

    database: str
    way: Way
    board: Board
    slot: Slot
    end: asyncio.Event = field(default_factory=asyncio.Event)


def main(folder: Path, database: str, broker: str, url: str, workers: int) -> None:
    """Serve until the input ends."""
    board = Board(folder / BOARD, workers)
    handler = logging.FileHandler(folder / ERRORS, delay=True)
    handler.setLevel(logging.ERROR)
    logging.getLogger("semel").addHandler(handler)
    # A relay that is killed keeps its part from the others until its lease ends, which would be most of the run.
    relay_module._LEASE = LEASE  # type: ignore[misc]
    way = way_over(broker, url)
    children: set[int] = set()
    try:
        for order in sys.stdin:
            word, *arguments = order.split()
            if word == "spawn":
                child = os.fork()
                if child == 0:
                    _live(folder, arguments[0], Worker(database, way, board, board.slot(int(arguments[1]))))
                children.add(child)
                print(child, flush=True)
            else:
                _, status = os.waitpid(int(arguments[0]), 0)
                children.discard(int(arguments[0]))
                print(status, flush=True)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def _live(folder: Path, role: str, worker: Worker) -> None:
    """The life of a worker, up to its end."""
    status = 1
    try:
        asyncio.run(_work(role, worker))
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the killer has to see it
        with (folder / ERRORS).open("a") as file:
            file.write(f"{role}:\n{traceback.format_exc()}\n")
    finally:
        os._exit(status)


async def _work(role: str, worker: Worker) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.end.set)
    await _ROLES[role](worker)


async def produce(worker: Worker) -> None:
    """Add events in every way there is, among them one in a transaction that stays open until the end."""
    board = worker.board
    async with AsyncSemel(worker.database) as semel, AsyncExitStack() as stack:
        outbox = Outbox(semel)
        first, second, holding = [await asyncpg.connect(worker.database) for _ in range(3)]
        for connection in (first, second, holding):
            stack.push_async_callback(connection.close)
        held = holding.transaction()
        await held.start()
        await _place(outbox, holding, "held")
        acts = itertools.cycle((_add_two, _ride, _add_in_reverse, _roll_back))
        for number in itertools.count():
            while board.added >= board.allowed and not board.is_ending:  # noqa: ASYNC110 - shared memory tells nobody
                await asyncio.sleep(0.01)
            if board.is_ending:
                break
            board.count_added(await next(acts)(semel, outbox, first, second, f"e-{number}"))
        await held.commit()
        board.count_added(1)


async def _place(outbox: Outbox[AsyncSemel], connection: Any, subject: str) -> None:
    await connection.execute("INSERT INTO placed VALUES ($1)", subject)
    await outbox.add(_event(subject, id=subject), within=connection)


def _event(subject: str, **given: Any) -> Event:
    return Event(type="placed", source="/kill", subject=subject, data={"subject": subject}, **given)


async def _add_two(_: AsyncSemel, outbox: Outbox[AsyncSemel], first: Any, __: Any, name: str) -> int:
    async with first.transaction():
        await _place(outbox, first, f"{name}-a")
        await _place(outbox, first, f"{name}-b")
    return 2


async def _ride(semel: AsyncSemel, outbox: Outbox[AsyncSemel], first: Any, _: Any, name: str) -> int:
    """One that is written by the statement that completes a record."""

    async def handler() -> None:
        await first.execute("INSERT INTO placed VALUES ($1)", name)
        await outbox.add(_event(name))

    async with first.transaction():
        await semel.within(first).run(name, handler, operation="place", fingerprint=None)
    return 1


async def _add_in_reverse(_: AsyncSemel, outbox: Outbox[AsyncSemel], first: Any, second: Any, name: str) -> int:
    """Two transactions, of which the one that began first commits last."""
    async with first.transaction():
        await _place(outbox, first, f"{name}-began-first")
        async with second.transaction():
            await _place(outbox, second, f"{name}-committed-first")
        # So that a relay looks in between, most of the time.
        await asyncio.sleep(0.01)
    return 2


async def _roll_back(_: AsyncSemel, outbox: Outbox[AsyncSemel], first: Any, __: Any, name: str) -> int:
    transaction = first.transaction()
    await transaction.start()
    await _place(outbox, first, f"{name}-never")
    await transaction.rollback()
    return 0


async def relay(worker: Worker) -> None:
    """Move events to the broker."""
    async with AsyncSemel(worker.database) as semel, worker.way.publisher() as publisher:
        watched = _WatchedPublisher(publisher, worker.slot)
        moving = Relay(Outbox(semel), watched, batch=20, backoff=_SOON)
        running = asyncio.create_task(moving.run())
        ending = asyncio.create_task(worker.end.wait())
        await asyncio.wait({running, ending}, return_when=asyncio.FIRST_COMPLETED)
        moving.stop()
        await running


class _WatchedPublisher:
    """A publisher that shows where it is."""

    def __init__(self, publisher: Any, slot: Slot) -> None:
        self._publisher = publisher
        self._slot = slot

    async def publish(self, events: Sequence[Event]) -> Sequence[Exception | None]:
        self._slot.change(Field.UNDER_WAY, len(events))
        try:
            self._slot.stand(At.READ)
            told: Sequence[Exception | None] = await self._publisher.publish(events)
            self._slot.change(Field.PUBLISHED, len(events))
            self._slot.stand(At.CONFIRMED)
            return told
        finally:
            self._slot.change(Field.UNDER_WAY, -len(events))


async def consume(worker: Worker) -> None:
    """Take events with both consumers; a broker that is not there yet is tried again."""
    async with (
        AsyncSemel(worker.database) as semel,
        asyncpg.create_pool(worker.database, min_size=1, max_size=8) as pool,
    ):
        exact, counted = _exact(semel, pool, worker.slot), _counted(semel, pool, worker.slot)
        while not worker.end.is_set():
            with suppress(OSError):
                async with worker.way.listen(exact), worker.way.listen(counted):
                    await worker.end.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await worker.end.wait()


class _WatchedConsumer(Consumer[AsyncSemel]):
    """A consumer that shows how many events it is at, and stands still before their end is told to the broker."""

    def watch(self, slot: Slot, before_acknowledging: At) -> None:
        self._slot = slot
        self._last = before_acknowledging

    def receive(self, headers: Mapping[str, Any], body: bytes, **settings: Any) -> Any:
        return self._watch(super().receive(headers, body, **settings))

    async def _watch(self, receiving: Awaitable[Any]) -> Any:
        slot = self._slot
        slot.change(Field.UNDER_WAY, 1)
        try:
            slot.stand(At.TAKEN)
            told = await receiving
            if told.status == "processed":
                slot.stand(self._last)
            elif told.status == "duplicate":
                slot.change(Field.REPEATS, 1)
            return told
        finally:
            slot.change(Field.UNDER_WAY, -1)


def _exact(semel: AsyncSemel, pool: Any, slot: Slot) -> Consumer[AsyncSemel]:
    """Its effects commit with their marks: each happens exactly once."""

    @asynccontextmanager
    async def transaction() -> AsyncIterator[Any]:
        async with pool.acquire() as connection, connection.transaction():
            yield connection

    consumer = _WatchedConsumer(semel, "exact", transaction=transaction, backoff=_SOON, max_attempts=_ENDLESS)
    consumer.watch(slot, At.COMMITTED)

    @consumer.on("placed")
    async def place(event: Event, session: Any) -> None:
        await session.execute("INSERT INTO exact VALUES ($1)", event.subject)
        slot.stand(At.WRITTEN)

    return consumer


def _counted(semel: AsyncSemel, pool: Any, slot: Slot) -> Consumer[AsyncSemel]:
    """Its effects commit by themselves: each happens at least once, and whoever repeats one is told of the doubt."""
    consumer = _WatchedConsumer(
        semel, "counted", backoff=_SOON, max_attempts=_ENDLESS, lease_for=LEASE, in_doubt="rerun"
    )
    consumer.watch(slot, At.RECORDED)

    @consumer.on("placed")
    async def count(event: Event, attempt: AsyncAttempt) -> None:
        await pool.execute("INSERT INTO counted VALUES ($1, $2)", event.subject, attempt.in_doubt)
        slot.stand(At.RAN)

    return consumer


_ROLES: Final[dict[str, Callable[[Worker], Awaitable[None]]]] = {
    "producer": produce,
    "relay": relay,
    "consumer": consume,
}

if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
