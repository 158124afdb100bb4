"""How a relay publishes what it holds: whom a refused event holds up, what an outage says, how old events are deleted.

Those that were published long ago are deleted all, in lots, and beside what is published.
"""

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
from semel.events.publishing import PartPublisher, RelayProgress, RelaySettings, TimeIsUp
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


@dataclass
class Refusing:
    """A broker that refuses events by their id, so often, and writes down what it takes, and when."""

    clock: VirtualClock
    errors: dict[str, list[Exception]]
    raised: list[BaseException] = field(default_factory=list)
    taken: list[tuple[str, float]] = field(default_factory=list)

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        await asyncio.sleep(0)
        if self.raised:
            raise self.raised.pop(0)
        answers: list[Exception | None] = []
        for event in events:
            left = self.errors.get(event.id)
            answers.append(left.pop(0) if left else None)
            if answers[-1] is None:
                self.taken.append((event.id, self.clock.monotonic()))
        return answers


WAITING = RelaySettings(2, 100, 3, Backoff(first=1, most=60, spread=0), timedelta(days=7))


async def publish_some(broker: Refusing, *names: str, is_patient: bool = False, hours: float = 1) -> Any:
    """Have a relay publish events of these ids; what is before a dot is the ordering key. Time passes as it waits."""
    clock, wake = broker.clock, asyncio.Event()
    publishing = PartPublisher(
        PART,
        broker,
        WAITING,
        ask=Store().ask,
        clock=clock,
        wake=wake,
        until=clock.monotonic() + hours * 3600,
        progress=RelayProgress(),
        is_patient=is_patient,
        observer=Logging(),
    )
    stored = []
    for position, name in enumerate(names):
        key = name.partition(".")[0] if "." in name else None
        stored.append(StoredEvent(position, to_outbox(Event(type="t", source="/s", id=name), "default", key)))
    running = asyncio.ensure_future(publishing._publish(stored))
    while not running.done():
        if clock.rests_on(wake):
            clock.advance_to(clock.next_due() or 0)
        await asyncio.sleep(0)
    return await running


def test_an_event_that_is_refused_holds_up_nobody_but_those_of_its_key() -> None:
    async def scenario() -> None:
        broker = Refusing(VirtualClock(), {"a.1": [ValueError("?"), ValueError("?")]})
        done = await publish_some(broker, "a.1", "a.2", *(f"{number}" for number in range(20)))
        assert done.parked == []
        assert [name for name, at in broker.taken if at == 0] == [f"{number}" for number in range(20)]
        assert broker.taken[20:] == [("a.1", 3.0), ("a.2", 3.0)], "after one second, and then after two"

    asyncio.run(scenario())


def test_an_event_that_is_refused_too_often_is_parked_while_others_wait_for_themselves() -> None:
    async def scenario() -> None:
        refusals = {"a": [ValueError("?")] * 3, "b": [ValueError("?")]}
        broker = Refusing(VirtualClock(), {name: list(errors) for name, errors in refusals.items()})
        done = await publish_some(broker, "a", "b", "c")
        assert broker.taken == [("c", 0.0), ("b", 1.0)]
        assert [(one.stored.event.id, one.attempts) for one in done.parked] == [("a", 3)]

    asyncio.run(scenario())


def test_an_outage_is_told_with_its_cause_when_it_begins_and_each_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        down = ConnectionError("RabbitMQ could not be reached")
        down.__cause__ = LookupError("what an event is about")
        broker = Refusing(VirtualClock(), {}, [down] * 9)
        await publish_some(broker, "a", is_patient=True)
        told = [record.getMessage() for record in caplog.records if "not published" in record.getMessage()]
        assert broker.taken == [("a", 1.0 + 2 + 4 + 8 + 16 + 32 + 60 + 60 + 60)]
        assert len(told) == 4, "at once, and then when a minute was over"
        assert all("RabbitMQ could not be reached" in one for one in told)
        assert all("LookupError" in one and "what an event is about" not in one for one in told)

    asyncio.run(scenario())


