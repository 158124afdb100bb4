"""FastStream with an inbox on PostgreSQL, against FastStream alone on the same broker.

Invariant: the messages of a round are in the broker before its clock starts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg

from bench.cases.events import INSERT, Counter, consuming
from bench.event_servers import with_broker
from bench.harness import Case, Comparison, Variant
from bench.ways import CALLERS, PREFETCH, NatsWay, RabbitmqWay, RedisWay, Way
from semel import AsyncSemel
from semel.events import Event

Handler = Callable[..., Any]
_SILENT: dict[str, Any] = {"logger": None}
"""Its Redis broker is annotated so that it takes no None."""


class FastStreamRedisWay(RedisWay):
    """A stream whose entries have FastStream's own form, which is all that it reads alone."""

    async def make(self) -> None:
        async with self._client() as client:
            for group in ("bare", "inbox"):
                await client.xgroup_create(self.name, group, id="0", mkstream=True)

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[Any]:
        from faststream.redis import RedisBroker

        async with RedisBroker(self.url, **_SILENT) as broker:
            yield _Publisher(broker, self.name)


class _Publisher:
    def __init__(self, broker: Any, stream: str) -> None:
        self._broker = broker
        self._stream = stream

    async def publish(self, events: Sequence[Event]) -> list[None]:
        for event in events:
            headers, body = event.to_headers()
            await self._broker.publish(body, stream=self._stream, headers=headers)
        return [None] * len(events)


@asynccontextmanager
async def _listen(way: Way, name: str, handler: Handler, *around: Any, is_manual: bool) -> AsyncIterator[None]:
    """Have a subscriber of FastStream call a handler for as long as the block runs."""
    from faststream import AckPolicy

    policy = AckPolicy.MANUAL if is_manual else AckPolicy.NACK_ON_ERROR
    broker: Any
    if way.kind == "rabbitmq":
        from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

        broker = RabbitBroker(
            way.url, middlewares=around, logger=None, default_channel=Channel(prefetch_count=PREFETCH)
        )
        subscriber = broker.subscriber(RabbitQueue(way.name, declare=False), ack_policy=policy)
    elif way.kind == "redis":
        from faststream.redis import RedisBroker, StreamSub

        broker = RedisBroker(way.url, middlewares=around, **_SILENT)
        stream = StreamSub(way.name, group=name, consumer="one", max_records=PREFETCH, polling_interval=100)
        subscriber = broker.subscriber(stream=stream, max_workers=CALLERS, ack_policy=policy)
    else:
        from faststream.nats import JStream, NatsBroker, PullSub

        broker = NatsBroker(way.url, middlewares=around, logger=None)
        subscriber = broker.subscriber(
            f"{way.name}.placed",
            stream=JStream(way.name, declare=False),
            durable=name,
            pull_sub=PullSub(batch_size=PREFETCH, timeout=0.5),
            ack_policy=policy,
        )
    subscriber(handler)
    await broker.start()
    yield
    await broker.stop()


Listening = Callable[[], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def _bare(way: Way, _: str, counter: Counter) -> AsyncIterator[Listening]:
    async def place(order_id: str, note: str) -> None:
        await counter.count(order_id)

    yield lambda: _listen(way, "bare", place, is_manual=False)


@asynccontextmanager
async def _with_inbox(way: Way, url: str, counter: Counter) -> AsyncIterator[Listening]:
    from semel.events.brokers.faststream import inbox

    async def place(order_id: str, note: str) -> None:
        await counter.count(order_id)

    async with AsyncSemel(url) as semel:
        yield lambda: _listen(way, "inbox", place, inbox(semel, "bench"), is_manual=True)


@asynccontextmanager
async def _bare_transaction(way: Way, url: str, counter: Counter) -> AsyncIterator[Listening]:
    async with asyncpg.create_pool(url, min_size=8, max_size=8) as pool:

        async def place(order_id: str, note: str) -> None:
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute(INSERT, order_id)
            await counter.count(order_id)

        yield lambda: _listen(way, "bare", place, is_manual=False)


@asynccontextmanager
async def _in_transaction(way: Way, url: str, counter: Counter) -> AsyncIterator[Listening]:
    from faststream import Context

    from semel.events.brokers.faststream import inbox

    async with AsyncSemel(url) as semel, asyncpg.create_pool(url, min_size=8, max_size=8) as pool:

        @asynccontextmanager
        async def transaction() -> AsyncIterator[Any]:
            async with pool.acquire() as connection, connection.transaction():
                yield connection

        async def place(order_id: str, note: str, session: Any = Context("semel_session")) -> None:
            await session.execute(INSERT, order_id)
            await counter.count(order_id)

        yield lambda: _listen(way, "inbox", place, inbox(semel, "bench", transaction=transaction), is_manual=True)


def _case(way_of: type[Way], title: str, *, at_a_time: str = "all of which FastStream handles at a time") -> Case:
    bare, transaction = "bare FastStream", "bare FastStream, a transaction each"
    return Case(
        f"faststream-{way_of.kind}",
        f"FastStream on {title}, with an inbox on PostgreSQL, against FastStream alone",
        (
            Variant(bare, consuming(way_of, "fs-bare", _bare), 2000),
            Variant("FastStream with inbox", consuming(way_of, "fs-inbox", _with_inbox), 2000, bare),
            Variant(transaction, consuming(way_of, "fs-bare-transaction", _bare_transaction), 2000),
            Variant(
                "FastStream with inbox, transaction=",
                consuming(way_of, "fs-transaction", _in_transaction),
                2000,
                transaction,
                Comparison("faster", 0.3),
            ),
        ),
        notes=(
            f"Events of about 200 bytes; {PREFETCH} messages ahead, {at_a_time}.",
            "Transactions on 8 connections.",
        ),
        site=with_broker(way_of.kind),
    )


FASTSTREAM_RABBITMQ = _case(RabbitmqWay, "RabbitMQ")
FASTSTREAM_NATS = _case(NatsWay, "NATS")
FASTSTREAM_REDIS = _case(
    FastStreamRedisWay, "Redis streams", at_a_time=f"of which FastStream handles {CALLERS} at a time (max_workers)"
)
