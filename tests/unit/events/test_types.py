"""What type checkers see of events. mypy reads `assert_type`; pytest runs the same lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, assert_type

import pytest

from semel import AsyncSemel, Semel
from semel.errors import RecordNotFound
from semel.events import Consumer, DeadLetter, Disposition, Event, Outbox, RedriveReport, Relay
from semel.stores.memory import MemoryStore

NO_LETTER = "0" * 128


def an_event() -> Event:
    return Event(type="registered", source="/s", id="e-1")


def test_consumers_of_threads_give_what_they_say() -> None:
    consumer = Consumer(Semel(MemoryStore()), "billing")
    assert_type(consumer, Consumer[Semel])

    @consumer.on("registered")
    def registered(event: Event) -> int:
        return len(event.id)

    assert_type(registered(an_event()), int)
    assert_type(consumer.handle(an_event()), Disposition)
    assert_type(consumer.receive({}, b""), Disposition)
    assert_type(consumer.failed(an_event(), OSError()), Disposition)
    assert_type(consumer.dead_letters(reason="invalid"), Iterator[DeadLetter])
    assert_type(consumer.redrive(reason="exhausted", rate=100), RedriveReport)
    with pytest.raises(RecordNotFound):
        assert_type(consumer.redrive(NO_LETTER), Disposition)
    with pytest.raises(RecordNotFound):
        assert_type(consumer.discard(NO_LETTER, reason="old"), DeadLetter)


def test_consumers_of_loops_are_awaited() -> None:
    async def main() -> None:
        consumer = Consumer(AsyncSemel(MemoryStore()), "billing")
        assert_type(consumer, Consumer[AsyncSemel])

        @consumer.on("registered")
        async def registered(event: Event) -> int:
            return len(event.id)

        assert_type(await registered(an_event()), int)
        handling = consumer.handle(an_event())
        assert_type(handling, Awaitable[Disposition])
        assert_type(await handling, Disposition)
        assert_type(await consumer.receive({}, b""), Disposition)
        assert_type(await consumer.failed(an_event(), OSError()), Disposition)
        letters = consumer.dead_letters(type="registered")
        assert_type(letters, AsyncIterator[DeadLetter])
        async for letter in letters:
            assert_type(letter, DeadLetter)
        assert_type(await consumer.redrive(reason="exhausted", rate=100), RedriveReport)
        with pytest.raises(RecordNotFound):
            assert_type(await consumer.redrive(NO_LETTER), Disposition)
        with pytest.raises(RecordNotFound):
            assert_type(await consumer.discard(NO_LETTER, reason="old"), DeadLetter)

    asyncio.run(main())


def test_a_handler_stays_the_function_that_it_was() -> None:
    consumer = Consumer(Semel(MemoryStore()), "billing")

    @consumer.on("registered")
    def registered(event: Event, data: dict[str, Any]) -> str:
        return event.id

    assert_type(consumer.handlers, dict[str, Callable[..., Any]])
    assert_type(registered(an_event(), {}), str)


def test_an_outbox_gives_the_event_and_is_awaited_where_the_engine_is() -> None:
    outbox = Outbox(Semel(MemoryStore()))
    assert_type(outbox, Outbox[Semel])
    assert_type(outbox.add(an_event(), autonomous=True), Event)
    assert_type(outbox.erase(subject="s"), int)

    async def main() -> None:
        awaited = Outbox(AsyncSemel(MemoryStore()))
        assert_type(awaited, Outbox[AsyncSemel])
        adding = awaited.add(an_event(), autonomous=True)
        assert_type(adding, Awaitable[Event])
        assert_type(await adding, Event)
        assert_type(await awaited.erase(subject="s"), int)
        relay = Relay(awaited, Nowhere())
        assert_type(await relay.run_once(), int)
        assert_type(await relay.purge(), int)

    asyncio.run(main())


class Nowhere:
    """A publisher that publishes nothing."""

    async def publish(self, events: Any) -> list[Exception | None]:
        return [None for _ in events]
