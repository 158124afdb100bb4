"""FastStream's Redis broker, with streams and groups.

- FastStream reads new entries alone. What has to wait, and what a process left behind that is gone, is looked for here,
  as in our own adapter, and handed to the subscriber.
- Deadlines are extended from a thread, over a connection of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from semel.deadlines import Deadlines
from semel.events.brokers.faststream.settling import MessageSettler, Served, demand_manual_policy, refuse
from semel.events.brokers.limits import BrokerLimits
from semel.events.brokers.listening import Message, RetryDelay, cancel_all
from semel.events.brokers.redis_group import (
    ACKNOWLEDGE,
    ANSWER_WITHIN,
    RELEASE,
    SWEEP_EVERY,
    Group,
)
from semel.events.brokers.redis_streams import read_stream_of
from semel.events.disposition import Disposition
from semel.events.event import is_attribute
from semel.extras import requires

with requires("semel.events.brokers.faststream", "redis"):
    from anyio import ClosedResourceError
    from faststream.message import StreamMessage
    from faststream.redis.configs.state import RedisConnectionState
    from faststream.redis.message import DefaultStreamMessage, bDATA_KEY
    from faststream.redis.subscriber.usecases import StreamBatchSubscriber, StreamSubscriber
    from redis.asyncio import ConnectionPool, Redis
    from redis.exceptions import RedisError

IS_RABBITMQ: Final = False
_BODY: Final = b"data"
_UNREAD: Final = ">"
"""What nobody of a group was given yet, as Redis says it."""


def check(subscriber: Any) -> None:
    """Refuse a subscriber that would lose messages.

    Raises:
        UsageError: it would.
    """
    if isinstance(subscriber, StreamBatchSubscriber):
        refuse(subscriber, "takes many entries as one (StreamSub(batch=True))", "Leave batch out")
    if not isinstance(subscriber, StreamSubscriber):
        refuse(
            subscriber,
            "takes from a channel or a list, where Redis forgets a message when it is sent, so a crash loses it",
            'Write stream=StreamSub("NAME", group="NAME", consumer="NAME")',
        )
    stream = subscriber.stream_sub
    if not stream.group:
        refuse(
            subscriber, "has no group, so nobody keeps what it has read", 'Write StreamSub(…, group="NAME", consumer=…)'
        )
    if stream.no_ack:
        refuse(
            subscriber,
            "has no_ack=True: the server forgets an entry when it is read, so a crash loses it",
            "Leave it out, and write ack_policy=AckPolicy.MANUAL",
        )
    for name in ("min_idle_time", "claim_min_idle_time"):
        if getattr(stream, name) is not None:
            refuse(
                subscriber,
                f"has {name}=, by which FastStream takes entries that wait for their next attempt, before they are due",
                "Leave it out: the inbox itself takes what a process left behind, after ack_wait= of inbox()",
            )
    if stream.last_id != _UNREAD:
        refuse(
            subscriber,
            f"has last_id={stream.last_id!r}, by which FastStream reads nothing new from a group that is there already",
            f"Leave it out, and make the group by XGROUP CREATE {stream.name} {stream.group} {stream.last_id} MKSTREAM",
        )
    demand_manual_policy(subscriber)


def make_settler(served: Served) -> MessageSettler:
    """What its messages are settled by."""
    return _Settler(served)


async def read_limits(subscriber: Any, broker: Any, management: str | None) -> BrokerLimits:  # noqa: ARG001 - RabbitMQ's
    """The settings of its stream.

    Raises:
        ConnectionError: the server cannot be reached.
        UsageError: there is no such stream or group.
    """
    _refuse_many_servers(subscriber)
    stream = subscriber.stream_sub
    return await read_stream_of(lambda: _connect(subscriber), stream.name, stream.group)


def _refuse_many_servers(subscriber: Any) -> None:
    """Refuse a subscriber of a cluster.

    Raises:
        UsageError: it is of one, or of servers behind Sentinel.
    """
    if type(subscriber._outer_config.connection) is not RedisConnectionState:  # noqa: SLF001 - what FastStream connects with
        refuse(
            subscriber,
            "takes from a cluster, or over Sentinel, which the inbox has no connection of its own to",
            "Give RedisBroker the URL of one server, or listen with semel.events.brokers.redis_streams",
        )


def _connect(subscriber: Any) -> Redis:
    state = subscriber._outer_config.connection  # noqa: SLF001 - what FastStream connects with
    given = {**state._options, "protocol": 2, "decode_responses": False}  # noqa: SLF001 - as above
    for name in ("socket_timeout", "socket_connect_timeout"):
        given[name] = given.get(name) or ANSWER_WITHIN
    return Redis.from_pool(ConnectionPool(**given))


class _Settler(MessageSettler):
    """Acknowledges or delays entries that are still this member's, and hands over what nobody else would."""

    def __init__(self, served: Served) -> None:
        super().__init__(served)
        stream = served.subscriber.stream_sub
        self._group = Group(self._connect, stream.name, stream.group, stream.consumer)
        self._ack_wait = served.ack_wait.total_seconds()
        self._client: Redis | None = None
        self._deadlines: Deadlines | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._held: set[bytes] = set()
        self._workers: int = getattr(served.subscriber, "max_workers", 1)
        self._handed_over: set[asyncio.Task[None]] = set()

    def _connect(self) -> Redis:
        return _connect(self._served.subscriber)

    async def start(self) -> None:
        _refuse_many_servers(self._served.subscriber)
        self._client = self._connect()
        longest = self._served.consumer.policy.max_runtime.total_seconds()
        self._deadlines = Deadlines(self._group.connect_extender, every=self._ack_wait / 3, longest=longest)
        self._deadlines.start()
        self._sweeping = asyncio.create_task(self._sweep(self._client))

    async def stop(self, asked_by: asyncio.Task[Any] | None) -> None:
        if self._sweeping is not None:
            await cancel_all([self._sweeping])
        # A handler that stops its subscriber does it from one of these, which ends by itself.
        await cancel_all([task for task in self._handed_over if task is not asked_by])
        if self._deadlines is not None:
            await self._deadlines.stop()
        if self._client is not None:
            with suppress(RedisError, OSError):  # FastStream may have read more than it handed over
                await self._group.run(self._client, RELEASE)
            await self._client.aclose()
        self._sweeping = self._deadlines = self._client = None

    def parts_of(self, message: StreamMessage[Any]) -> tuple[Mapping[str, Any], bytes]:
        fields = message.raw_message["data"]
        names = {name.decode("utf-8", "replace"): value for name, value in fields.items() if name != _BODY}
        if bDATA_KEY not in fields and any(is_attribute(name) for name in names):
            return names, fields.get(_BODY, b"")  # an entry of `redis_streams.publisher`
        return super().parts_of(message)

    def begin(self, message: Message) -> None:
        if self._deadlines is not None:
            (entry,) = message.token.raw_message["message_ids"]
            self._held.add(entry)
            self._deadlines.hold(entry)
            self._deadlines.begin(entry)

    def abandon(self, message: Message) -> None:
        if self._deadlines is not None:
            (entry,) = message.token.raw_message["message_ids"]
            self._held.discard(entry)
            self._deadlines.release(entry)

    async def acknowledge(self, message: Message) -> None:
        if self._client is None:  # under FastStream's test broker
            await super().acknowledge(message)
        await self._say(message, lambda client, entry: self._group.run(client, ACKNOWLEDGE, entry))

    async def retry(self, message: Message, after: timedelta) -> None:
        await self._say(message, lambda client, entry: self._group.delay(client, entry, after))

    async def dead_letter(self, message: Message, disposition: Disposition) -> None:  # noqa: ARG002 - it is stored here
        await self.acknowledge(message)

    async def _say(self, message: Message, say: Callable[[Redis, bytes], Awaitable[Any]]) -> None:
        if self._client is not None:
            (entry,) = message.token.raw_message["message_ids"]
            with suppress(RedisError, OSError):  # then it is still this member's, and found again
                await say(self._client, entry)
        self.abandon(message)

    async def _sweep(self, client: Redis) -> None:
        """Look for what is due, and every third part of a deadline for what somebody left behind."""
        loop, delay = asyncio.get_running_loop(), RetryDelay()
        next_pass = loop.time()
        while True:
            room = self._workers - len(self._handed_over)
            if room <= 0:
                # Nothing is taken that would only wait here: others look for it meanwhile.
                await asyncio.wait(self._handed_over, return_when=asyncio.FIRST_COMPLETED)
                continue
            if not self._served.subscriber.running:
                await asyncio.sleep(SWEEP_EVERY)
                continue
            idle_ms = int(self._ack_wait * 1000) if loop.time() >= next_pass else None
            try:
                swept = await self._group.sweep(client, room, idle_ms=idle_ms)
            except (RedisError, OSError) as error:
                await delay.wait(f"Redis did not answer ({type(error).__name__})")
                continue
            delay.reset()
            taken = [] if swept is None else [one for one in swept.entries if not self._is_handled(one[0])]
            if swept is not None and swept.is_over:
                next_pass = loop.time() + self._ack_wait / 3
            for entry, fields in taken:
                self._hand_over(entry, fields)
            if len(taken) < room:
                await asyncio.sleep(SWEEP_EVERY)

    def _is_handled(self, entry: bytes) -> bool:
        """Whether a handler runs for it here, and is not wedged."""
        is_over = self._deadlines is not None and self._deadlines.is_over(entry)
        return entry in self._held and not is_over

    def _hand_over(self, entry: bytes, fields: dict[bytes, bytes]) -> None:
        """Have the subscriber handle an entry, in a task of its own: a handler that is slow stops no other entry."""
        if self._workers > 1 and self._deadlines is not None:
            self._deadlines.hold(entry)  # it may wait for a worker
            self._deadlines.begin(entry)
        task = asyncio.create_task(self._consume(entry, fields))
        self._handed_over.add(task)
        task.add_done_callback(self._handed_over.discard)

    async def _consume(self, entry: bytes, fields: dict[bytes, bytes]) -> None:
        message = DefaultStreamMessage(type="stream", channel=self._group.stream, message_ids=[entry], data=fields)
        with suppress(ClosedResourceError):  # the subscriber stops, and gives back what it has
            await self._served.subscriber.consume_one(message)
