"""A record shows each instant once, as an aware datetime, however it is come by; microseconds stay in the store."""

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from semel import AsyncSemel, DidNotHappen, Policy, Record, Semel
from semel.stores.memory import MemoryStore
from semel.testing import VirtualClock

START = datetime(2030, 1, 1, tzinfo=UTC)
INSTANTS = ["created_at", "started_at", "updated_at", "lease_until", "completed_at", "expires_at", "replayed_at"]
DOUBT = Policy(in_doubt="hold")


def make() -> tuple[Semel, VirtualClock]:
    clock = VirtualClock(START)
    return Semel(MemoryStore(clock=clock.store_clock), clock=clock), clock


def completed(semel: Semel) -> Record | None:
    return semel.run("o-1", lambda: 1, operation="pay", fingerprint=None).record


def replayed(semel: Semel) -> Record | None:
    completed(semel)
    return completed(semel)


def read(semel: Semel) -> Record | None:
    completed(semel)
    return semel.read("o-1", operation="pay")


def listed(semel: Semel) -> Record | None:
    completed(semel)
    return next(iter(semel.records()))


def resolved(semel: Semel) -> Record | None:
    with pytest.raises(ZeroDivisionError):
        semel.run("o-1", lambda: 1 / 0, operation="pay", fingerprint=None, policy=DOUBT)
    return semel.resolve("o-1", DidNotHappen(), operation="pay", reason="looked")


def erased(semel: Semel) -> Record | None:
    completed(semel)
    return semel.erase("o-1", operation="pay", reason="asked")


@pytest.mark.parametrize("way", [completed, replayed, read, listed, resolved, erased])
def test_every_way_to_a_record_shows_it_with_aware_datetimes(way: Callable[[Semel], Record | None]) -> None:
    semel, _ = make()
    record = way(semel)
    assert type(record) is Record
    shown = {name: getattr(record, name) for name in INSTANTS}
    assert {at.tzinfo for at in shown.values() if at is not None} == {UTC}
    assert shown["created_at"] == START


def test_awaited_records_are_shown_in_the_same_way() -> None:
    async def play() -> list[Any]:
        async with AsyncSemel("memory://") as semel:

            async def pay() -> int:
                return 1

            result = await semel.run("o-1", pay, operation="pay", fingerprint=None)
            listed = [record async for record in semel.records()]
            return [result.record, await semel.read("o-1", operation="pay"), *listed]

    assert [type(record) for record in asyncio.run(play())] == [Record] * 3


def test_no_number_of_a_record_is_an_instant() -> None:
    semel, _ = make()
    record = read(semel)
    numbers = {
        name
        for name, _ in inspect.getmembers_static(Record)
        if not name.startswith("_") and isinstance(getattr(record, name), int | float)
    }
    assert numbers == {"attempts", "doubtful", "erased", "fence", "final", "replays", "retryable", "settled"}


def test_no_instant_is_shown_twice() -> None:
    names = {name for name in dir(Record) if not name.startswith("_")}
    assert {name for name in names if name.endswith(("_at", "_until", "_us"))} == set(INSTANTS)
    assert names & {"nonce", "lease", "resolution"} == set()


def test_durations_of_a_record_are_timedeltas() -> None:
    semel, clock = make()
    policy = Policy(keep_for=timedelta(days=2), reconcile_after=timedelta(seconds=7))
    semel.run("o-1", lambda: clock.advance(3), operation="pay", fingerprint=None, policy=policy)
    record = semel.read("o-1", operation="pay")
    assert record is not None
    assert (record.keep_for, record.reconcile_after) == (timedelta(days=2), timedelta(seconds=7))
    assert record.duration == timedelta(seconds=3)
    assert record.expires_at == record.created_at + timedelta(days=2)


def test_a_record_can_be_written_out_as_json() -> None:
    semel, _ = make()
    record = read(semel)
    shown = msgspec.json.decode(msgspec.json.encode(record))
    assert shown["created_at"] == "2030-01-01T00:00:00Z"
    assert shown["completed_at"] == "2030-01-01T00:00:00Z"