def test_what_waits_for_longer_than_the_part_is_held_is_set_aside_and_the_rest_counts() -> None:
    async def scenario() -> None:
        broker = Refusing(VirtualClock(), {"a.1": [ValueError("?")]})
        done = await publish_some(broker, "a.1", "a.2", "b", hours=0.5 / 3600)
        assert broker.taken == [("b", 0.0)]
        assert done.positions == [2]
        assert [(one.stored.event.id, one.error, one.attempts) for one in done.parked] == [
            ("a.1", None, 1),
            ("a.2", None, 0),
        ]

    asyncio.run(scenario())


def test_where_nothing_was_confirmed_all_is_left_to_the_next() -> None:
    async def scenario() -> None:
        broker = Refusing(VirtualClock(), {"a": [ValueError("?")]})
        with pytest.raises(TimeIsUp):
            await publish_some(broker, "a", hours=0.5 / 3600)

    asyncio.run(scenario())


def test_a_destination_that_takes_nothing_for_now_holds_up_nobody_else() -> None:
    async def scenario() -> None:
        full = OSError("the queue is full")
        broker = Refusing(VirtualClock(), {"a.1": [full] * 9, "c": [full]})
        done = await publish_some(broker, "a.1", "a.2", "b", "c", *"defg")
        assert [name for name, at in broker.taken if at == 0] == ["b", *"defg"]
        assert broker.taken[5:] == [("c", 1.0)]
        assert [(one.stored.event.id, one.error) for one in done.parked] == [("a.1", None), ("a.2", None)]

    asyncio.run(scenario())


def test_an_event_that_is_alone_and_not_taken_for_now_is_set_aside() -> None:
    async def scenario() -> None:
        broker = Refusing(VirtualClock(), {"a": [OSError("the queue is full")] * 9})
        done = await publish_some(broker, "a", is_patient=True)
        assert [(one.stored.event.id, one.error, one.attempts) for one in done.parked] == [("a", None, 3)]

    asyncio.run(scenario())


def test_no_more_are_set_aside_than_are_on_their_way_together_while_nothing_is_taken() -> None:
    async def scenario() -> None:
        names = [f"{number}" for number in range(10)]
        gone = OSError("gone")
        broker = Refusing(VirtualClock(), {name: [gone] * 99 for name in names})
        with pytest.raises(TimeIsUp):
            await publish_some(broker, *names, is_patient=True)
        tried = [name for name in names if len(broker.errors[name]) < 99]
        assert tried == names[: 2 * WAITING.in_flight], "the first ones were set aside, the next ones wait"

    asyncio.run(scenario())


def test_a_cancellation_that_nobody_asked_of_the_relay_is_an_error_of_its_publisher() -> None:
    async def scenario() -> None:
        for names in (["a"], ["a", "b"]):
            broker = Refusing(VirtualClock(), {}, [asyncio.CancelledError()])
            done = await publish_some(broker, *names, is_patient=True)
            assert sorted(name for name, _ in broker.taken) == names
            assert done.parked == []

    asyncio.run(scenario())


def test_a_relay_that_is_cancelled_while_it_publishes_ends() -> None:
    class Cancelling(Refusing):
        async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return await super().publish(events)

    async def scenario() -> None:
        with pytest.raises(asyncio.CancelledError):
            await publish_some(Cancelling(VirtualClock(), {}), "a", is_patient=True)

    asyncio.run(scenario())


@dataclass
class Raising(Refusing):
    """A broker that raises for a whole list in which there is one of these."""

    poison: set[str] = field(default_factory=set)
    calls: int = 0

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        self.calls += 1
        if self.poison.intersection(event.id for event in events):
            raise OverflowError
        return await super().publish(events)


def test_an_event_for_which_publish_raises_is_refused_alone() -> None:
    async def scenario() -> None:
        broker = Raising(VirtualClock(), {}, poison={"bad"})
        done = await publish_some(broker, "bad", "b", "c", "d")
        assert sorted(name for name, _ in broker.taken) == ["b", "c", "d"]
        assert [(one.stored.event.id, one.attempts) for one in done.parked] == [("bad", 3)]

    asyncio.run(scenario())


def test_nothing_is_parked_where_publish_raises_for_all() -> None:
    async def scenario() -> None:
        names = ["a", "b", "c", "d"]
        broker = Raising(VirtualClock(), {}, poison=set(names))
        with pytest.raises(TimeIsUp):
            await publish_some(broker, *names, is_patient=True)
        minutes = 60
        assert broker.calls < 4 * minutes, "events are sent apart once a minute at most"

    asyncio.run(scenario())
