"""Nothing that is committed is lost, whoever holds a transaction open, rolls back, or dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from semel.core.events.outbox import OpenCursor, ReadEvents, SaveCursor, StreamPart
from semel.events import Outbox, Relay
from semel.stores.postgresql.outbox import PostgresOutbox
from tests.effort import FULL
from tests.events.places import Broker, Place, add, place_at
from tests.events.stress import FAULTS, Report, Stress
from tests.servers.databases import Databases

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 120)]
HAPPENED = {*FAULTS, "rolled back", "rolled back to a savepoint"}
A_FEW = 20


def stress(place: Place, **settings: Any) -> Report:
    async def run() -> Report:
        try:
            return await Stress(place, **settings).run()
        finally:
            await place.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("place", "writers", "transactions"),
    [
        pytest.param("postgresql", 24, 400 if FULL else 40, id="postgresql"),
        pytest.param("mariadb", 8, 400 if FULL else 15, id="mariadb"),
        pytest.param("sqlite", 4, 200 if FULL else 15, id="sqlite"),
    ],
    indirect=["place"],
)
def test_what_is_committed_is_published_and_nothing_else(place: Place, writers: int, transactions: int) -> None:
    is_serial = place.name == "sqlite"
    report = stress(place, writers=writers, transactions=transactions, serial=is_serial)
    print(report)
    assert (report.missing, report.uncommitted, report.out_of_order) == ([], [], []), str(report)
    assert report.committed > writers * transactions / 2, str(report)
    wanted = HAPPENED if is_serial else {*HAPPENED, "held open"}
    assert report.seen.keys() >= wanted, str(report)


@contextmanager
def floor_of_this_reading() -> Iterator[None]:
    """The floor of a window is the highest position that was given away when its snapshot was taken."""
    right = PostgresOutbox.read

    def read(self: PostgresOutbox, cursor: Any, limit: int) -> Any:
        batch = yield from right(self, cursor, limit)
        behind = batch.cursor
        return replace(batch, cursor=replace(behind, floor=behind.top) if batch.is_last else behind)

    with patch.object(PostgresOutbox, "read", read):
        yield


@contextmanager
def floor_of_the_reading_before() -> Iterator[None]:
    """The floor was read before the snapshot was taken, and nothing of the relay's own was written in between."""
    right = PostgresOutbox.read

    def read(self: PostgresOutbox, cursor: Any, limit: int) -> Any:
        return right(self, replace(cursor, safe=cursor.top), limit)

    with patch.object(PostgresOutbox, "read", read):
        yield


def test_with_a_naive_floor_the_same_loses_events(postgresql: Databases) -> None:
    """Which transactions are open at the same time is up to the machine, so this is done until one is passed over."""
    with floor_of_this_reading():
        for _ in range(A_FEW):
            report = stress(place_at("postgresql", postgresql.new_database()), writers=24, transactions=15)
            assert not report.uncommitted, str(report)
            if report.missing:
                return
    raise AssertionError("nothing was lost")


async def read_beside_a_late_one(place: Place) -> list[str]:
    """Beside readings that find nothing, a transaction adds an event, and commits after some of them.

    While no later transaction ends, no snapshot names it among those that run: a floor above its position passes it
    over. Other databases of the server may end transactions meanwhile, so this is done several times. Answers what is
    never read.
    """
    semel = place.semel()
    relay = Relay(Outbox(semel), Broker())
    caller = await place.caller()
    cursor = (await relay._ask(OpenCursor(StreamPart("default"), bytes(16)))).cursor
    lost: list[str] = []
    for number in range(A_FEW):
        await caller.begin()
        await add(Outbox(semel), f"late{number}", within=caller.thing)
        for _ in range(3):
            batch = await relay._ask(ReadEvents(cursor, 10))
            assert not batch.events, "it is not committed"
            cursor = batch.cursor
        await caller.commit()
        batch = await relay._ask(ReadEvents(cursor, 10))
        if [stored.event.id for stored in batch.events] != [f"late{number}"]:
            lost.append(f"late{number}")
        published = tuple(stored.position for stored in batch.events)
        cursor = (await relay._ask(SaveCursor(batch.cursor, published))).cursor
    return lost


def run_bounded(place: Place, scenario: Callable[[Place], Awaitable[list[str]]]) -> list[str]:
    async def run() -> list[str]:
        try:
            async with asyncio.timeout(60):
                return await scenario(place)
        finally:
            await place.close()

    return asyncio.run(run())


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_transaction_that_no_snapshot_names_is_not_passed_over(place: Place) -> None:
    assert run_bounded(place, read_beside_a_late_one) == []


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_floor_without_a_write_before_the_snapshot_passes_it_over(place: Place) -> None:
    with floor_of_the_reading_before():
        assert run_bounded(place, read_beside_a_late_one)
