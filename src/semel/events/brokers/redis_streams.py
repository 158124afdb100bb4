"""Redis streams: `listen` hands the entries of a stream to a consumer, `publisher` adds events to streams.

- An entry belongs to one member of its group at a time. Acknowledging, extending and delaying it are scripts that
  compare the owner first, so nobody settles or takes back what somebody else has by now.
- The time since an entry was last touched is its deadline. It is renewed while a handler runs, over a connection of
  its own and from a thread of its own.
- What has to wait belongs to a member that nobody is, and its due time stands beside the stream. One listener of the
  group at a time looks for what is due, and for what a member left behind that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from types import TracebackType
from typing import Any, Final, Self

from semel.deadlines import Deadlines
from semel.errors import UsageError
from semel.events.brokers.limits import BrokerLimits
from semel.events.brokers.listening import (
    CONCURRENCY,
    PREFETCH,
    STOP_WITHIN,
    AnyConsumer,
    Message,
    RetryDelay,
    Subscription,
    cancel_all,
    identity_of,
    log,
    run_listener,
)
from semel.events.brokers.redis_group import (
    ACKNOWLEDGE,
    ANSWER_WITHIN,
    LEAVE,
    SWEEP_EVERY,
    Group,
    is_unavailable,
)
from semel.events.disposition import Disposition
from semel.events.event import Event
from semel.extras import requires
from semel.validation import Duration, to_timedelta

with requires("semel.events.brokers.redis_streams", "redis"):
    from redis.asyncio import ConnectionPool, Redis
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import OutOfMemoryError, RedisError, ResponseError
    from redis.exceptions import TimeoutError as RedisTimeoutError

ACK_WAIT: Final = timedelta(seconds=30)
_BODY: Final = b"data"
_ONE_SHAPE: Final = {"protocol": 2, "decode_responses": False}
"""By which answers have the shape that is read here."""
_BLOCK_MS: Final = 2000
_GONE_AFTER_MS: Final = 3_600_000
_GROUP_IS_GONE: Final = ("NOGROUP", "UNBLOCKED")
_KEEPS_UNREAD_FROM: Final = (8, 2)
_DEDUPLICATES_FROM: Final = (8, 6)
_PRODUCER: Final = "semel"
"""One for all relays: the identity names its event among all others."""
_LOST: Final = (RedisConnectionError, RedisTimeoutError, OSError, TimeoutError)


@asynccontextmanager
async def listen(
    consumer: AnyConsumer,
    url: str,
    *,
    stream: str,
    group: str | None = None,
    concurrency: int = CONCURRENCY,
    prefetch: int = PREFETCH,
    ack_wait: Duration = ACK_WAIT,
    no_ack: bool = False,
    dead_letter_stream: str | None = None,
    stop_within: Duration = STOP_WITHIN,
    **options: Any,
) -> AsyncIterator[None]:
    """Hand the entries of a stream to a consumer for as long as the block runs.

    At its end no further entry is taken, handlers that run are waited for, and what waits is left to others at once.
    The stream and the group are made if they are not there; the group begins at the first entry of the stream.

    Args:
        consumer: of a `Semel` (its handlers run in threads) or of an `AsyncSemel`.
        url: of the server, such as `redis://host:6379/0`.
        stream: the name of the stream.
        group: the name of the group, by default that of `consumer`.
        concurrency: how many handlers run at a time.
        prefetch: how many entries are taken before the first is acknowledged.
        ack_wait: how long an entry stays with a process that is gone.
        no_ack: refused; entries that are read without an acknowledgement are lost by a crash.
        dead_letter_stream: where a copy of each dead letter is added, after it is stored.
        stop_within: how long to wait at the end for handlers that run.
        options: of `redis.asyncio.Redis.from_url`.

    Raises:
        UsageError: something is set so that entries would be lost, or dead letters come again for ever.
    """
    if no_ack:
        raise UsageError(
            "no_ack=True has the server forget an entry when it is read, so that a crash loses it; nothing was taken. "
            "Leave it out."
        )
    if dead_letter_stream == stream:
        raise UsageError(
            f"dead_letter_stream is {stream!r}, which is listened to, so that the copy of a dead letter would be "
            f"delivered and copied again and again; nothing was taken. Name another stream."
        )
    subscription = _Subscription(
        Group(_connecting(url, options), stream, group or consumer.name),
        prefetch=max(prefetch, concurrency),
        ack_wait=to_timedelta("ack_wait", ack_wait, error=UsageError).total_seconds(),
        longest=consumer.policy.max_runtime.total_seconds(),
        dead_letter_stream=dead_letter_stream,
    )
    async with run_listener(consumer, subscription, concurrency=concurrency, stop_within=stop_within):
        yield


async def read_stream(url: str, stream: str, group: str | None, **options: Any) -> BrokerLimits:
    """How long a stream may deliver an entry again, and whether the server drops some by itself.

    Raises:
        UsageError: there is no such stream or group.
        ConnectionError: the server cannot be reached.
    """
    return await read_stream_of(_connecting(url, options), stream, group)


async def read_stream_of(connect: Callable[[], Redis], stream: str, group: str | None) -> BrokerLimits:
    """The same over a connection that somebody else opens.

    Raises:
        UsageError: there is no such stream or group.
        ConnectionError: the server cannot be reached.
    """
    client = connect()
    try:
        groups: Any = await client.xinfo_groups(stream)
        policy = await _eviction_policy(client)
    except _LOST as error:
        raise ConnectionError(f"Redis could not be reached ({type(error).__name__}).") from error
    except ResponseError as error:
        if is_unavailable(error):
            raise ConnectionError(f"Redis takes no commands for now ({error}).") from error
        raise UsageError(_why_unread(error, stream)) from error
    finally:
        await client.aclose()
    names = [one["name"].decode() for one in groups]
    if group is not None and group not in names:
        raise UsageError(f"The stream {stream!r} has no group {group!r}; nothing was done. Groups are made by listen.")
    return BrokerLimits(
        place=f"stream {stream}", longest=None, limited_by="MAXLEN of its publishers", drops_when_full=policy
    )


def _why_unread(error: ResponseError, stream: str) -> str:
    told = str(error)
    if "no such key" in told:
        return f"There is no stream {stream!r} on this server; nothing was done."
    if told.startswith("WRONGTYPE"):
        return f"The key {stream!r} is no stream; nothing was done."
    return f"The server does not show the stream {stream!r}: {told}. Nothing was done."


async def _eviction_policy(client: Redis) -> str | None:
    """The setting by which a full server drops whole streams, where it has one and tells it."""
    try:
        found: Any = await client.config_get("maxmemory-policy")
    except ResponseError:
        return None  # services that are managed by others do not let it be read
    policy = found.get("maxmemory-policy", "")
    return f"maxmemory-policy = {policy}" if policy.startswith("allkeys") else None


def _connecting(url: str, options: dict[str, Any]) -> Callable[[], Redis]:
    within = {"socket_timeout": ANSWER_WITHIN, "socket_connect_timeout": ANSWER_WITHIN}

    def connect() -> Redis:
        pool = ConnectionPool.from_url(url, **{**within, **options})
        pool.connection_kwargs.update(_ONE_SHAPE)  # here, because what a URL says goes before what is given beside it
        return Redis.from_pool(pool)

    return connect


def _longest_block_of(client: Redis) -> int:
    """For how many milliseconds a read may wait for entries: for less than the client waits for an answer."""
    within = client.connection_pool.connection_kwargs.get("socket_timeout")
    return _BLOCK_MS if within is None else max(1, min(_BLOCK_MS, int(within * 500)))


async def _forget_connections(client: Redis) -> None:
    """Have the next command look up the address again: after a failover it leads to another server."""
    await client.connection_pool.disconnect(inuse_connections=False)


class _Subscription(Subscription):
    """A member of a group, which reads as many entries as there is room for."""

    can_hold_off = True

    def __init__(
        self, group: Group, *, prefetch: int, ack_wait: float, longest: float, dead_letter_stream: str | None
    ) -> None:
        self._group = group
        self._prefetch = prefetch
        self._ack_wait = ack_wait
        self._dead_letter_stream = dead_letter_stream
        self._take: Callable[[Message], None] = lambda _: None
        self._client = group.connect()
        self._block_ms = _longest_block_of(self._client)
        self._deadlines = Deadlines(group.connect_extender, every=ack_wait / 3, longest=longest)
        self._held: set[bytes] = set()
        self._room = asyncio.Event()
        self._is_paused = False
        self._is_held_off = False
        self._next_pass = 0.0
        self._may_have_more = False
        """Whether the server may count entries as ours that we do not know of: an answer was lost."""
        self._ready: list[bytes] = []
        self._flushing: asyncio.Task[None] | None = None

    async def start(self, take: Callable[[Message], None]) -> None:
        self._take = take
        try:
            await self._group.make(self._client)
        except _LOST as error:
            raise ConnectionError(f"Redis could not be reached ({type(error).__name__}); nothing was taken.") from error
        except ResponseError as error:
            if is_unavailable(error):
                raise ConnectionError(f"Redis takes no commands for now ({error}); nothing was taken.") from error
            raise UsageError(
                f"{self._group.stream!r} cannot be read as a stream: {error}. Nothing was taken."
            ) from error
        self._deadlines.start()

    async def run(self) -> None:
        tasks = [asyncio.create_task(self._repeat(step)) for step in (self._read, self._sweep)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            await cancel_all(tasks)

    async def _repeat(self, step: Callable[[], Any]) -> None:
        delay = RetryDelay()
        while not self._is_paused:
            try:
                await step()
                delay.reset()
            except _LOST as error:
                self._may_have_more = True
                await delay.wait(f"the connection to Redis is lost ({type(error).__name__})")
            except ResponseError as error:
                if is_unavailable(error):
                    self._may_have_more = True  # a script may have come to its middle
                    await delay.wait(f"Redis takes no commands for now ({error})")
                    await _forget_connections(self._client)
                elif any(code in str(error) for code in _GROUP_IS_GONE):
                    await delay.wait(f"the group {self._group.name} of {self._group.stream} is gone and is made again")
                    with suppress(*_LOST, ResponseError):  # the next step meets what is wrong
                        await self._group.make(self._client)
                else:
                    raise

    async def _read(self) -> None:
        """Read entries that nobody has; after an answer was lost, those that the server counts as ours."""
        self._room.clear()
        free = self._free
        if free <= 0:
            await self._room.wait()
            return
        rereads, self._may_have_more = self._may_have_more, False
        streams: dict[Any, Any] = {self._group.stream: "0" if rereads else ">"}
        count = self._prefetch if rereads else free
        try:
            found: Any = await self._client.xreadgroup(
                self._group.name, self._group.member, streams, count=count, block=None if rereads else self._block_ms
            )
        except BaseException:
            self._may_have_more = True
            raise
        for _, entries in found or ():
            self._receive(entries)

    @property
    def _free(self) -> int:
        """How many entries there is room for."""
        return 0 if self._is_held_off else self._prefetch - len(self._held)

    async def _sweep(self) -> None:
        """Look for what is due, and every third part of a deadline for what somebody left behind."""
        now = asyncio.get_running_loop().time
        free = self._free
        if free > 0:
            idle_ms = int(self._ack_wait * 1000) if now() >= self._next_pass else None
            swept = await self._group.sweep(self._client, free, idle_ms=idle_ms, gone_after_ms=_GONE_AFTER_MS)
            if swept is not None:
                self._receive(swept.entries)
                if swept.is_over:
                    self._next_pass = now() + self._ack_wait / 3
        await asyncio.sleep(SWEEP_EVERY)

    def _receive(self, entries: Sequence[Any]) -> None:
        for id_, fields in entries:
            if id_ in self._held and not self._deadlines.is_over(id_):
                continue  # it is being handled here, and not by a handler that is wedged
            if not fields:
                self._acknowledge_what_was_dropped(id_)
                continue
            self._held.add(id_)
            self._deadlines.hold(id_)
            names = {name.decode("utf-8", "replace"): value for name, value in fields.items() if name != _BODY}
            self._take(Message(names, fields.get(_BODY, b""), (id_, fields)))

    def _acknowledge_what_was_dropped(self, id_: bytes) -> None:
        """Let go of an entry that the server counts as ours and has no more: its stream was limited."""
        self._group.say_dropped(id_)
        self._held.add(id_)
        self._acknowledge_soon(id_)

    async def pause(self) -> None:
        self._is_paused = True
        self._room.set()

    def hold_off(self) -> None:
        self._is_held_off = True

    def go_on(self) -> None:
        self._is_held_off = False
        self._room.set()

    async def close(self) -> None:
        await self._deadlines.stop()
        with suppress(*_LOST, ResponseError):
            if self._flushing is not None:
                await self._flushing  # what is on its way counts only while the entries are ours
            await self._flush()
            await self._group.run(self._client, LEAVE)
        await self._client.aclose()

    def begin(self, message: Message) -> None:
        self._deadlines.begin(message.token[0])

    def abandon(self, message: Message) -> None:
        self._deadlines.release(message.token[0])
        self._held.discard(message.token[0])
        self._room.set()

    async def acknowledge(self, message: Message) -> None:
        self._deadlines.release(message.token[0])
        self._acknowledge_soon(message.token[0])

    def _acknowledge_soon(self, id_: bytes) -> None:
        self._ready.append(id_)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_soon())

    async def _flush_soon(self) -> None:
        """Acknowledge together what becomes ready at the same time."""
        while self._ready:
            await asyncio.sleep(0)
            await self._flush()

    async def _flush(self) -> None:
        ids, self._ready = self._ready, []
        if ids:
            await self._say(ids, self._group.run(self._client, ACKNOWLEDGE, *ids))

    async def _say(self, ids: Sequence[bytes], what: Awaitable[Any]) -> None:
        try:
            await what
        except (*_LOST, ResponseError):
            self._may_have_more = True  # it is still counted as ours, and read again
        self._held.difference_update(ids)
        self._room.set()

    async def retry(self, message: Message, after: timedelta) -> None:
        id_ = message.token[0]
        self._deadlines.release(id_)
        await self._say([id_], self._group.delay(self._client, id_, after))

    async def give_back(self, message: Message) -> None:
        await self.retry(message, timedelta())

    async def dead_letter(self, message: Message, disposition: Disposition) -> None:
        if self._dead_letter_stream is not None:
            fields = {**message.token[1], b"semel-reason": disposition.status.encode()}
            fields[b"semel-reference"] = (disposition.reference or "").encode()
            try:
                await self._client.xadd(self._dead_letter_stream, fields)
            except RedisError as error:
                log.warning("a dead letter was not passed on (%s); it is tried again", type(error).__name__)
                await self.retry(message, timedelta(seconds=5))
                return
        await self.acknowledge(message)


def publisher(
    url: str,
    *,
    stream: str | Callable[[Event], str],
    max_length: int | None = None,
    keep_unread: bool = False,
    confirm_within: Duration = 30.0,
    **options: Any,
) -> RedisPublisher:
    """A publisher for a relay: adds events to streams and waits until the server has them.

    Args:
        url: of the server.
        stream: a name, or a callable that makes one of an event. A stream that is not there is made.
        max_length: about how many entries a stream keeps; older ones are dropped, whether or not somebody read them.
        keep_unread: drop only what every group of the stream has acknowledged (from Redis 8.2 on; older servers, and
            Valkey, then drop nothing).
        confirm_within: how long to wait for the server.
        options: of `redis.asyncio.Redis.from_url`.

    Raises:
        UsageError: `keep_unread` is set without `max_length`.
    """
    if keep_unread and max_length is None:
        raise UsageError(
            "keep_unread=True says which entries may be dropped, and without max_length= none are; nothing was sent. "
            "Set max_length=, or leave keep_unread= out."
        )
    within = to_timedelta("confirm_within", confirm_within, error=UsageError)
    return RedisPublisher(url, stream, _Limit(max_length, keep_unread), within, options)


class RedisPublisher:
    """Adds events, a whole list in one write, and says of each whether the server has it."""

    def __init__(
        self,
        url: str,
        stream: str | Callable[[Event], str],
        limit: _Limit,
        confirm_within: timedelta,
        options: dict[str, Any],
    ) -> None:
        self._stream = stream
        self._limit = limit
        self._confirm_within = confirm_within.total_seconds()
        self._client = Redis.from_url(url, **options)
        self._version: tuple[int, ...] | None = None
        """Which release of Redis the server is; None as long as it was not asked since a connection was lost."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection."""
        await self._client.aclose()

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        """Add events; gives for each None, or why the server does not have it.

        Raises:
            ConnectionError: the server cannot be reached; it may have some of them.
        """
        prepared = [self._prepare(event) for event in events]
        try:
            async with asyncio.timeout(self._confirm_within):
                answers = iter(await self._add_all([one for one in prepared if not isinstance(one, Exception)]))
        except _LOST as error:
            self._version = None  # after a failover another server may answer
            raise ConnectionError(
                f"Redis could not be reached, or did not answer in time ({type(error).__name__}); events that were not "
                f"confirmed have to be published again."
            ) from error
        try:
            return [one if isinstance(one, Exception) else _verdict(next(answers), one.stream) for one in prepared]
        except ConnectionError:
            self._version = None
            await _forget_connections(self._client)
            raise

    async def _add_all(self, entries: Sequence[_Entry]) -> list[Any]:
        """Add entries, and give the server's answers.

        The client connects again by itself, so that another server may answer than was asked for its version. What it
        refuses then is added again with what it knows.
        """
        answers = await self._add(entries)
        refused = [place for place, answer in enumerate(answers) if _is_refused(answer)]
        if refused and await self._has_another_version():
            again = await self._add([entries[place] for place in refused])
            for place, answer in zip(refused, again, strict=True):
                answers[place] = answer
        return answers

    async def _add(self, entries: Sequence[_Entry]) -> list[Any]:
        if self._version is None:
            self._version = await self._ask_version()
        pipeline = self._client.pipeline(transaction=False)
        for entry in entries:
            pipeline.execute_command("XADD", *self._arguments(entry))
        return list(await pipeline.execute(raise_on_error=False))

    async def _has_another_version(self) -> bool:
        before, self._version = self._version, await self._ask_version()
        return self._version != before

    async def _ask_version(self) -> tuple[int, ...]:
        version = await read_version(self._client)
        if self._limit.keep_unread and version < _KEEPS_UNREAD_FROM:
            log.warning("the server cannot keep what is unread when it drops entries (Redis 8.2 can); none are dropped")
        return version

    def _prepare(self, event: Event) -> _Entry | Exception:
        try:
            name = self._stream(event) if callable(self._stream) else self._stream
            headers, body = event.to_headers()
        except Exception as error:  # noqa: BLE001 - of this event alone
            return error
        return _Entry(name, identity_of(event.source, event.id), {**headers, _BODY: body})

    def _arguments(self, entry: _Entry) -> list[Any]:
        """What XADD is given: how long the stream may be, and the identity, by which the server leaves out a repeat."""
        version = self._version or ()
        arguments: list[Any] = [entry.stream, *self._limit.to_arguments(version)]
        if version >= _DEDUPLICATES_FROM:
            arguments += ["IDMP", _PRODUCER, entry.identity]
        return [*arguments, "*", *chain.from_iterable(entry.fields.items())]


