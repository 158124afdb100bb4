"""Consumers and relays on PostgreSQL with a broker, each against the same client without semel.

Invariant: the messages of a round are in the broker, or in the outbox, before its clock starts.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import asyncpg
import msgspec

from bench.callers import Numbers, event_loop, in_tasks
from bench.event_servers import broker_address, events_of, fill_outbox, with_broker
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import database, execute
from semel import AsyncSemel, Policy
from semel.events import Consumer, Event, Outbox, Relay
from semel.events.brokers.aws import Address, connect
from semel.events.consumer import KEEP_FOR
from tests.servers.ministack import CREDENTIALS
from tests.servers.sqs import service_url

CALLERS = 64
PREFETCH = 256
_TABLE = "CREATE TABLE effect (subject text NOT NULL)"
INSERT = "INSERT INTO effect VALUES ($1)"
Handle = Callable[[str], Awaitable[None]]
Prepare = Callable[[Path, Effort], AbstractContextManager[Measure]]


class Way(ABC):
    """A queue of one variant on one broker, through the bare client and through semel."""

    kind: str

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name

    @abstractmethod
    async def make(self) -> None:
        """Make the queue."""

    @abstractmethod
    def publisher(self) -> Any:
        """Semel's publisher."""

    @abstractmethod
    def listen(self, consumer: Consumer[AsyncSemel]) -> AbstractAsyncContextManager[None]:
        """Semel's listener."""

    @abstractmethod
    def listen_bare(self, handle: Handle) -> AbstractAsyncContextManager[None]:
        """The client's own listener, which acknowledges what was handled."""

    @abstractmethod
    def publishing_bare(self) -> AbstractAsyncContextManager[Callable[[Event], Callable[[], Awaitable[object]]]]:
        """Gives what makes, of an event, the call that publishes its bytes with the client alone and is confirmed."""


class RabbitmqWay(Way):
    """A durable queue."""

    kind = "rabbitmq"

    async def make(self) -> None:
        import aiormq

        connection = await aiormq.connect(self.url)
        await (await connection.channel()).queue_declare(self.name, durable=True)
        await connection.close()

    def publisher(self) -> Any:
        from semel.events.brokers import rabbitmq

        return rabbitmq.publisher(self.url, routing_key=self.name)

    def listen(self, consumer: Consumer[AsyncSemel]) -> AbstractAsyncContextManager[None]:
        from semel.events.brokers import rabbitmq

        return rabbitmq.listen(consumer, self.url, queue=self.name, concurrency=CALLERS, prefetch=PREFETCH)

    @asynccontextmanager
    async def listen_bare(self, handle: Handle) -> AsyncIterator[None]:
        import aiormq

        connection = await aiormq.connect(self.url)
        channel = await connection.channel(publisher_confirms=False)
        await channel.basic_qos(prefetch_count=PREFETCH)

        async def take(message: Any) -> None:
            await handle(msgspec.json.decode(message.body)["order_id"])
            await channel.basic_ack(message.delivery.delivery_tag, wait=False)

        await channel.basic_consume(self.name, take)
        yield
        await connection.close()

    @asynccontextmanager
    async def publishing_bare(self) -> AsyncIterator[Callable[[Event], Callable[[], Awaitable[object]]]]:
        import aiormq
        from pamqp import commands

        connection = await aiormq.connect(self.url)
        channel = await connection.channel(publisher_confirms=True)

        def prepare(event: Event) -> Callable[[], Awaitable[object]]:
            headers, body = event.to_headers()
            properties = commands.Basic.Properties(
                message_id=event.id,
                content_type=headers.pop("content-type", None),
                delivery_mode=2,
                headers=dict(headers),
                timestamp=event.time,
                message_type=event.type,
            )
            return lambda: channel.basic_publish(body, routing_key=self.name, properties=properties, mandatory=True)

        yield prepare
        await connection.close()


