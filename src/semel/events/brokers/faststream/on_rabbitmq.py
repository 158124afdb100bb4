"""FastStream's RabbitMQ broker: messages that have to wait go through the same queues as in our own adapter.

Nothing extends a delivery here: a broker closes the channel of a message that is not acknowledged within its
`consumer_timeout`, so a handler must not run that long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from semel.events.brokers.faststream.settling import MessageSettler, Served, demand_manual_policy, refuse, warn
from semel.events.brokers.limits import BrokerLimits
from semel.events.brokers.listening import AFTER_NOTHING, Message
from semel.events.brokers.rabbitmq import DELAY_WITHIN, DelayQueues, check_runtime, unless_lost
from semel.events.brokers.rabbitmq_management import read_queue
from semel.extras import requires

with requires("semel.events.brokers.faststream", "aio_pika"):
    from aio_pika import IncomingMessage
    from faststream.message import StreamMessage

IS_RABBITMQ: Final = True
_PROPERTIES: Final = ("message_id", "correlation_id", "app_id", "type")
"""What AMQP keeps beside the headers, and other brokers among them."""
_OFFSET: Final = "x-stream-offset"
_NEXT: Final = "next"
_TOO_LATE: Final = (_NEXT, "last")
"""Where reading a stream may begin behind a message that was not processed to its end."""


def check(subscriber: Any) -> None:
    """Refuse a subscriber that would lose messages.

    Raises:
        UsageError: it would.
    """
    demand_manual_policy(subscriber)
    begins = subscriber.consume_args.get(_OFFSET, _NEXT)
    if (subscriber.queue.arguments or {}).get("x-queue-type") == "stream" and begins in _TOO_LATE:
        refuse(
            subscriber,
            f"takes from a stream, and begins at {begins!r}: the broker keeps no place of a stream, so a crash loses "
            f"what was not processed to its end",
            f'Write consume_args={{"{_OFFSET}": "first"}}; what was processed before is left out',
        )
    if subscriber.queue.exclusive or subscriber.queue.auto_delete:
        warn(subscriber, "takes from a queue that is deleted with its last consumer, and all its messages with it")
    elif subscriber.queue.declare and not subscriber.queue.durable:
        warn(subscriber, "makes a queue that a restart of the broker deletes, and all its messages with it (durable)")


def make_settler(served: Served) -> MessageSettler:
    """What its messages are settled by."""
    return _Settler(served)


async def read_limits(subscriber: Any, broker: Any, management: str | None) -> BrokerLimits:
    """The settings of its queue.

    Raises:
        ConnectionError: the management plugin does not answer.
        UsageError: there is no such queue, or the user may not look.
    """
    address = str(broker._connection_kwargs["url"])  # noqa: SLF001 - what it connects with itself
    name = subscriber.queue.add_prefix(subscriber._outer_config.prefix).name  # noqa: SLF001 - as its start does
    return await asyncio.to_thread(read_queue, address, name, management)


class _Settler(MessageSettler):
    """Acknowledges, rejects, or publishes to a queue that gives back after a while."""

    def __init__(self, served: Served) -> None:
        super().__init__(served)
        self._delays: tuple[Any, DelayQueues] | None = None

    async def start(self) -> None:
        check_runtime(self._served.consumer, None)

    def parts_of(self, message: StreamMessage[Any]) -> tuple[Mapping[str, Any], bytes]:
        headers, body = super().parts_of(message)
        # Not those of FastStream's message, which makes up what the producer did not send.
        sent = {name: getattr(message.raw_message, name, None) for name in _PROPERTIES}
        return {**{name: text for name, text in sent.items() if text}, **headers}, body

    async def retry(self, message: Message, after: timedelta) -> None:
        raw: IncomingMessage = message.token.raw_message
        queue = self._served.subscriber._queue_obj  # noqa: SLF001 - the name that the broker gave, where it gave one
        if queue is None:  # under FastStream's test broker
            await super().retry(message, after)
            return
        is_delayed = False
        with self._unless_lost():
            async with asyncio.timeout(DELAY_WITHIN.total_seconds()):
                delays = self._delays_over(raw.channel.connection)
                await delays.publish(raw.body, raw.properties, queue.name, after)
            is_delayed = True
        if is_delayed:
            await self.acknowledge(message)
            return
        await asyncio.sleep(AFTER_NOTHING.total_seconds())
        await super().retry(message, after)

    def _delays_over(self, connection: Any) -> DelayQueues:
        if self._delays is None or self._delays[0] is not connection:
            self._delays = connection, DelayQueues(connection)
        return self._delays[1]

    def _unless_lost(self) -> Any:
        return unless_lost()
