"""NATS JetStream: `listen` hands the messages of a durable consumer to ours, `publisher` sends events to subjects.

- Deadlines (`ack_wait`) are extended while a handler runs, over a connection of their own and from a thread of their
  own: a handler that burns the processor for longer than its deadline is not delivered to somebody else.
- Whatever is said of one delivery counts for the message, also if it was delivered to somebody else since. A handler
  that lost its lease therefore says nothing.
- Events are published under a message id of source and id, by which the stream leaves repeats out.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self

from semel.deadlines import Deadlines, Extend
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
    identity_of,
    log,
    run_listener,
)
from semel.events.disposition import Disposition
from semel.events.event import Event
from semel.extras import requires
from semel.validation import Duration, to_timedelta

with requires("semel.events.brokers.nats", "nats"):
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.errors import BadSubjectError, MaxPayloadError
    from nats.errors import Error as NatsError
    from nats.js import JetStreamContext
    from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DiscardPolicy
    from nats.js.errors import APIError, BadRequestError, NoStreamResponseError, NotFoundError, ServiceUnavailableError

IN_FLIGHT: Final = 256
"""Events that are published before the first is confirmed."""
ACK_WAIT: Final = timedelta(seconds=30)
_WRITTEN_TOGETHER: Final = 8
_PULL_FOR: Final = 20.0
_CONNECT_WITHIN: Final = 15.0
_NOT_CONFIRMED: Final = (
    "NATS could not be reached, or did not confirm in time ({}); what was not confirmed has to be published again."
)
_NO_RESPONDERS: Final = "503"
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What the client takes for the name of a header."""
_NOT_IN_NAMES: Final = ".*>/\\ \t\r\n"
_LOST: Final = (NatsError, OSError, asyncio.TimeoutError)


@asynccontextmanager
async def listen(
    consumer: AnyConsumer,
    url: str,
    *,
    stream: str,
    durable: str | None = None,
    subject: str | None = None,
    concurrency: int = CONCURRENCY,
    prefetch: int = PREFETCH,
    ack_wait: Duration = ACK_WAIT,
    dead_letter_subject: str | None = None,
    stop_within: Duration = STOP_WITHIN,
    **options: Any,
) -> AsyncIterator[None]:
    """Hand the messages of a stream to a consumer for as long as the block runs.

    At its end no further message is taken, and handlers that run are waited for.

    Args:
        consumer: of a `Semel` (its handlers run in threads) or of an `AsyncSemel`.
        url: of the broker, such as `nats://host:4222`.
        stream: the name of the stream, which must be there.
        durable: the name of the durable consumer on the broker, by default that of `consumer`. It is made if it is not
            there; one that is there is checked.
        subject: which subjects of the stream it takes, where it is made; by default all.
        concurrency: how many handlers run at a time.
        prefetch: how many messages the broker gives before the first is acknowledged.
        ack_wait: how long the broker waits for an acknowledgement, where the durable consumer is made.
        dead_letter_subject: where a copy of each dead letter is published, after it is stored.
        stop_within: how long to wait at the end for handlers that run.
        options: of `nats.connect`, such as `user_credentials`.

    Raises:
        UsageError: the stream is not there, a name is none for NATS, or the durable consumer is set so that messages
            would be lost.
    """
    check_names(stream, durable or consumer.name)
    wanted = ConsumerConfig(
        durable_name=durable or consumer.name,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=to_timedelta("ack_wait", ack_wait, error=UsageError).total_seconds(),
        max_ack_pending=-1,
        filter_subject=subject,
    )
    subscription = _Subscription(
        url,
        options,
        stream,
        wanted,
        prefetch=max(prefetch, concurrency),
        concurrency=concurrency,
        longest=consumer.policy.max_runtime.total_seconds(),
        dead_letter_subject=dead_letter_subject,
    )
    async with run_listener(consumer, subscription, concurrency=concurrency, stop_within=stop_within):
        yield