@dataclass(frozen=True, slots=True)
class _Limit:
    """How long a stream may be, and what may be dropped for that."""

    length: int | None
    keep_unread: bool

    def to_arguments(self, version: tuple[int, ...]) -> list[Any]:
        """What XADD is given. A server that cannot tell what was read drops nothing rather than what was not."""
        if self.length is None or (self.keep_unread and version < _KEEPS_UNREAD_FROM):
            return []
        return ["MAXLEN", "~", self.length, *(["ACKED"] if self.keep_unread else [])]


@dataclass(frozen=True, slots=True)
class _Entry:
    """An event as an entry of a stream."""

    stream: str
    identity: str
    fields: dict[Any, Any]


async def read_version(client: Redis) -> tuple[int, ...]:
    """Which release of Redis a server is, by which its commands are known; empty where it does not tell.

    Valkey tells a version of Redis, too, and is none: it has not what came to Redis after 7.2.
    """
    try:
        told: Any = await client.info("server")
    except ResponseError:
        return ()  # services that are managed by others do not let it be read
    if "valkey_version" in told:
        return ()
    return tuple(int(part) for part in str(told.get("redis_version", "")).split(".")[:2] if part.isdigit())


def _is_refused(answer: Any) -> bool:
    """Whether the server does not take an entry as it was given, now or later."""
    return isinstance(answer, ResponseError) and not is_unavailable(answer)


def _verdict(answer: Any, stream: str) -> Exception | None:
    """What came of one event.

    Raises:
        ConnectionError: the server takes no writes for now.
    """
    match answer:
        case OutOfMemoryError():
            return OSError("Redis has no memory left for the event.")
        case ResponseError() if is_unavailable(answer):
            raise ConnectionError(f"Redis takes no writes for now ({answer}); publish the event again.") from answer
        case RedisConnectionError() | RedisTimeoutError():
            raise ConnectionError("Redis takes no writes for now; the event has to be published again.") from answer
        case ResponseError() if str(answer).startswith("WRONGTYPE"):
            return LookupError(f"{stream!r} is no stream, so Redis does not take the event.")
        case ResponseError():
            return ValueError(f"Redis does not take the event: {answer}")
        case Exception():
            return answer
    return None
