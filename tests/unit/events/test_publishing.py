"""How a relay deletes what was published long ago: all of it, in lots, and beside what it publishes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from semel.core.events.outbox import (
    Cursor,
    CursorFound,
    CursorSaved,
    EventBatch,
    EventsPurged,
    OpenCursor,
    PurgeEvents,
    ReadEvents,
    SaveCursor,
    StoredEvent,
    StreamPart,
)
from semel.core.observer import Logging
from semel.errors import StoreUnavailable
from semel.events import Backoff, Event
from semel.events.encoding import to_outbox
from semel.events.publishing import PartPublisher, RelayProgress, RelaySettings
from semel.testing.clock import VirtualClock

PART = StreamPart("default")
LOT = 5000
SETTINGS = RelaySettings(64, 1, 5, Backoff(first=0, most=0), timedelta(days=7))


@dataclass
class Store:
    """Answers a relay: always one more event, and as many lots to purge as there are."""

    to_purge: list[int] = field(default_factory=list)
    purges: list[PurgeEvents] = field(default_factory=list)
    saved: int = 0
    events: int = 0
    may_purge: asyncio.Event = field(default_factory=asyncio.Event)
    fails: bool = False

    async def ask(self, operation: Any) -> Any:
        match operation:
            case OpenCursor(part, token):
                return CursorFound(Cursor(part=part, number=1, token=token), frozenset())
            case ReadEvents(cursor, _):
                return self._batch(cursor)
            case SaveCursor(cursor):
                self.saved += 1
                return CursorSaved(cursor)
            case PurgeEvents():
                self.purges.append(operation)
                await self.may_purge.wait()
                if self.fails:
                    raise StoreUnavailable("gone")
                return EventsPurged(self.to_purge.pop(0) if self.to_purge else 0, 1000 * len(self.purges))
        raise AssertionError(operation)

    def _batch(self, cursor: Cursor) -> EventBatch:
        self.events -= 1
        kept = to_outbox(Event(type="t", source="/s", id="e"), "default", None)
        return EventBatch((StoredEvent(1, kept),), cursor, is_last=self.events <= 0)


class Broker:
    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        await asyncio.sleep(0)
        return [None] * len(events)


def _publishing(store: Store, clock: VirtualClock, settings: RelaySettings = SETTINGS) -> PartPublisher:
    return PartPublisher(
        PART,
        Broker(),
        settings,
        ask=store.ask,
        clock=clock,
        wake=asyncio.Event(),
        until=clock.monotonic() + 240,
        progress=RelayProgress(),
        is_patient=False,
        observer=Logging(),
    )


async def _opened(store: Store, clock: VirtualClock, settings: RelaySettings = SETTINGS) -> PartPublisher:
    publishing = _publishing(store, clock, settings)
    await publishing.open(bytes(16))
    return publishing


def test_purging_goes_on_in_lots_until_it_has_caught_up() -> None:
    async def scenario() -> None:
        store = Store(to_purge=[LOT, LOT, 17])
        store.may_purge.set()
        assert await (await _opened(store, VirtualClock())).purge() == 2 * LOT + 17
        assert [(one.limit, one.after) for one in store.purges] == [(LOT, 0), (LOT, 1000), (LOT, 2000)]

    asyncio.run(scenario())


def test_parked_events_are_looked_at_once_for_each_purge() -> None:
    async def scenario() -> None:
        store = Store(to_purge=[LOT, 0])
        store.may_purge.set()
        settings = RelaySettings(64, 1, 5, Backoff(first=0, most=0), timedelta(days=7), timedelta(days=30))
        await (await _opened(store, VirtualClock(), settings)).purge()
        assert [one.keep_parked_us for one in store.purges] == [30 * 86_400_000_000, None]

    asyncio.run(scenario())


def test_a_purge_that_takes_long_does_not_hold_up_what_is_to_be_published() -> None:
    async def scenario() -> None:
        store, clock = Store(events=10), VirtualClock()
        publishing = await _opened(store, clock)
        clock.advance(61)
        async with asyncio.timeout(10):
            assert await publishing.publish_all() == 10
        assert (store.saved, len(store.purges)) == (10, 1), "the purge began, and has not ended"
        await publishing.close()

    asyncio.run(scenario())


def test_a_stream_that_is_never_empty_is_purged_nevertheless() -> None:
    async def scenario() -> None:
        store, clock = Store(events=50, to_purge=[3]), VirtualClock()
        store.may_purge.set()
        publishing = await _opened(store, clock)
        clock.advance(61)
        await publishing.publish_all()
        assert len(store.purges) == 1
        store.events = 50
        await publishing.publish_all()
        assert len(store.purges) == 1, "it is not time yet"
        clock.advance(61)
        store.events = 50
        await publishing.publish_all()
        assert len(store.purges) == 2
        await publishing.close()

    asyncio.run(scenario())


def test_a_purge_that_fails_is_told_to_whoever_runs_the_relay() -> None:
    async def scenario() -> None:
        store, clock = Store(events=50, fails=True), VirtualClock()
        store.may_purge.set()
        publishing = await _opened(store, clock)
        clock.advance(61)
        with pytest.raises(StoreUnavailable, match="gone"):
            await publishing.publish_all()
        await publishing.close()

    asyncio.run(scenario())


def test_a_purge_ends_when_the_part_has_to_be_given_back() -> None:
    async def scenario() -> None:
        store, clock = Store(to_purge=[LOT] * 100), VirtualClock()
        store.may_purge.set()
        publishing = await _opened(store, clock)
        clock.advance(241)
        assert await publishing.purge() == LOT

    asyncio.run(scenario())
