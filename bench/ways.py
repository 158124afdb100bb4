"""Queues, streams and buses of one variant on one broker, through the bare client and through semel."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar

import msgspec

from semel import AsyncSemel
from semel.events import Consumer, Event
from semel.events.brokers.aws import Address, connect
from tests.servers.ministack import CREDENTIALS
from tests.servers.sqs import service_url

CALLERS = 64
PREFETCH = 256
Handle = Callable[[str], Awaitable[None]]


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


class RedisWay(Way):
    """A stream with one group for each who listens."""

    kind = "redis"

    async def make(self) -> None:
        async with self._client() as client:
            await client.xgroup_create(self.name, "bare", id="0", mkstream=True)

    def _client(self) -> Any:
        from redis.asyncio import Redis

        return Redis.from_url(self.url, protocol=2)

    def publisher(self) -> Any:
        from semel.events.brokers import redis_streams

        return redis_streams.publisher(self.url, stream=self.name)

    def listen(self, consumer: Consumer[AsyncSemel]) -> AbstractAsyncContextManager[None]:
        from semel.events.brokers import redis_streams

        return redis_streams.listen(consumer, self.url, stream=self.name, concurrency=CALLERS, prefetch=PREFETCH)

    @asynccontextmanager
    async def listen_bare(self, handle: Handle) -> AsyncIterator[None]:
        async with self._client() as client:

            async def take() -> None:
                while True:
                    found = await client.xreadgroup("bare", "one", {self.name: ">"}, count=PREFETCH, block=1000)
                    for _, entries in found:
                        bodies = [msgspec.json.decode(fields[b"data"]) for _, fields in entries]
                        await asyncio.gather(*(handle(body["order_id"]) for body in bodies))
                        await client.xack(self.name, "bare", *(id_ for id_, _ in entries))

            taking = asyncio.create_task(take())
            yield
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)

    @asynccontextmanager
    async def publishing_bare(self) -> AsyncIterator[Callable[[Event], Callable[[], Awaitable[object]]]]:
        async with self._client() as client:

            def prepare(event: Event) -> Callable[[], Awaitable[object]]:
                headers, body = event.to_headers()
                fields = {**headers, "data": body}
                return lambda: client.xadd(self.name, fields)

            yield prepare


class EventBridgeWay(SqsWay):
    """A bus of the emulator, which nobody listens to."""

    kind = "eventbridge"

    async def make(self) -> None:
        async with self._bus() as client:
            await client.create_event_bus(Name=self.name)

    def _bus(self) -> Any:
        address = Address.of(service_url("eventbridge", self.url), "eventbridge")
        return connect("events", address, read_within=30, **self.options)

    def publisher(self) -> Any:
        from semel.events.brokers import eventbridge

        return eventbridge.publisher(service_url("eventbridge", self.url), bus=self.name, **self.options)

    @asynccontextmanager
    async def publishing_bare(self) -> AsyncIterator[Callable[[Event], Callable[[], Awaitable[object]]]]:
        async with self._bus() as client:

            def prepare(event: Event) -> Callable[[], Awaitable[object]]:
                entry = {
                    "EventBusName": self.name,
                    "Source": event.source,
                    "DetailType": event.type,
                    "Detail": event.to_json().decode(),
                }
                return lambda: client.put_events(Entries=[entry])

            yield prepare
