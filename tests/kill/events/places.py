"""Where events go in a run: the tables of the effects, and a broker with a way to each of two consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import aiormq
import nats as nats_client
from nats.js.api import StreamConfig
from redis.asyncio import Redis

from semel.events.brokers import eventbridge, nats, rabbitmq, redis_streams, sqs
from semel.events.brokers.aws import Address, connect
from tests.servers.databases import Endpoint
from tests.servers.ministack import CREDENTIALS
from tests.servers.sqs import Queues

TABLES: Final = """
CREATE TABLE placed (subject text PRIMARY KEY);
CREATE TABLE exact (subject text NOT NULL);
CREATE TABLE counted (subject text NOT NULL, in_doubt boolean NOT NULL);
"""
"""What committed together with its event; the effects of the consumer with a transaction; and of the one without."""
NAME: Final = "semel-kill"
CONSUMERS: Final = ("exact", "counted")
FASTSTREAM: Final = "faststream-"
ACK_WAIT: Final = timedelta(seconds=2)
_LISTEN: Final[Mapping[str, Any]] = {"concurrency": 4, "prefetch": 8}


@dataclass(frozen=True)
class Way:
    """How events reach consumers over one broker, at its address."""

    url: str
    make: Callable[[], Any]
    publisher: Callable[[], Any]
    listen: Callable[[Any], AbstractAsyncContextManager[None]]


def way_over(kind: str, url: str) -> Way:
    """The way over a broker of this kind; `faststream-` before it has FastStream listen."""
    kind, with_faststream = kind.removeprefix(FASTSTREAM), kind.startswith(FASTSTREAM)
    way = _WAYS[kind](url)
    if not with_faststream:
        return way
    from tests.kill.events.faststream_ways import listen_with_faststream

    return replace(way, listen=listen_with_faststream(kind, url, NAME, ACK_WAIT.total_seconds()))


def _over_rabbitmq(url: str) -> Way:
    async def make() -> None:
        connection = await aiormq.connect(url)
        channel = await connection.channel()
        await channel.exchange_declare(NAME, exchange_type="fanout", durable=True)
        for consumer in CONSUMERS:
            await channel.queue_delete(f"{NAME}.{consumer}")  # of a run before, on a server that both use
            await channel.queue_declare(f"{NAME}.{consumer}", durable=True)
            await channel.queue_bind(f"{NAME}.{consumer}", NAME)
        await connection.close()

    def listen(consumer: Any) -> AbstractAsyncContextManager[None]:
        return rabbitmq.listen(consumer, url, queue=f"{NAME}.{consumer.name}", **_LISTEN)

    return Way(url, make, lambda: rabbitmq.publisher(url, exchange=NAME), listen)


def _over_nats(url: str) -> Way:
    async def make() -> None:
        client = await nats_client.connect(url)
        await client.jetstream().add_stream(StreamConfig(name=NAME, subjects=[f"{NAME}.>"]))
        await client.close()

    def listen(consumer: Any) -> AbstractAsyncContextManager[None]:
        return nats.listen(consumer, url, stream=NAME, ack_wait=ACK_WAIT, **_LISTEN)

    return Way(url, make, lambda: nats.publisher(url, subject=f"{NAME}.placed"), listen)


def _over_redis(url: str) -> Way:
    async def make() -> None:
        """Make the groups, which begin at the first entry; our own listeners would do so by themselves."""
        client = Redis.from_url(url)
        for consumer in CONSUMERS:
            await client.xgroup_create(NAME, consumer, id="0", mkstream=True)
        await client.aclose()

    def listen(consumer: Any) -> AbstractAsyncContextManager[None]:
        return redis_streams.listen(consumer, url, stream=NAME, ack_wait=ACK_WAIT, **_LISTEN)

    return Way(url, make, lambda: redis_streams.publisher(url, stream=NAME), listen)


async def _read_descriptions() -> None:
    """Have the SDK read its descriptions of the services once, before workers are forked."""
    for service in ("sqs", "events"):
        async with connect(service, Address("eu-west-1", "http://127.0.0.1:1"), read_within=1.0):
            pass


def _over_sqs(url: str) -> Way:
    """A bus of EventBridge, and from there a queue for each consumer."""
    queues = Queues(Endpoint(url))
    asyncio.run(_read_descriptions())
    options: dict[str, Any] = {name.lower(): value for name, value in CREDENTIALS.items()}

    async def make() -> None:
        queues.events.create_event_bus(Name=NAME)
        for consumer in CONSUMERS:
            queue = f"{NAME}-{consumer}"
            queues.client.create_queue(QueueName=queue)
            queues.events.put_rule(Name=queue, EventBusName=NAME, EventPattern='{"detail-type": ["placed"]}')
            target = {"Id": queue, "Arn": queues.attributes(queue)["QueueArn"]}
            queues.events.put_targets(Rule=queue, EventBusName=NAME, Targets=[target])

    def listen(consumer: Any) -> AbstractAsyncContextManager[None]:
        settings = {"visibility": ACK_WAIT, "poll_for": 1, **_LISTEN, **options}
        return sqs.listen(consumer, queues.url, queue=f"{NAME}-{consumer.name}", **settings)

    return Way(url, make, lambda: eventbridge.publisher(queues.eventbridge_url, bus=NAME, **options), listen)


_WAYS: Final[Mapping[str, Callable[[str], Way]]] = {
    "rabbitmq": _over_rabbitmq,
    "nats": _over_nats,
    "redis": _over_redis,
    "sqs": _over_sqs,
}
