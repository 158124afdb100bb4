"""Consumers and relays on PostgreSQL with a broker, each against the same client without semel.

Invariant: the messages of a round are in the broker, or in the outbox, before its clock starts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from bench.callers import Numbers, event_loop, in_tasks
from bench.event_servers import broker_address, events_of, fill_outbox, with_broker
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import database, execute
from bench.ways import CALLERS, PREFETCH, EventBridgeWay, NatsWay, RabbitmqWay, RedisWay, SqsWay, Way
from semel import AsyncSemel, Policy
from semel.events import Consumer, Event, Outbox, Relay
from semel.events.consumer import KEEP_FOR

_TABLE = "CREATE TABLE effect (subject text NOT NULL)"
INSERT = "INSERT INTO effect VALUES ($1)"
Prepare = Callable[[Path, Effort], AbstractContextManager[Measure]]


class Counter:
    """Waits until so many were handled."""

    def __init__(self) -> None:
        self._left = 0
        self._done = asyncio.Event()

    def expect(self, number: int) -> None:
        self._left = number
        self._done.clear()

    async def count(self, _: str) -> None:
        self._left -= 1
        if not self._left:
            self._done.set()

    async def wait(self) -> None:
        await self._done.wait()


async def _time_listening(listening: AbstractAsyncContextManager[None], counter: Counter) -> float:
    began = time.perf_counter()
    async with listening:
        await counter.wait()
        return time.perf_counter() - began


async def _publish(way: Way, events: Sequence[Event]) -> None:
    async with way.publisher() as publisher:
        for start in range(0, len(events), PREFETCH):
            told = await publisher.publish(events[start : start + PREFETCH])
            assert not any(told), told


Listening = Callable[[Way, str, Counter], AbstractAsyncContextManager[Callable[[], AbstractAsyncContextManager[None]]]]
"""Gives what listens once, with what the variant needs on a database."""


def consuming(way_of: type[Way], name: str, listening: Listening) -> Prepare:
    """Takes messages that are there."""

    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = Numbers()
        way = way_of(broker_address(way_of.kind, folder), name)
        with database(folder, f"{way.kind}_{name}") as url, event_loop() as loop:
            execute(url, _TABLE)
            loop.run(way.make())
            counter = Counter()
            opened = listening(way, url, counter)
            listen = loop.run(opened.__aenter__())

            def measure(calls: int) -> float:
                loop.run(_publish(way, events_of(numbers.take(calls))))
                counter.expect(calls)
                return loop.run(_time_listening(listen(), counter))

            yield measure
            loop.run(opened.__aexit__(None, None, None))

    return prepare


@asynccontextmanager
async def _bare(way: Way, _: str, counter: Counter) -> AsyncIterator[Any]:
    yield lambda: way.listen_bare(counter.count)


@asynccontextmanager
async def _with_inbox(way: Way, url: str, counter: Counter) -> AsyncIterator[Any]:
    async with AsyncSemel(url) as semel:
        consumer = Consumer(semel, "bench")

        @consumer.on("placed")
        async def place(event: Event) -> None:
            await counter.count(str(event.subject))

        yield lambda: way.listen(consumer)


@asynccontextmanager
async def _bare_transaction(way: Way, url: str, counter: Counter) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=8, max_size=8) as pool:

        async def handle(subject: str) -> None:
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute(INSERT, subject)
            await counter.count(subject)

        yield lambda: way.listen_bare(handle)


@asynccontextmanager
async def _in_transaction(way: Way, url: str, counter: Counter) -> AsyncIterator[Any]:
    async with AsyncSemel(url) as semel, asyncpg.create_pool(url, min_size=8, max_size=8) as pool:

        @asynccontextmanager
        async def transaction() -> AsyncIterator[Any]:
            async with pool.acquire() as connection, connection.transaction():
                yield connection

        consumer = Consumer(semel, "bench", transaction=transaction)

        @consumer.on("placed")
        async def place(event: Event, session: Any) -> None:
            await session.execute(INSERT, event.subject)
            await counter.count(str(event.subject))

        yield lambda: way.listen(consumer)


def _function(kind: str) -> Prepare:
    """The same call as a consumer makes for an event, without a broker: as many at a time as there are handlers."""

    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = Numbers()
        with database(folder, f"{kind}_function") as url, event_loop() as loop:
            semel = AsyncSemel(url)

            policy = Policy(keep_for=KEEP_FOR, when_running="reject")

            async def handle() -> None: ...

            def measure(calls: int) -> float:
                events = events_of(numbers.take(calls))

                async def call(number: int) -> None:
                    event = events[number]
                    await semel.run(
                        (event.source, event.id),
                        handle,
                        operation="event:bench",
                        fingerprint=(event.type, event.subject, event.data),
                        about={"subject": event.subject},
                        policy=policy,
                    )

                return loop.run(in_tasks(CALLERS, list(range(calls)), call))

            yield measure
            loop.run(semel.close())

    return prepare


def _publishing_bare(way_of: type[Way]) -> Prepare:
    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = Numbers()
        way = way_of(broker_address(way_of.kind, folder), "bare-publishing")
        with event_loop() as loop:
            loop.run(way.make())
            opened = way.publishing_bare()
            ready = loop.run(opened.__aenter__())

            def measure(calls: int) -> float:
                publications = [ready(event) for event in events_of(numbers.take(calls))]

                async def publish(number: int) -> None:
                    await publications[number]()

                return loop.run(in_tasks(CALLERS, list(range(calls)), publish))

            yield measure
            loop.run(opened.__aexit__(None, None, None))

    return prepare


def _relaying(way_of: type[Way]) -> Prepare:
    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = Numbers()
        way = way_of(broker_address(way_of.kind, folder), "relaying")
        with database(folder, f"{way.kind}_relaying") as url, event_loop() as loop:
            loop.run(way.make())
            semel, publisher = AsyncSemel(url), way.publisher()
            relay = Relay(Outbox(semel), publisher, in_flight=CALLERS)

            async def run() -> float:
                began = time.perf_counter()
                await relay.run_once()
                return time.perf_counter() - began

            def measure(calls: int) -> float:
                loop.run(fill_outbox(semel, events_of(numbers.take(calls))))
                return loop.run(run())

            yield measure
            loop.run(publisher.close())
            loop.run(semel.close())

    return prepare


def _publishing(way_of: type[Way], calls: int) -> tuple[Variant, Variant]:
    bare = "bare client, 64 in flight"
    return (
        Variant(bare, _publishing_bare(way_of), calls),
        Variant("relay", _relaying(way_of), calls, bare, Comparison("faster", 0.8)),
    )


def _case(way_of: type[Way], title: str, *, calls: int = 4000, note: str = "") -> Case:
    consumer, transaction = "bare consumer", "bare consumer, a transaction each"
    return Case(
        f"events-{way_of.kind}",
        f"{title} and PostgreSQL: consumers and relays against the bare client",
        (
            Variant(consumer, consuming(way_of, "bare", _bare), calls),
            Variant("function under run, 64 tasks", _function(way_of.kind), calls),
            Variant(
                "consumer with inbox",
                consuming(way_of, "inbox", _with_inbox),
                calls,
                consumer,
                Comparison("faster", 0.8),
                added="function under run, 64 tasks",
            ),
            Variant(transaction, consuming(way_of, "bare-transaction", _bare_transaction), calls // 2),
            Variant(
                "consumer with transaction=",
                consuming(way_of, "transaction", _in_transaction),
                calls // 2,
                transaction,
                Comparison("faster", 0.6),
            ),
            *_publishing(way_of, calls),
        ),
        notes=(
            "The consumer with inbox is held against the times of bare consumer and function added up.",
            "The function is called with the key, the fingerprint and the subject of an event, and does nothing.",
            f"Events of about 200 bytes; {CALLERS} handlers, {PREFETCH} messages ahead; transactions on 8 connections.",
            *([note] if note else []),
        ),
        site=with_broker(way_of.kind),
    )


EVENTS_RABBITMQ = _case(RabbitmqWay, "RabbitMQ")
EVENTS_NATS = _case(NatsWay, "NATS")
EVENTS_REDIS = _case(RedisWay, "Redis streams")
_EMULATED = "An emulator answers as {}, and its time is most of what is measured: of the service it says nothing."
EVENTS_SQS = _case(SqsWay, "SQS", calls=600, note=_EMULATED.format("SQS"))
EVENTS_EVENTBRIDGE = Case(
    f"events-{EventBridgeWay.kind}",
    "EventBridge and PostgreSQL: relays against the bare client",
    _publishing(EventBridgeWay, 600),
    notes=("Events of about 200 bytes.", _EMULATED.format("EventBridge")),
    site=with_broker(EventBridgeWay.kind),
)