def check_names(stream: str, durable: str | None) -> None:
    """Refuse names that are a part of subjects, and would be several parts or none.

    Raises:
        UsageError: one of them is such a name.
    """
    for kind, name, advice in (("stream", stream, ""), ("durable consumer", durable, ", such as by durable=")):
        if name is not None and (not name or any(letter in _NOT_IN_NAMES for letter in name)):
            raise UsageError(
                f"NATS has no {kind} of the name {name!r:.200}; nothing was taken. Give one{advice} without dots, "
                f"spaces, slashes, * and >."
            )


async def _connect(url: str | list[str], options: Mapping[str, Any], **callbacks: Any) -> Client:
    """A connection that comes back by itself.

    Raises:
        ConnectionError: nobody answers.
    """

    async def report(error: Exception) -> None:
        log.debug("NATS: %s", type(error).__name__)

    settings: dict[str, Any] = {"max_reconnect_attempts": -1, "reconnect_time_wait": 0.2, "error_cb": report}
    # The client waits for a first connection without an end; whoever begins wants to hear that nobody is there.
    first = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.05, "connect_timeout": 5}
    try:
        async with asyncio.timeout(_CONNECT_WITHIN):
            probe = await _open(url, {**settings, **options, **first})
            await probe.close()
            return await _open(url, {**settings, **callbacks, **options})
    except (NatsError, OSError, TimeoutError) as error:
        raise ConnectionError(f"NATS could not be reached ({type(error).__name__}); nothing was sent.") from error


async def _open(url: str | list[str], settings: Mapping[str, Any]) -> Client:
    """Connect; the client leaves the socket of a greeting that was cut short open."""
    client = Client()
    try:
        await client.connect(url, **settings)
    except BaseException:
        with suppress(*_LOST):
            await client.close()
        raise
    return client


@asynccontextmanager
async def connect_extender(url: str | list[str], options: Mapping[str, Any]) -> AsyncIterator[Extend]:
    """Connect, in the thread of the deadlines, what extends those of messages by where their answers go.

    Raises:
        ConnectionError: the connection is lost.
    """
    client = await _connect(url, options)

    async def extend(replies: Sequence[str]) -> None:
        for reply in replies:
            await client.publish(reply, b"+WPI")
        await client.flush()

    try:
        yield extend
    except NatsError as error:
        raise ConnectionError(str(error)) from error
    finally:
        await client.close()


