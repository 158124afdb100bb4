"""What an observer is told of events, batches and sweeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from semel import AsyncSemel, Semel, Signal
from semel.batch import Batches, Skip
from semel.events import Backoff, Consumer, Event, Outbox, Relay


class Ears:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []

    def observe(self, signal: Signal) -> None:
        self.signals.append(signal)

    def told(self, *kinds: str) -> list[tuple[str, str, str, int]]:
        return [
            (signal.kind, signal.operation, signal.detail, signal.number)
            for signal in self.signals
            if signal.kind in kinds
        ]


@pytest.fixture
def ears() -> Ears:
    return Ears()


def consumer_of(semel: Semel, **settings: Any) -> Consumer[Semel]:
    consumer = Consumer(semel, "billing", **settings)

    @consumer.on("paid")
    def paid(data: Any) -> None:
        if data == "bad":
            raise ValueError

    return consumer


def test_each_delivery_is_told_with_what_came_of_it(ears: Ears) -> None:
    with Semel("memory://", observer=ears) as semel:
        consumer = consumer_of(semel)
        event = Event(type="paid", source="/shop", id="e-1")
        consumer.handle(event)
        consumer.handle(event)
    assert ears.told("consumed", "dead_letter") == [
        ("consumed", "event:billing", "processed", 1),
        ("consumed", "event:billing", "duplicate", 1),
    ]


def test_a_dead_letter_is_told_once(ears: Ears) -> None:
    with Semel("memory://", observer=ears) as semel:
        consumer = consumer_of(semel, final_errors=(ValueError,))
        event = Event(type="paid", source="/shop", id="e-1", data="bad")
        consumer.handle(event)
        consumer.handle(event)
    assert ears.told("consumed", "dead_letter") == [
        ("consumed", "event:billing", "rejected", 1),
        ("dead_letter", "event:billing", "rejected", 1),
        ("consumed", "event:billing", "rejected", 1),
    ]


def test_what_is_no_event_is_told_as_a_dead_letter(ears: Ears) -> None:
    with Semel("memory://", observer=ears) as semel:
        consumer_of(semel).receive({}, b"{")
    assert ears.told("dead_letter") == [("dead_letter", "event:billing", "invalid", 1)]


def test_a_relay_tells_what_was_published_and_what_the_broker_refused(ears: Ears) -> None:
    class Broker:
        async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
            return [ValueError() if event.id == "bad" else None for event in events]

    async def main() -> None:
        async with AsyncSemel("memory://", observer=ears) as semel:
            outbox = Outbox(semel)
            for name in ("a", "bad", "c"):
                await outbox.add(Event(type="paid", source="/shop", id=name), autonomous=True)
            await Relay(outbox, Broker(), max_attempts=2, backoff=Backoff(first=0.001, most=0.001)).run_once()

    asyncio.run(main())
    assert ears.told("published", "parked", "publishing_failed") == [
        ("publishing_failed", "default", "ValueError", 1),
        ("published", "default", "", 2),
        ("parked", "default", "", 1),
    ]


def test_a_batch_tells_how_many_items_ended_how(ears: Ears) -> None:
    def pay(data: int) -> int:
        if data == 1:
            raise ValueError
        if data == 2:
            message = "not today"
            raise Skip(message)
        return data

    with Semel("memory://", observer=ears) as semel:
        Batches(semel).start("b-1", range(5), operation="bulk").run(pay, concurrency=1)
    ended = {"completed": 0, "failed": 0, "skipped": 0}
    for _, operation, status, number in ears.told("batch_items"):
        assert operation == "bulk"
        ended[status] += number
    assert ended == {"completed": 3, "failed": 1, "skipped": 1}


def test_a_sweep_is_told_when_it_has_ended(ears: Ears) -> None:
    with Semel("memory://", observer=ears) as semel:
        semel.sweep()
    detail = "deleted=0 lapsed=0 reconciled=0 held=0 invalidated=0"
    assert ears.told("swept") == [("swept", "", detail, 0)]
