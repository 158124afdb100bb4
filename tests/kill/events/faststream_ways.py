"""The same ways with FastStream at their end: an inbox in its broker, whose subscriber calls a consumer's handler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from secrets import token_hex
from typing import Any

from faststream import AckPolicy, Context
from faststream.nats import JStream, NatsBroker, PullSub
from faststream.rabbit import RabbitBroker, RabbitQueue
from faststream.redis import RedisBroker, StreamSub
from nats.js.api import ConsumerConfig

from semel.events import Event
from semel.events.brokers.faststream import inbox
from semel.events.brokers.faststream.middleware import Inbox

Listen = Callable[[Any], AbstractAsyncContextManager[None]]


def listen_with_faststream(kind: str, url: str, name: str, ack_wait: float) -> Listen:
    """How a consumer listens over a broker of this kind."""

    def subscribe(consumer: Any, box: Inbox) -> tuple[Any, Any]:
        settings: dict[str, Any] = {"middlewares": [box], "logger": None}
        if kind == "rabbitmq":
            rabbit = RabbitBroker(url, **{"reconnect_interval": 0.2, **settings})
            queue = RabbitQueue(f"{name}.{consumer.name}", declare=False)
            return rabbit, rabbit.subscriber(queue, ack_policy=AckPolicy.MANUAL)
        if kind == "nats":
            nats = NatsBroker(url, **{"reconnect_time_wait": 0.2, "max_reconnect_attempts": -1, **settings})
            return nats, nats.subscriber(
                f"{name}.placed",
                stream=JStream(name, declare=False),
                durable=consumer.name,
                pull_sub=PullSub(batch_size=4, timeout=0.5),
                config=ConsumerConfig(ack_wait=ack_wait),
                ack_policy=AckPolicy.MANUAL,
            )
        redis = RedisBroker(url, **settings)
        stream = StreamSub(name, group=consumer.name, consumer=token_hex(4), max_records=4)
        return redis, redis.subscriber(stream=stream, max_workers=4, ack_policy=AckPolicy.MANUAL)

    @asynccontextmanager
    async def listen(consumer: Any) -> AsyncIterator[None]:
        box = _inbox_like(consumer, ack_wait)
        broker, subscriber = subscribe(consumer, box)
        subscriber(_handler_of(consumer, has_session=consumer._deliveries._settings.transaction is not None))
        try:
            await broker.start()
        except Exception as error:
            with suppress(Exception):
                await broker.stop()
            raise ConnectionError("the broker is not there yet") from error
        try:
            yield
        finally:
            with suppress(Exception):  # FastStream raises where the broker is gone
                await broker.stop()

    return listen


def _inbox_like(consumer: Any, ack_wait: float) -> Inbox:
    """An inbox with the settings of a consumer, that shows where it is as the consumer does."""
    settings, policy = consumer._deliveries._settings, consumer.policy
    box = inbox(
        consumer.semel,
        consumer.name,
        backoff=settings.backoff,
        transaction=settings.transaction,
        ack_wait=ack_wait,
        max_attempts=policy.max_attempts,
        lease_for=policy.lease_for,
        in_doubt=policy.in_doubt,
    )
    run: Any = box.consumer.run_call
    box.consumer.run_call = lambda event, call: consumer._watch(run(event, call))  # type: ignore[method-assign]
    return box


def _handler_of(consumer: Any, *, has_session: bool) -> Callable[..., Any]:
    (handler,) = consumer.handlers.values()

    async def exact(event: Event = Context("semel_event"), session: Any = Context("semel_session")) -> None:
        await handler(event=event, session=session)

    async def counted(event: Event = Context("semel_event"), attempt: Any = Context("semel_attempt")) -> None:
        await handler(event=event, attempt=attempt)

    return exact if has_session else counted
