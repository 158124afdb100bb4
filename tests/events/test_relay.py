"""The relay on every store with an outbox: what is committed is published, once each where nothing fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from semel import SHARED, AsyncSemel
from semel.core.events.outbox import (
    EventsPeeked,
    LagMeasured,
    MeasureLag,
    OpenCursor,
    PeekEvents,
    ReadEvents,
    SaveCursor,
    StreamPart,
)
from semel.core.flow import Flow, ask
from semel.engine.engine import engine_of
from semel.errors import EventInvalid, RecordNotFound, UsageError
from semel.events import Backoff, Outbox, Relay
from tests.events.places import JOINING, PLACES, Broker, Place, add, an_event

pytestmark = pytest.mark.slow
NO_PAUSE = Backoff(first=0, most=0)
everywhere = pytest.mark.parametrize("place", PLACES, indirect=True)
in_order = pytest.mark.parametrize("place", ["memory", *JOINING], indirect=True)
"""Where events without an ordering key have an order: DynamoDB spreads them over places of its index."""
joining = pytest.mark.parametrize("place", JOINING, indirect=True)


def play(place: Place, scenario: Callable[[Place], Awaitable[None]]) -> None:
    """Run a scenario, and close what it opened."""

    async def played() -> None:
        try:
            async with asyncio.timeout(60):
                await scenario(place)
        finally:
            await place.close()

    asyncio.run(played())


def relay_on(semel: AsyncSemel, broker: Any, **settings: Any) -> Relay:
    return Relay(Outbox(semel), broker, **{"backoff": NO_PAUSE, **settings})


@in_order
def test_what_was_added_is_published_once_and_in_order(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        names = [f"e{number}" for number in range(7)]
        await add(Outbox(semel), *names)
        relay = relay_on(semel, broker, batch=3)
        assert await relay.run_once() == 7
        assert await relay.run_once() == 0, "there is nothing new"
        await add(Outbox(semel), "later")
        assert await relay_on(place.semel(), broker).run_once() == 1, "another relay goes on where the first ended"
        assert broker.got == [*names, "later"]

    play(place, scenario)


@everywhere
def test_an_event_arrives_as_it_was_added(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        events = [
            an_event("json", subject="ä", data={"a": [1, 2.5, None]}, extensions={"tenant": "acme", "n": 3}),
            an_event("bytes", data=b"\x00\xff", datacontenttype="image/png", dataschema="https://example.com/s"),
            an_event("nothing", data=None),
        ]
        for event in events:
            assert await Outbox(semel).add(event, autonomous=True) == event
        await relay_on(semel, broker).run_once()
        assert broker.events == events

    play(place, scenario)


@everywhere
def test_streams_have_relays_of_their_own(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        await add(Outbox(semel, "one"), "a")
        await add(Outbox(semel, "two"), "b")
        assert await Relay(Outbox(semel, "two"), broker).run_once() == 1
        assert broker.got == ["b"]

    play(place, scenario)


@joining
def test_a_rolled_back_event_is_never_published(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        await relay_on(semel, broker).run_once()  # the tables are there
        caller = await place.caller()
        await caller.begin()
        await add(Outbox(semel), "gone", within=caller.thing)
        await caller.rollback()
        await caller.begin()
        await add(Outbox(semel), "kept", within=caller.thing)
        await caller.sql("SAVEPOINT here")
        await add(Outbox(semel), "half", within=caller.thing)
        await caller.sql("ROLLBACK TO SAVEPOINT here")
        await caller.commit()
        await relay_on(semel, broker).run_once()
        assert broker.got == ["kept"]

    play(place, scenario)


@joining
def test_events_of_a_handler_ride_on_its_completion_and_a_replay_adds_none(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        outbox = Outbox(semel)
        await relay_on(semel, broker).run_once()
        caller = await place.caller()

        async def handler() -> str:
            await outbox.add(an_event("", id=""), name="first")
            await outbox.add(an_event("", id=""), name="second")
            return "done"

        for _ in range(2):
            await caller.begin()
            await semel.within(caller.thing).run("k", handler, operation="place", fingerprint=None)
            await caller.commit()
        await relay_on(semel, broker).run_once()
        assert len(broker.got) == len(set(broker.got)) == 2
        assert broker.got == [engine_key(semel, "k").derive(f"event:{name}") for name in ("first", "second")]

    play(place, scenario)


@joining
def test_an_event_of_a_handler_goes_with_a_savepoint_where_it_is_written_at_once(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        outbox = Outbox(semel)
        await relay_on(semel, broker).run_once()
        caller = await place.caller()

        async def handler() -> None:
            for name, ending in (("gone", "ROLLBACK TO SAVEPOINT here"), ("kept", "RELEASE SAVEPOINT here")):
                await caller.sql("SAVEPOINT here")
                await outbox.add(an_event("", id=""), name=name, within=caller.thing)
                await caller.sql(ending)

        await caller.begin()
        await semel.within(caller.thing).run("k", handler, operation="place", fingerprint=None)
        await caller.commit()
        await relay_on(semel, broker).run_once()
        assert broker.got == [engine_key(semel, "k").derive("event:kept")]

    play(place, scenario)


@pytest.mark.parametrize("ending", ["completed", "failed"])
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_an_event_that_is_added_after_its_handler_has_ended_is_refused(place: Place, ending: str) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        outbox, has_ended, late = Outbox(semel), asyncio.Event(), list[asyncio.Task[Any]]()
        await relay_on(semel, broker).run_once()
        caller = await place.caller()

        async def add_late() -> None:
            await has_ended.wait()
            await outbox.add(an_event("", id=""), name="late")

        async def handler() -> None:
            late.append(asyncio.create_task(add_late()))
            if ending == "failed":
                raise ValueError
            await outbox.add(an_event("in time"))

        await caller.begin()
        with suppress(ValueError):
            await semel.within(caller.thing).run("k", handler, operation="place", fingerprint=None)
        has_ended.set()
        with pytest.raises(UsageError, match="after its handler had ended"):
            await late[0]
        await caller.commit()
        await relay_on(semel, broker).run_once()
        assert broker.got == (["in time"] if ending == "completed" else [])

    play(place, scenario)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_an_event_that_was_refused_can_be_added_corrected_under_its_name(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        outbox = Outbox(semel)
        await relay_on(semel, broker).run_once()
        caller = await place.caller()

        async def handler() -> None:
            with pytest.raises(EventInvalid):
                await outbox.add(an_event("", id="", data=object()))
            await outbox.add(an_event("", id=""))

        await caller.begin()
        await semel.within(caller.thing).run("k", handler, operation="place", fingerprint=None)
        await caller.commit()
        assert await relay_on(semel, broker).run_once() == 1

    play(place, scenario)


def engine_key(semel: AsyncSemel, value: str) -> Any:
    return engine_of(semel).identity(value, "place", SHARED)


@pytest.mark.parametrize("place", ["postgresql", "mariadb"], indirect=True)
def test_two_transactions_that_commit_in_reverse_order_lose_nothing(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        relay = relay_on(semel, broker)
        await relay.run_once()
        first, second = await place.caller(), await place.caller()
        await first.begin()
        await add(Outbox(semel), "first", within=first.thing)
        await second.begin()
        await add(Outbox(semel), "second", within=second.thing)
        await second.commit()
        assert await relay.run_once() == 1
        await add(Outbox(semel), "third")
        assert await relay.run_once() == 1, "one that stays open holds up no other"
        await first.commit()
        assert await relay.run_once() == 1
        assert broker.got == ["second", "third", "first"]

    play(place, scenario)


@everywhere
def test_a_refused_event_is_parked_with_its_cause_and_others_go_on(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        broker = Broker(refused={"bad": ValueError("too large")})
        await add(Outbox(semel), "a", "bad", "b")
        relay = relay_on(semel, broker, max_attempts=2)
        assert await relay.run_once() == 2
        (parked,) = [one async for one in relay.parked()]
        assert (parked.event.id, parked.attempts, parked.ordering_key) == ("bad", 2, None)
        assert parked.error is not None
        assert (parked.error.type, parked.error.message) == ("builtins.ValueError", "too large")
        assert await relay.run_once() == 0, "it is not tried again by itself"
        broker.refused.clear()
        assert await relay.release(parked.position) == 1
        assert await relay.run_once() == 1
        assert [one async for one in relay.parked()] == []
        assert sorted(broker.got) == ["a", "b", "bad"]

    play(place, scenario)


@everywhere
def test_a_parked_event_holds_its_key_and_no_other(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        broker = Broker(refused={"a1": ValueError("no")})
        outbox = Outbox(semel)
        await add(outbox, "a1", "a2", ordering_key="a")
        await add(outbox, "b1", ordering_key="b")
        relay = relay_on(semel, broker, max_attempts=1)
        assert await relay.run_once() == 1
        await add(outbox, "a3", ordering_key="a")
        await add(outbox, "b2", ordering_key="b")
        assert await relay_on(place.semel(), broker).run_once() == 1, "another relay knows that the key is held"
        assert [(one.event.id, one.error is None) async for one in relay.parked()] == [
            ("a1", False),
            ("a2", True),
            ("a3", True),
        ]
        broker.refused.clear()
        await relay.release()
        await add(outbox, "a4", ordering_key="a")
        assert await relay.run_once() == 4
        assert broker.got == ["b1", "b2", "a1", "a2", "a3", "a4"]

    play(place, scenario)


@everywhere
def test_a_discarded_event_lets_those_behind_it_go_on(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        broker = Broker(refused={"a1": ValueError("no")})
        await add(Outbox(semel), "a1", "a2", ordering_key="a")
        relay = relay_on(semel, broker, max_attempts=1)
        await relay.run_once()
        first, second = [one async for one in relay.parked()]
        with pytest.raises(RecordNotFound):
            await relay.release(second.position)
        await relay.discard(first.position)
        assert await relay.run_once() == 1
        assert broker.got == ["a2"]
        with pytest.raises(RecordNotFound):
            await relay.discard(first.position)

    play(place, scenario)


@everywhere
def test_a_released_event_that_fails_again_is_parked_again(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        broker = Broker(refused={"a1": ValueError("no")})
        await add(Outbox(semel), "a1", "a2", ordering_key="a")
        relay = relay_on(semel, broker, max_attempts=1)
        await relay.run_once()
        await relay.release()
        assert await relay.run_once() == 0
        parked = [(one.event.id, one.attempts, one.error is not None) async for one in relay.parked()]
        assert parked == [("a1", 2, True), ("a2", 0, False)]

    play(place, scenario)


@everywhere
def test_events_of_one_key_are_never_on_their_way_together(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        together: list[list[str]] = []

        async def look(events: Any) -> None:
            together.append([event.id for event in events])

        broker = Broker(before=look)
        outbox = Outbox(semel)
        for number in range(3):
            await add(outbox, f"a{number}", ordering_key="a")
            await add(outbox, f"b{number}", ordering_key="b")
        await relay_on(semel, broker).run_once()
        assert together == [["a0", "b0"], ["a1", "b1"], ["a2", "b2"]]

    play(place, scenario)


@everywhere
def test_no_more_events_are_on_their_way_than_allowed(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        await add(Outbox(semel), *[f"e{number}" for number in range(10)])
        await relay_on(semel, broker, in_flight=4).run_once()
        assert broker.calls == [4, 4, 2]

    play(place, scenario)


@everywhere
def test_a_broker_that_cannot_be_reached_parks_nothing_and_loses_nothing(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        broker = Broker(refused={"a": ConnectionResetError("gone")})
        await add(Outbox(semel), "a")
        relay = relay_on(semel, broker, max_attempts=3)
        with pytest.raises(ConnectionResetError):
            await relay.run_once()
        assert broker.calls == [1, 1, 1]
        broker.refused.clear()
        assert await relay.run_once() == 1
        assert [one async for one in relay.parked()] == []

    play(place, scenario)


@everywhere
def test_what_was_published_and_not_saved_is_published_again(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, other = place.semel(), place.semel()
        part = StreamPart("default")

        async def take_over(_events: Any) -> None:
            # Another relay opens the part while these are on their way, as if the claim had lapsed.
            await relay_on(other, broker)._ask(OpenCursor(part, bytes(16)))

        broker = Broker(before=take_over)
        await add(Outbox(semel), "a", "b")
        assert await relay_on(semel, broker).run_once() == 0, "it was overtaken, and saved nothing"
        broker.before = None
        assert await relay_on(other, broker).run_once() == 2
        assert broker.got == ["a", "b", "a", "b"]

    play(place, scenario)


@everywhere
def test_a_part_that_another_relay_has_is_left_alone(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, other = place.semel(), place.semel()
        entered, leave = asyncio.Event(), asyncio.Event()

        async def wait(_events: Any) -> None:
            entered.set()
            await leave.wait()

        slow, quick = Broker(before=wait), Broker()
        await add(Outbox(semel), "a")
        running = asyncio.create_task(relay_on(semel, slow).run_once())
        await entered.wait()
        assert await relay_on(other, quick).run_once() == 0
        leave.set()
        assert await running == 1
        assert await relay_on(other, quick).run_once() == 0
        assert (slow.got, quick.got) == (["a"], [])

    play(place, scenario)


@everywhere
def test_a_stream_in_parts_is_published_once_whatever_the_division(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        names = [f"e{number}" for number in range(40)]
        await add(Outbox(semel), *names)
        assert await relay_on(semel, broker, parts=4, batch=3).run_once() == 40
        await add(Outbox(semel), "later")
        assert await relay_on(semel, broker, parts=1).run_once() == 1
        await add(Outbox(semel), "last")
        assert await relay_on(semel, broker, parts=3).run_once() == 1
        assert await relay_on(semel, broker, parts=4).run_once() == 0
        assert sorted(broker.got) == sorted([*names, "later", "last"])

    play(place, scenario)


@everywhere
def test_a_running_relay_publishes_what_is_added_until_it_is_stopped(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        arrived = asyncio.Event()

        async def note(_events: Any) -> None:
            arrived.set()

        broker = Broker(before=note)
        relay = relay_on(semel, broker)
        running = asyncio.create_task(relay.run())
        await add(Outbox(semel), "a")
        await arrived.wait()
        relay.stop()
        await running
        assert broker.got == ["a"]
        assert await relay_on(place.semel(), broker).run_once() == 0, "it was saved, and the part given back"

    play(place, scenario)


@everywhere
def test_claims_of_relays_are_in_no_list_unless_asked_for(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        await relay_on(semel, Broker()).run_once()
        assert [record async for record in semel.records()] == []
        assert await semel.counts(scan=True) == []
        assert await semel.count(scan=True) == 0
        assert len([record async for record in semel.records(operation="semel:relay")]) == 1

    play(place, scenario)


@pytest.mark.parametrize("place", ["memory", "sqlite", "postgresql"], indirect=True)
def test_published_events_are_deleted_after_a_while(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker(refused={"parked": ValueError("no")})
        await add(Outbox(semel), "a", "parked")
        relay = relay_on(semel, broker, max_attempts=1, keep_for=timedelta(0))
        await relay.run_once()
        await relay.run_once()
        await add(Outbox(semel), "new")
        assert await relay.purge() == 2
        assert await relay.run_once() == 1, "what is not published is kept"
        assert [one.event.id async for one in relay.parked()] == ["parked"]

    play(place, scenario)


@pytest.mark.parametrize("place", ["memory"], indirect=True)
def test_a_publisher_has_to_answer_for_each_event(place: Place) -> None:
    class Silent:
        async def publish(self, events: Any) -> list[Exception | None]:
            del events
            return []

    async def scenario(place: Place) -> None:
        semel = place.semel()
        await add(Outbox(semel), "a")
        with pytest.raises(UsageError, match="1 events and answered for 0"):
            await relay_on(semel, Silent()).run_once()

    play(place, scenario)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([True], "answered with a bool"),
        (["no"], "answered with a str"),
        (None, "gave a NoneType"),
        ({"a": None}, "gave a dict"),
    ],
    ids=str,
)
@pytest.mark.parametrize("place", ["memory"], indirect=True)
def test_nothing_is_taken_for_an_answer_that_is_none(place: Place, answer: Any, said: str) -> None:
    """As what a client gives for a success: an event would be parked although it was published."""

    class Wordy:
        async def publish(self, events: Any) -> Any:
            del events
            return answer

    async def scenario(place: Place) -> None:
        semel = place.semel()
        await add(Outbox(semel), "a")
        with pytest.raises(UsageError, match=f"1 events and {said}"):
            await relay_on(semel, Wordy(), max_attempts=1).run_once()
        assert [one async for one in relay_on(semel, Wordy()).parked()] == []
        assert await relay_on(semel, Broker()).run_once() == 1

    play(place, scenario)


@pytest.mark.parametrize("place", ["memory"], indirect=True)
def test_a_publisher_that_cannot_be_awaited_ends_the_relay(place: Place) -> None:
    class Hasty:
        def publish(self, events: Any) -> list[Exception | None]:
            return [None] * len(events)

    async def scenario(place: Place) -> None:
        semel = place.semel()
        await add(Outbox(semel), "a")
        with pytest.raises(UsageError, match="async def"):
            await relay_on(semel, Hasty()).run_once()

    play(place, scenario)


async def lag_of(semel: AsyncSemel, stream: str | None = "default", most: int = 1000) -> LagMeasured:
    def flow() -> Flow[LagMeasured]:
        measured: LagMeasured = yield from ask(MeasureLag(stream, most))
        return measured

    return await engine_of(semel).perform_on(None, flow())


async def waiting_in(semel: AsyncSemel, stream: str = "default", limit: int = 1000) -> list[str]:
    def flow() -> Flow[EventsPeeked]:
        peeked: EventsPeeked = yield from ask(PeekEvents(stream, limit))
        return peeked

    peeked = await engine_of(semel).perform_on(None, flow())
    assert [stored.position for stored in peeked.events] == sorted(stored.position for stored in peeked.events)
    return [stored.event.id for stored in peeked.events]


@everywhere
def test_the_lag_counts_what_waits_and_what_is_parked(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        assert (await lag_of(semel)).streams == ()
        await add(Outbox(semel), "a", "bad", "b")
        measured = await lag_of(semel)
        (lag,) = measured.streams
        assert (lag.stream, lag.waiting, lag.parked, lag.failed, lag.parts) == ("default", 3, 0, 0, ())
        assert lag.oldest_us is not None
        assert 0 <= measured.now_us - lag.oldest_us < 60_000_000
        broker = Broker(refused={"bad": ValueError("no")})
        await relay_on(semel, broker, max_attempts=1).run_once()
        await add(Outbox(semel), "c")
        measured = await lag_of(semel)
        (lag,) = measured.streams
        assert (lag.waiting, lag.parked, lag.failed) == (1, 1, 1)
        (part,) = lag.parts
        assert part.part == StreamPart("default")
        assert 0 <= measured.now_us - part.saved_us < 60_000_000

    play(place, scenario)


@everywhere
def test_the_lag_is_told_for_each_stream_by_name(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        await add(Outbox(semel, "two"), "x", "y")
        await add(Outbox(semel, "one"), "z")
        await Relay(Outbox(semel, "one"), Broker()).run_once()
        measured = await lag_of(semel, None)
        assert [(lag.stream, lag.waiting) for lag in measured.streams] == [("one", 0), ("two", 2)]
        assert [lag.stream for lag in (await lag_of(semel, "two")).streams] == ["two"]
        assert (await lag_of(semel, "three")).streams == ()

    play(place, scenario)


@everywhere
def test_the_lag_counts_no_further_than_it_was_asked_to(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        await add(Outbox(semel), *[f"e{number}" for number in range(5)])
        assert [lag.waiting for lag in (await lag_of(semel, most=3)).streams] == [3]

    play(place, scenario)


@everywhere
def test_what_waits_can_be_looked_at_and_is_published_all_the_same(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        await add(Outbox(semel), "a", "b", "c")
        assert await waiting_in(semel, limit=2) == ["a", "b"]
        assert await waiting_in(semel) == ["a", "b", "c"], "looking moves nothing"
        relay = relay_on(semel, broker)
        assert await relay.run_once() == 3
        assert await waiting_in(semel) == []
        await add(Outbox(semel), "d")
        assert await waiting_in(semel) == ["d"]
        assert await relay.run_once() == 1
        assert broker.got == ["a", "b", "c", "d"]

    play(place, scenario)


@everywhere
def test_the_lag_is_right_in_the_middle_of_a_stream_whatever_its_division(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, other = place.semel(), place.semel()
        names = [f"e{number}" for number in range(40)]
        await add(Outbox(semel), *names)
        seen: list[list[str]] = []

        async def look(_events: Any) -> None:
            seen.append(await waiting_in(other))

        broker = Broker(before=look)
        await relay_on(semel, broker, parts=4, batch=3).run_once()
        published: list[str] = []
        for sent, waited in zip(broker.calls, seen, strict=True):
            # Saved is what was sent before; one batch may be on its way.
            assert set(names) - set(waited) <= set(published), "what was not published does not count as such"
            published += broker.got[len(published) : len(published) + sent]
        assert min(map(len, seen)) <= 5, "it shrinks as parts are saved"
        await add(Outbox(semel), "later")
        assert await waiting_in(semel) == ["later"]
        await relay_on(semel, broker, parts=1).run_once()
        assert await waiting_in(semel) == []

    play(place, scenario)


@pytest.mark.parametrize("place", ["postgresql", "mariadb"], indirect=True)
def test_an_event_that_commits_late_waits_and_one_that_is_not_committed_does_not(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        relay = relay_on(semel, broker)
        await relay.run_once()
        caller = await place.caller()
        await caller.begin()
        await add(Outbox(semel), "late", within=caller.thing)
        # So many rounds lift the position at which a relay begins to read above that of the late one.
        for number in range(4):
            await add(Outbox(semel), f"e{number}")
            await relay.run_once()
        assert await waiting_in(semel) == []
        await caller.commit()
        assert await waiting_in(semel) == ["late"]
        assert [lag.waiting for lag in (await lag_of(semel)).streams] == [1]
        assert await relay.run_once() == 1
        assert await waiting_in(semel) == []

    play(place, scenario)


@everywhere
def test_an_event_is_erased_by_the_scope_that_was_given(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        outbox = Outbox(semel)
        await add(outbox, "mine", scope="acme")
        await add(outbox, "shared")
        assert await outbox.erase(scope="acme") == 1
        assert await outbox.erase(scope="acme") == 0
        await relay_on(semel, broker).run_once()
        assert broker.got == ["shared"]

    play(place, scenario)


@joining
def test_an_event_of_a_handler_has_the_scope_of_its_key(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker()
        outbox = Outbox(semel)
        await relay_on(semel, broker).run_once()
        caller = await place.caller()

        async def handler() -> str:
            await outbox.add(an_event("", id=""))
            return "done"

        for scope in ("acme", "other"):
            await caller.begin()
            within = semel.within(caller.thing)
            await within.run("k", handler, operation="place", fingerprint=None, scope=scope)
            await caller.commit()
        assert await outbox.erase(scope="acme") == 1
        assert await relay_on(semel, broker).run_once() == 1, "that of the other scope is left"

    play(place, scenario)


@everywhere
def test_events_about_a_subject_are_erased_in_one_stream_or_in_all(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        for stream in ("one", "two"):
            for subject in ("asset-1", "asset-2"):
                event = an_event(f"{stream} {subject}", subject=subject)
                await Outbox(semel, stream).add(event, autonomous=True)
        assert await Outbox(semel, "one").erase(subject="asset-1") == 1
        assert await Outbox(semel, "one").erase(subject="asset-2", every_stream=True) == 2
        broker = Broker()
        for stream in ("one", "two"):
            await Relay(Outbox(semel, stream), broker).run_once()
        assert broker.got == ["two asset-1"]

    play(place, scenario)


@in_order  # the clock of DynamoDB is known to the second only; its contract has a virtual one
def test_a_parked_event_expires_only_where_the_relay_is_told_so(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, broker = place.semel(), Broker(refused={"a1": ValueError("no")})
        await add(Outbox(semel), "a1", "a2", ordering_key="a")
        relay = relay_on(semel, broker, max_attempts=1)
        await relay.run_once()
        await relay.purge()
        assert len([one async for one in relay.parked()]) == 2
        await relay_on(semel, broker, keep_parked_for=0.000001).purge()
        assert [one.event.id async for one in relay.parked()] == ["a2"]
        assert await relay.run_once() == 1
        assert broker.got == ["a2"]

    play(place, scenario)


@pytest.mark.parametrize("place", ["memory"], indirect=True)
def test_nothing_is_erased_without_a_scope_or_a_subject(place: Place) -> None:
    async def scenario(place: Place) -> None:
        with pytest.raises(UsageError, match="a subject or a scope"):
            Outbox(place.semel()).erase()

    play(place, scenario)


@pytest.mark.parametrize("place", ["postgresql", "mariadb"], indirect=True)
def test_what_commits_late_is_read_before_what_follows_it_in_its_key(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        outbox, relay = Outbox(semel), relay_on(semel, Broker())
        await relay.run_once()
        late = await place.caller()
        await late.begin()
        await add(outbox, "a1", within=late.thing, ordering_key="a")
        await add(outbox, "b", "c")
        cursor = (await relay._ask(OpenCursor(StreamPart("default"), bytes(16)))).cursor
        batch = await relay._ask(ReadEvents(cursor, 2))
        assert batch.may_read_on, "the batch is full"
        await late.commit()
        await add(outbox, "a2", "a3", "a4", ordering_key="a")
        got: list[str] = []
        for _ in range(10):
            got += [stored.event.id for stored in batch.events]
            ahead = await relay._ask(ReadEvents(batch.cursor, 2)) if batch.may_read_on else None
            published = tuple(stored.position for stored in batch.events)
            cursor = (await relay._ask(SaveCursor(batch.cursor.following(cursor), published))).cursor
            batch = ahead or await relay._ask(ReadEvents(cursor, 2))
        assert got == ["b", "c", "a1", "a2", "a3", "a4"]

    play(place, scenario)


@everywhere
def test_a_relay_that_was_overtaken_reads_nothing_any_more(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel, other = place.semel(), place.semel()
        outbox, broker = Outbox(semel), Broker(refused={"a1": ValueError("no")})
        overtaken = relay_on(semel, broker)
        cursor = (await overtaken._ask(OpenCursor(StreamPart("default"), bytes(16)))).cursor
        await add(outbox, "a1", "a2", ordering_key="a")
        await relay_on(other, broker, max_attempts=1).run_once()
        await add(outbox, "a3", ordering_key="a")
        batch = await overtaken._ask(ReadEvents(cursor, 10))
        read = [stored.event.id for stored in batch.events]
        assert read == [], "it does not know what was parked since"

    play(place, scenario)


@everywhere
def test_what_its_destination_does_not_take_is_set_aside_and_published_in_order_later(place: Place) -> None:
    async def scenario(place: Place) -> None:
        semel = place.semel()
        broker = Broker(refused={"a1": OSError("the queue is full")})
        await add(Outbox(semel), "a1", "a2", ordering_key="a")
        await add(Outbox(semel), "b")
        relay = relay_on(semel, broker, max_attempts=2)
        await relay.run_once()
        assert broker.got == ["b"]
        assert sorted([(one.event.id, one.error) async for one in relay.parked()]) == [("a1", None), ("a2", None)]
        await add(Outbox(semel), "a3", ordering_key="a")
        assert await relay.run_once() == 0, "it is still full"
        broker.refused.clear()
        assert await relay.run_once() == 3
        assert broker.got == ["b", "a1", "a2", "a3"]
        assert [one async for one in relay.parked()] == []

    play(place, scenario)


@pytest.mark.parametrize("place", ["memory"], indirect=True)
def test_a_relay_that_was_stopped_can_publish_once_more(place: Place) -> None:
    async def scenario(place: Place) -> None:
        broker = Broker()
        relay = relay_on(place.semel(), broker)
        relay.stop()
        await add(relay.outbox, "a")
        assert await relay.run_once() == 1

    play(place, scenario)