class NatsWay(Way):
    """A stream with one subject."""

    kind = "nats"

    async def make(self) -> None:
        import nats
        from nats.js.api import StreamConfig

        client = await nats.connect(self.url)
        await client.jetstream().add_stream(StreamConfig(name=self.name, subjects=[f"{self.name}.>"]))
        await client.close()

    def publisher(self) -> Any:
        from semel.events.brokers import nats

        return nats.publisher(self.url, subject=f"{self.name}.placed")

    def listen(self, consumer: Consumer[AsyncSemel]) -> AbstractAsyncContextManager[None]:
        from semel.events.brokers import nats

        return nats.listen(consumer, self.url, stream=self.name, concurrency=CALLERS, prefetch=PREFETCH)

    @asynccontextmanager
    async def listen_bare(self, handle: Handle) -> AsyncIterator[None]:
        import nats

        client = await nats.connect(self.url)
        pulled = await client.jetstream().pull_subscribe(f"{self.name}.>", durable="bare", stream=self.name)

        async def take(message: Any) -> None:
            await handle(msgspec.json.decode(message.data)["order_id"])
            await message.ack()

        async def pull() -> None:
            while True:
                messages = await pulled.fetch(PREFETCH, timeout=60)
                await asyncio.gather(*map(take, messages))

        pulling = asyncio.create_task(pull())
        yield
        pulling.cancel()
        await asyncio.gather(pulling, return_exceptions=True)
        await client.close()

    @asynccontextmanager
    async def publishing_bare(self) -> AsyncIterator[Callable[[Event], Callable[[], Awaitable[object]]]]:
        import nats

        client = await nats.connect(self.url)
        context = client.jetstream()

        def prepare(event: Event) -> Callable[[], Awaitable[object]]:
            headers, body = event.to_headers()
            headers["Nats-Msg-Id"] = event.id
            return lambda: context.publish(f"{self.name}.placed", body, headers=headers)

        yield prepare
        await client.close()


class SqsWay(Way):
    """A standard queue of the emulator."""

    kind = "sqs"
    options: ClassVar[dict[str, Any]] = {name.lower(): value for name, value in CREDENTIALS.items()}

    async def make(self) -> None:
        async with self._client() as client:
            await client.create_queue(QueueName=self.name)

    def _client(self) -> Any:
        return connect("sqs", Address.of(service_url("sqs", self.url), "sqs"), read_within=30, **self.options)

    def publisher(self) -> Any:
        from semel.events.brokers import sqs

        return sqs.publisher(service_url("sqs", self.url), queue=self.name, **self.options)

    def listen(self, consumer: Consumer[AsyncSemel]) -> AbstractAsyncContextManager[None]:
        from semel.events.brokers import sqs

        given = {"concurrency": CALLERS, "prefetch": PREFETCH, "poll_for": 1, **self.options}
        return sqs.listen(consumer, service_url("sqs", self.url), queue=self.name, **given)

    @asynccontextmanager
    async def listen_bare(self, handle: Handle) -> AsyncIterator[None]:
        async with self._client() as client:
            url = (await client.get_queue_url(QueueName=self.name))["QueueUrl"]

            async def take() -> None:
                while True:
                    reply = await client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
                    messages = reply.get("Messages", ())
                    bodies = [msgspec.json.decode(message["Body"]) for message in messages]
                    await asyncio.gather(*(handle(body["data"]["order_id"]) for body in bodies))
                    done = [
                        {"Id": str(place), "ReceiptHandle": message["ReceiptHandle"]}
                        for place, message in enumerate(messages)
                    ]
                    if done:
                        await client.delete_message_batch(QueueUrl=url, Entries=done)

            taking = [asyncio.create_task(take()) for _ in range(8)]
            yield
            for task in taking:
                task.cancel()
            await asyncio.gather(*taking, return_exceptions=True)

    @asynccontextmanager
    async def publishing_bare(self) -> AsyncIterator[Callable[[Event], Callable[[], Awaitable[object]]]]:
        async with self._client() as client:
            url = (await client.get_queue_url(QueueName=self.name))["QueueUrl"]

            def prepare(event: Event) -> Callable[[], Awaitable[object]]:
                body = event.to_json().decode()
                return lambda: client.send_message(QueueUrl=url, MessageBody=body)

            yield prepare


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


def _case(way_of: type[Way], title: str, *, calls: int = 4000, note: str = "") -> Case:
    consumer, transaction, publishing = (
        "bare consumer",
        "bare consumer, a transaction each",
        "bare client, 64 in flight",
    )
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
            Variant(publishing, _publishing_bare(way_of), calls),
            Variant("relay", _relaying(way_of), calls, publishing, Comparison("faster", 0.8)),
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
EVENTS_SQS = _case(
    SqsWay,
    "SQS",
    calls=600,
    note="An emulator answers as SQS, and its time is most of what is measured: of the service it says nothing.",
)
