"""The broker of the test kit: every fault happens to every event, the same each time, and consumers bear it or not."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from semel.errors import UsageError
from semel.events import Backoff, Consumer, Event, Outbox, Relay
from semel.stores.memory import MemoryStore
from semel.testing import DeliveryReport, FaultyBroker, VirtualClock

EVENTS = [Event(id=f"e-{number}", type="moved", source="/test", subject="pump", data=number) for number in range(5)]
FAULTS = {"duplicate": 5, "lost_ack": 5, "crash": 5}


def write_down(seen: list[str]) -> Callable[[Event], None]:
    def moved(event: Event) -> None:
        seen.append(event.id)

    return moved


def write_down_async(seen: list[str]) -> Any:
    async def moved(event: Event) -> None:
        seen.append(event.id)

    return moved


def deliver(clock: VirtualClock, broker: FaultyBroker, seen: list[str], *, is_async: bool, **settings: Any) -> Any:
    """Deliver to a consumer on a store in memory; gives the report and the consumer's dead letters."""
    store = MemoryStore(clock=clock.store_clock)
    if not is_async:
        semel = Semel(store, clock=clock)
        consumer = Consumer(semel, "billing", **settings)
        consumer.on("moved")(write_down(seen))
        with semel:
            return broker.deliver(consumer), list(consumer.dead_letters())

    async def run() -> Any:
        async with AsyncSemel(store, clock=clock) as semel:
            consumer = Consumer(semel, "billing", **settings)
            consumer.on("moved")(write_down_async(seen))
            return await broker.deliver(consumer), [letter async for letter in consumer.dead_letters()]

    return asyncio.run(run())


@pytest.fixture(params=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "async")


def test_every_event_suffers_every_fault_and_is_settled(
    semel_clock: VirtualClock, semel_broker: FaultyBroker, *, is_async: bool
) -> None:
    seen: list[str] = []
    semel_broker.send(*EVENTS)
    report, letters = deliver(semel_clock, semel_broker, seen, is_async=is_async)
    assert report.faults == FAULTS
    assert letters == report.dead == []
    assert (report.statuses["processed"], report.statuses["crashed"]) == (5, 5)
    assert report.statuses["duplicate"] >= 10, "what is repeated, and what was acknowledged in vain"
    assert {seen.count(event.id) for event in EVENTS} == {1, 2}, "only a crash has an effect happen again"


def test_without_crashes_an_effect_happens_once(semel_clock: VirtualClock, *, is_async: bool) -> None:
    seen: list[str] = []
    broker = FaultyBroker(semel_clock, faults=["duplicate", "lost_ack"])
    broker.send(*EVENTS)
    report, _ = deliver(semel_clock, broker, seen, is_async=is_async)
    assert sorted(seen) == [event.id for event in EVENTS]
    assert report.faults == {"duplicate": 5, "lost_ack": 5}


def test_a_consumer_without_an_inbox_is_caught(*, is_async: bool) -> None:
    seen: list[str] = []
    broker = FaultyBroker(faults=["duplicate", "lost_ack"])
    broker.send(*EVENTS)
    if is_async:
        asyncio.run(broker.deliver(write_down_async(seen)))
    else:
        broker.deliver(write_down(seen))
    assert all(seen.count(event.id) == 3 for event in EVENTS), "each repeat had its effect"


def test_in_a_transaction_an_effect_happens_once_whatever_happens(tmp_path: Path) -> None:
    path = tmp_path / "meter.db"

    @contextmanager
    def transaction() -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(path)) as connection, connection:
            yield connection

    with transaction() as session:
        session.execute("CREATE TABLE moved (id TEXT)")
    broker = FaultyBroker()
    broker.send(*EVENTS)
    with Semel(f"sqlite:///{path}") as semel:
        consumer = Consumer(semel, "billing", transaction=transaction)

        @consumer.on("moved")
        def moved(event: Event, session: sqlite3.Connection) -> None:
            session.execute("INSERT INTO moved VALUES (?)", [event.id])

        report = broker.deliver(consumer)
    with transaction() as session:
        found = [id_ for (id_,) in session.execute("SELECT id FROM moved ORDER BY id")]
    assert found == [event.id for event in EVENTS]
    assert report.faults == FAULTS


def run_once(seed: int) -> tuple[list[str], DeliveryReport]:
    clock, seen = VirtualClock(), list[str]()
    broker = FaultyBroker(clock, seed=seed)
    broker.send(*EVENTS)
    report, _ = deliver(clock, broker, seen, is_async=False)
    return seen, report


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    assert run_once(1) == run_once(1)
    assert len({tuple(run_once(seed)[0]) for seed in range(5)}) > 1


def test_events_are_reordered_unless_they_are_not_to_be() -> None:
    order: list[str] = []
    for reorders in (False, True):
        broker = FaultyBroker(faults=[], reorders=reorders)
        broker.send(*EVENTS)
        order.clear()
        broker.deliver(write_down(order))
        assert (order == [event.id for event in EVENTS]) is not reorders


def test_an_event_that_is_given_up_is_not_delivered_for_ever(semel_clock: VirtualClock, *, is_async: bool) -> None:
    broker = FaultyBroker(semel_clock)
    broker.send(*EVENTS)
    report, letters = deliver(semel_clock, broker, [], is_async=is_async, max_attempts=1)
    assert len(letters) == 5 - report.statuses["processed"]
    assert {event.id for event in report.dead} == {letter.event.id for letter in letters}
    assert letters, "no event met the crash before it was processed"


def test_an_event_that_nobody_ends_fails_the_test() -> None:
    def refuse(_event: Event) -> None:
        raise OSError("never")

    broker = FaultyBroker()
    broker.send(EVENTS[0])
    with pytest.raises(AssertionError, match="e-0 after 100 deliveries"):
        broker.deliver(refuse)


def test_each_consumer_gets_every_event_also_those_that_are_sent_later() -> None:
    first, second = list[str](), list[str]()
    broker = FaultyBroker(faults=[], reorders=False)
    broker.send(EVENTS[0])
    take = write_down(first)
    broker.deliver(take)
    broker.send(EVENTS[1])
    broker.deliver(take)

    def take_all(event: Event) -> None:
        second.append(event.id)

    broker.deliver(take_all)
    assert first == second == ["e-0", "e-1"]


def test_a_relay_publishes_again_what_was_not_confirmed_and_the_inbox_bears_it() -> None:
    seen: list[str] = []
    clock = VirtualClock()

    async def run() -> tuple[FaultyBroker, DeliveryReport]:
        broker = FaultyBroker(clock, faults=["lost_confirm"])
        async with AsyncSemel(MemoryStore(clock=clock.store_clock), clock=clock) as semel:
            outbox = Outbox(semel)
            for event in EVENTS:
                await outbox.add(event, autonomous=True)
            assert await Relay(outbox, broker, backoff=Backoff(0, 0)).run_once() == 5
            consumer = Consumer(semel, "billing")
            consumer.on("moved")(write_down_async(seen))
            return broker, await broker.deliver(consumer)

    broker, report = asyncio.run(run())
    assert len(broker.events) == 10, "each was published twice"
    assert report.statuses == {"processed": 5, "duplicate": 5}
    assert sorted(seen) == [event.id for event in EVENTS]


def test_a_fault_that_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="lost_ack"):
        FaultyBroker(faults=["lost"])  # type: ignore[list-item]
