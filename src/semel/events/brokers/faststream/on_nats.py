"""FastStream's NATS broker, with JetStream: deadlines are extended from a thread, over a connection of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from semel.deadlines import Deadlines
from semel.events.brokers.faststream.settling import (
    MessageSettler,
    Served,
    demand_manual_policy,
    describe,
    refuse,
    warn,
)
from semel.events.brokers.limits import BrokerLimits
from semel.events.brokers.listening import Message
from semel.events.brokers.nats import (
    ACK_WAIT,
    check_acknowledgements,
    connect_extender,
    read_stream,
    warn_of_limit,
)
from semel.extras import requires

with requires("semel.events.brokers.faststream", "nats"):
    from faststream.nats.subscriber.usecases import (
        BatchPullStreamSubscriber,
    )
    from faststream.nats.subscriber.usecases.stream_basic import StreamSubscriber
    from nats.errors import Error as NatsError
    from nats.js.api import AckPolicy as NatsAckPolicy
    from nats.js.errors import NotFoundError

IS_RABBITMQ: Final = False
_CALLBACK: Final = "_cb"


def check(subscriber: Any) -> None:
    """Refuse a subscriber that would lose messages.

    Raises:
        UsageError: it would.
    """
    if isinstance(subscriber, BatchPullStreamSubscriber):
        refuse(subscriber, "takes many messages as one (PullSub(batch=True))", "Leave batch out")
    if not isinstance(subscriber, StreamSubscriber):
        refuse(
            subscriber,
            "has no stream: NATS itself keeps no message, so a crash loses it",
            'Write stream=…, and durable="NAME"',
        )
    # FastStream writes MANUAL over the policy here, and leaves the acknowledgement to the client.
    demand_manual_policy(subscriber, is_really_first=subscriber.extra_options.get("manual_ack") is False)
    if subscriber.config.ack_policy not in (None, NatsAckPolicy.EXPLICIT):
        refuse(
            subscriber,
            f"has ConsumerConfig(ack_policy={subscriber.config.ack_policy.value!r}): a message counts as done before "
            f"its handler ended",
            "Leave it out, or make it explicit",
        )
    if subscriber.extra_options.get("ordered_consumer"):
        refuse(
            subscriber,
            "has ordered_consumer=True: the broker waits for no acknowledgement, so a crash loses what was delivered",
            'Leave it out, and write durable="NAME"',
        )
    if _durable_of(subscriber) is None:
        warn(
            subscriber,
            "has no durable=, so the broker forgets how far it has read when it stops, and begins again where "
            "deliver_policy says",
        )


def _durable_of(subscriber: Any) -> str | None:
    """What the broker knows the place of a subscriber in its stream by; the members of a queue share one."""
    return subscriber.extra_options.get("durable") or subscriber.queue or None


def make_settler(served: Served) -> MessageSettler:
    """What its messages are settled by."""
    return _Settler(served)


async def read_limits(subscriber: Any, broker: Any, management: str | None) -> BrokerLimits:  # noqa: ARG001 - RabbitMQ's
    """The settings of its stream and of its durable consumer.

    Raises:
        ConnectionError: the broker cannot be reached.
        UsageError: there is no such stream.
    """
    servers, options = _connection_of(broker)
    return await read_stream(servers, subscriber.stream.name, _durable_of(subscriber), **options)


def _connection_of(broker: Any) -> tuple[str | list[str], dict[str, Any]]:
    """The servers that a broker connects to, and with what; it hears of its own connection alone."""
    given = dict(broker._connection_kwargs)  # noqa: SLF001 - what it connects with itself
    servers = given.pop("servers")
    options = {name: value for name, value in given.items() if not name.endswith(_CALLBACK)}
    return list(servers) if not isinstance(servers, str) else servers, options


class _Settler(MessageSettler):
    """Acknowledges, ends, or gives back with a delay; says that work is in progress while a handler runs."""

    settles_others = True

    def __init__(self, served: Served) -> None:
        super().__init__(served)
        self._deadlines: Deadlines | None = None

    async def start(self) -> None:
        ack_wait = await self._read_ack_wait()
        longest = self._served.consumer.policy.max_runtime.total_seconds()
        self._deadlines = Deadlines(self._connecting(), every=ack_wait / 3, longest=longest)
        self._deadlines.start()

    async def _read_ack_wait(self) -> float:
        """After how many seconds the broker delivers a message again: a consumer that is there says so.

        Raises:
            UsageError: it would lose messages.
        """
        subscriber = self._served.subscriber
        if durable := _durable_of(subscriber):
            with suppress(NotFoundError):
                info = await subscriber.jetstream.consumer_info(subscriber.stream.name, durable)
                check_acknowledgements(info, durable)
                return info.config.ack_wait or ACK_WAIT.total_seconds()
        declared = subscriber.config  # what FastStream makes one with
        warn_of_limit(declared, durable or describe(subscriber))
        first: float | None = declared.backoff[0] if declared.backoff else declared.ack_wait  # as the broker does
        return first or ACK_WAIT.total_seconds()

    def _connecting(self) -> Callable[[], Any]:
        servers, options = _connection_of(self._served.broker)
        return lambda: connect_extender(servers, options)

    async def stop(self, asked_by: asyncio.Task[Any] | None) -> None:  # noqa: ARG002 - its handlers are FastStream's
        if self._deadlines is not None:
            await self._deadlines.stop()
            self._deadlines = None

    def begin(self, message: Message) -> None:
        if self._deadlines is not None:
            self._deadlines.hold(message.token.raw_message.reply)
            self._deadlines.begin(message.token.raw_message.reply)

    def abandon(self, message: Message) -> None:
        if self._deadlines is not None:
            self._deadlines.release(message.token.raw_message.reply)

    async def retry(self, message: Message, after: timedelta) -> None:
        self.abandon(message)
        with self._unless_lost():
            await message.token.nack(delay=after.total_seconds())

    def _unless_lost(self) -> Any:
        return suppress(NatsError, OSError)