class _Subscription(Subscription):
    """A durable consumer of a stream, which is asked for as many messages as there is room for."""

    settles_others = True
    can_hold_off = True

    def __init__(
        self,
        url: str,
        options: dict[str, Any],
        stream: str,
        wanted: ConsumerConfig,
        *,
        prefetch: int,
        concurrency: int,
        longest: float,
        dead_letter_subject: str | None,
    ) -> None:
        self._url = url
        self._options = options
        self._stream = stream
        self._wanted = wanted
        self._prefetch = prefetch
        self._worth_asking = max(1, min(prefetch // 4, prefetch - concurrency))
        self._longest = longest
        self._dead_letter_subject = dead_letter_subject
        self._take: Callable[[Message], None] = lambda _: None
        self._client: Client | None = None
        self._deadlines: Deadlines | None = None
        self._incoming: Any = None
        self._inbox = ""
        self._asked = 0
        """Messages that were asked for and have not come."""
        self._held: set[str] = set()
        self._room = asyncio.Event()
        self._is_paused = False
        self._is_held_off = False
        self._asked_last = 0
        self._most = prefetch
        """Messages that one request may ask for."""
        self._pull_for = _PULL_FOR
        self._is_missing = False
        """Whether the broker has no such durable consumer any more."""
        self._refusal: str | None = None
        """Why the broker did not take a request."""
        self._delay = RetryDelay()

    @property
    def _connection(self) -> Client:
        assert self._client is not None  # noqa: S101 - set by `start`
        return self._client

    async def start(self, take: Callable[[Message], None]) -> None:
        self._take = take
        self._client = await _connect(self._url, self._options, reconnected_cb=self._on_reconnected)
        info = await self._make_ready(self._client.jetstream())
        ack_wait = info.config.ack_wait or ACK_WAIT.total_seconds()
        self._deadlines = Deadlines(
            lambda: connect_extender(self._url, self._options), every=ack_wait / 3, longest=self._longest
        )
        self._deadlines.start()
        self._inbox = self._client.new_inbox()
        self._incoming = await self._client.subscribe(
            self._inbox, cb=self._receive, pending_msgs_limit=-1, pending_bytes_limit=-1
        )

    async def _make_ready(self, context: JetStreamContext) -> ConsumerInfo:
        try:
            return await self._find_or_make(context)
        except ServiceUnavailableError as error:
            raise ConnectionError(
                "JetStream is not available there (`nats-server -js` starts with it); nothing was taken."
            ) from error
        except APIError as error:
            name = self._wanted.durable_name
            raise UsageError(
                f"NATS refuses the durable consumer {name!r}: {error.description}. Nothing was taken."
            ) from error
        except _LOST as error:
            raise ConnectionError(f"NATS did not answer ({type(error).__name__}); nothing was taken.") from error

    async def _find_or_make(self, context: JetStreamContext) -> ConsumerInfo:
        name = str(self._wanted.durable_name)
        info: ConsumerInfo
        try:
            info = await context.consumer_info(self._stream, name)
        except NotFoundError:
            try:
                info = await context.add_consumer(self._stream, self._wanted)
            except NotFoundError as error:
                raise UsageError(
                    f"There is no stream {self._stream!r} on this broker; nothing was taken. Make it, with the "
                    f"subjects that it is to keep."
                ) from error
        check_acknowledgements(info, name)
        if info.config.deliver_subject:
            raise UsageError(
                f"The durable consumer {name!r} pushes to {info.config.deliver_subject!r}, and messages are asked for "
                f"here; nothing was taken. Make one without a deliver subject."
            )
        await self._read_limits(name)
        return info

    async def _read_limits(self, name: str) -> None:
        """Learn what one request may ask for; the client leaves that out of what it tells of a durable consumer."""
        told = await self._connection.request(f"$JS.API.CONSUMER.INFO.{self._stream}.{name}", timeout=_CONNECT_WITHIN)
        config = json.loads(told.data).get("config", {})
        self._most = int(config.get("max_batch") or self._prefetch)
        self._pull_for = min(_PULL_FOR, int(config.get("max_expires") or _PULL_FOR * 1e9) / 1e9)

    async def _on_reconnected(self) -> None:
        self._asked = 0  # what was asked for over the old connection is forgotten
        self._room.set()

    async def run(self) -> None:
        while not self._is_paused:
            if self._is_missing:
                await self._make_again()
            if self._refusal is not None:
                reason, self._refusal = self._refusal, None
                await self._delay.wait(f"NATS refused to give messages of {self._stream} ({reason})")
                with suppress(*_LOST):
                    await self._read_limits(str(self._wanted.durable_name))
            self._room.clear()
            with suppress(*_LOST):
                # Many with one request; but never so few are held that a handler would have nothing to do.
                while self._free >= self._worth_asking and self._refusal is None:
                    await self._ask(min(self._free, self._most))
            try:
                async with asyncio.timeout(_PULL_FOR + 5):
                    await self._room.wait()
            except TimeoutError:
                self._asked = 0  # the broker says when a request is over; if it did not, the request is lost

    @property
    def _free(self) -> int:
        """How many messages there is room for that nobody has asked for."""
        return 0 if self._is_held_off else self._prefetch - len(self._held) - self._asked

    async def _make_again(self) -> None:
        """Make a durable consumer that was deleted; it begins at the first message, and the inbox leaves repeats out.

        Raises:
            UsageError: the stream is gone too.
        """
        name = self._wanted.durable_name
        await self._delay.wait(f"the durable consumer {name} of {self._stream} is gone and is made again")
        with suppress(*_LOST):
            await self._find_or_make(self._connection.jetstream())
            self._is_missing = False
            self._asked = 0

    async def _ask(self, number: int) -> None:
        self._asked += number
        self._asked_last = number
        request = json.dumps({"batch": number, "expires": int(self._pull_for * 1e9)}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._wanted.durable_name}"
        await self._connection.publish(subject, request, reply=self._inbox)

    async def _receive(self, received: Msg) -> None:
        headers = received.headers or {}
        if "Status" in headers:
            self._on_status(headers)
            return
        self._delay.reset()
        self._asked = max(0, self._asked - 1)
        self._held.add(received.reply)
        assert self._deadlines is not None  # noqa: S101 - set before anything is asked for
        self._deadlines.hold(received.reply)
        self._take(Message(headers, received.data, received))

    def _on_status(self, headers: dict[str, str]) -> None:
        if headers["Status"] == "100":
            return
        reason = headers.get("Description", "")
        is_conflict = headers["Status"] == "409"
        over = headers.get("Nats-Pending-Messages", "")
        if headers["Status"] == _NO_RESPONDERS or (is_conflict and "Deleted" in reason):
            self._is_missing = True
        elif is_conflict:
            self._refusal = reason
            if "Exceeded" in reason:  # the request was not taken at all, and others may be open
                over = str(self._asked_last)
        self._asked = max(0, self._asked - int(over)) if over.isdecimal() else 0
        self._room.set()

    async def pause(self) -> None:
        self._is_paused = True
        self._room.set()
        if self._incoming is not None:
            # What was asked for and comes before the broker hears of this still arrives, and is given back.
            with suppress(*_LOST):
                await self._incoming.drain()
            self._incoming = None

    def hold_off(self) -> None:
        self._is_held_off = True

    def go_on(self) -> None:
        self._is_held_off = False
        self._room.set()

    async def close(self) -> None:
        if self._deadlines is not None:
            await self._deadlines.stop()
        if self._client is not None:
            with suppress(*_LOST):
                await self._client.flush()
            await self._client.close()

    def begin(self, message: Message) -> None:
        if self._deadlines is not None:
            self._deadlines.begin(message.token.reply)

    def abandon(self, message: Message) -> None:
        reply = message.token.reply
        if self._deadlines is not None:
            self._deadlines.release(reply)
        self._held.discard(reply)
        if self._free >= self._worth_asking:
            self._room.set()

    async def _say(self, message: Message, what: bytes) -> None:
        self.abandon(message)
        with suppress(*_LOST):
            await self._connection.publish(message.token.reply, what)

    async def acknowledge(self, message: Message) -> None:
        await self._say(message, b"+ACK")

    async def retry(self, message: Message, after: timedelta) -> None:
        nanoseconds = int(after.total_seconds() * 1e9)
        await self._say(message, b"-NAK " + json.dumps({"delay": nanoseconds}).encode())

    async def give_back(self, message: Message) -> None:
        await self._say(message, b"-NAK")

    async def dead_letter(self, message: Message, disposition: Disposition) -> None:
        if self._dead_letter_subject is not None:
            headers = _headers_of_copy(message.headers)
            told = {**headers, "Semel-Reason": disposition.status, "Semel-Reference": disposition.reference or ""}
            if len(message.body) + size_of(told) <= self._connection.max_payload:
                headers = told  # with more the server would close the connection, again and again
            try:
                context = self._connection.jetstream()
                await context.publish(self._dead_letter_subject, message.body, headers=headers)
            except _LOST as error:
                log.warning("a dead letter was not passed on (%s); it is tried again", type(error).__name__)
                await self.retry(message, timedelta(seconds=5))
                return
        await self._say(message, b"+TERM")


def _headers_of_copy(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that go with the copy of a message.

    What was said to the server (`Nats-…`) is not said again: the message id would have the copy taken for a repeat, and
    what is demanded of one stream the other would refuse for ever. So would the client, which reads more names than it
    writes.
    """
    return {
        name: text
        for name, text in headers.items()
        if _HEADER_NAME.fullmatch(name) and not name.lower().startswith("nats-")
    }


def check_acknowledgements(info: ConsumerInfo, name: str) -> None:
    """Refuse a durable consumer that loses messages.

    Raises:
        UsageError: it acknowledges by itself, or one acknowledgement counts for others.
    """
    config = info.config
    if config.ack_policy != AckPolicy.EXPLICIT:
        raise UsageError(
            f"The durable consumer {name!r} has the acknowledgement policy {_text(config.ack_policy)!r}: a message "
            f"would count as done before its handler ended; nothing was taken. Make it with ack_policy explicit."
        )
    warn_of_limit(config, name)


def warn_of_limit(config: ConsumerConfig, name: str) -> None:
    """Say it where the broker gives messages up before the consumer does."""
    if config.max_deliver is not None and config.max_deliver > 0:
        log.warning(
            "the broker gives a message up after %d deliveries (max_deliver of %s), also those that only had to wait; "
            "max_attempts of the consumer counts what failed. Set max_deliver to -1",
            config.max_deliver,
            name,
        )


def _text(policy: Any) -> str:
    return str(getattr(policy, "value", policy))


async def read_stream(url: str | list[str], stream: str, durable: str | None = None, **options: Any) -> BrokerLimits:
    """Ask for the settings of a stream and of a durable consumer; one that is not there is left out.

    Raises:
        ConnectionError: the broker cannot be reached.
        UsageError: there is no such stream.
    """
    check_names(stream, durable)
    client = await _connect(url, options)
    try:
        context = client.jetstream()
        config = (await context.stream_info(stream)).config
        limit: int | None = None
        if durable is not None:
            with suppress(NotFoundError):
                limit = (await context.consumer_info(stream, durable)).config.max_deliver
    except NotFoundError as error:
        raise UsageError(f"There is no stream {stream!r} on this broker; nothing was changed.") from error
    except _LOST as error:
        raise ConnectionError(f"NATS did not answer ({type(error).__name__}).") from error
    finally:
        await client.close()
    has_limit = any(value is not None and value > 0 for value in (config.max_msgs, config.max_bytes))
    return BrokerLimits(
        place=f"stream {stream}",
        longest=timedelta(seconds=config.max_age) if config.max_age else None,
        limited_by="max_age",
        drops_when_full="max_msgs or max_bytes" if has_limit and config.discard != DiscardPolicy.NEW else None,
        delivery_limit=limit if limit is not None and limit > 0 else None,
        delivery_limited_by="max_deliver",
        duplicate_window=timedelta(seconds=config.duplicate_window) if config.duplicate_window else None,
    )


def publisher(
    url: str,
    *,
    subject: str | Callable[[Event], str] | None = None,
    confirm_within: Duration = 30.0,
    in_flight: int = IN_FLIGHT,
    **options: Any,
) -> NatsPublisher:
    """A publisher for a relay: sends events to subjects of streams and waits until the broker has them.

    Args:
        url: of the broker.
        subject: a text, or a callable that makes one of an event; by default its type.
        confirm_within: how long to wait for the broker.
        in_flight: how many events are sent before the first is confirmed.
        options: of `nats.connect`.
    """
    within = to_timedelta("confirm_within", confirm_within, error=UsageError)
    return NatsPublisher(url, _type_of if subject is None else subject, within, in_flight, options)


def _type_of(event: Event) -> str:
    return event.type


class NatsPublisher:
    """Sends events, many at a time, and says of each whether the broker has it."""

    def __init__(
        self,
        url: str,
        subject: str | Callable[[Event], str],
        confirm_within: timedelta,
        in_flight: int,
        options: dict[str, Any],
    ) -> None:
        self._url = url
        self._subject = subject
        self._confirm_within = confirm_within.total_seconds()
        self._in_flight = in_flight
        self._options = options
        self._connection: tuple[Client, asyncio.Future[None]] | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection[0].close()

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        """Send events; gives for each None, or why the broker does not have it.

        Raises:
            ConnectionError: the broker cannot be reached; it may have some of them.
        """
        client, lost = await self._connect()
        context = client.jetstream()
        answers: list[Exception | None] = []
        for start in range(0, len(events), self._in_flight):
            some = events[start : start + self._in_flight]
            sending = asyncio.create_task(self._send_all(context, some, client.max_payload))
            try:
                waiting: set[asyncio.Future[Any]] = {sending, lost}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if not sending.done():
                    raise ConnectionError(_NOT_CONFIRMED.format("the connection was lost"))
                answers += await sending
            except ConnectionError:
                await self.close()
                raise
            finally:
                sending.cancel()
        return answers

    async def _connect(self) -> tuple[Client, asyncio.Future[None]]:
        """The connection, and what is done once it is lost: the client leaves those who wait for an answer waiting."""
        async with self._lock:
            if self._connection is None or self._connection[0].is_closed or self._connection[1].done():
                await self.close()
                lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

                async def lose() -> None:
                    if not lost.done():
                        lost.set_result(None)

                options = {**self._options, "allow_reconnect": False}
                self._connection = await _connect(self._url, options, disconnected_cb=lose, closed_cb=lose), lost
            return self._connection

    async def _send_all(self, context: JetStreamContext, events: Sequence[Event], most: int) -> list[Exception | None]:
        """Send events side by side, and wait until the broker has them.

        The client writes when the loop has a moment: given a few at a time, the broker begins with the first while the
        last is still made.
        """
        sent: list[asyncio.Task[Exception | None]] = []
        try:
            for start in range(0, len(events), _WRITTEN_TOGETHER):
                few = events[start : start + _WRITTEN_TOGETHER]
                sent += [asyncio.create_task(self._send(context, event, most)) for event in few]
                await asyncio.sleep(0)
            return await asyncio.gather(*sent)
        except BaseException:
            for one in sent:
                one.cancel()
            await asyncio.gather(*sent, return_exceptions=True)
            raise

    async def _send(self, context: JetStreamContext, event: Event, most: int) -> Exception | None:
        try:
            subject = self._subject(event) if callable(self._subject) else self._subject
            headers, body = event.to_headers()
        except Exception as error:  # noqa: BLE001 - of this event alone
            return error
        headers["Nats-Msg-Id"] = identity_of(event.source, event.id)
        if len(body) + size_of(headers) > most:
            # The server counts both and closes the connection; the client counts the body alone.
            return ValueError(f"NATS does not take the event: it has more than {most} bytes with its headers.")
        try:
            await context.publish(subject, body, timeout=self._confirm_within, headers=headers)
        except NoStreamResponseError:
            return LookupError(f"NATS has no stream for the subject {subject!r}.")
        except ServiceUnavailableError as error:
            raise ConnectionError("JetStream is not available; the event has to be published again.") from error
        except BadRequestError as error:
            return ValueError(f"NATS does not take the event: {error.description}.")
        except APIError as error:
            return OSError(f"NATS refused the event: {error.description}")
        except (MaxPayloadError, BadSubjectError, UnicodeError) as error:
            return ValueError(f"NATS does not take the event: {error}.")
        except (TimeoutError, NatsError, OSError) as error:
            raise ConnectionError(_NOT_CONFIRMED.format(type(error).__name__)) from error
        return None


def size_of(headers: Mapping[str, str]) -> int:
    """How many bytes headers take on the wire: their first line, a line for each, and an empty one."""
    lines = sum(len(name) + len(text.encode("utf-8", "replace")) + len(": \r\n") for name, text in headers.items())
    return len("NATS/1.0\r\n") + lines + len("\r\n")
