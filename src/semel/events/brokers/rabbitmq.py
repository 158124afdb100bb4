"""RabbitMQ: `listen` hands the messages of a queue to a consumer, `publisher` sends events to an exchange.

- A delivery is acknowledged on the channel it came over, so nobody else's is ever settled by it. Acknowledgements that
  follow each other without a gap are one.
- What has to wait is published, with a confirmation, to a queue whose messages go back to their own after a while, and
  then acknowledged. A crash in between gives it twice, never not at all. Those queues are replicated logs that move a
  message only once it has arrived.
- Nothing extends a delivery here: a broker closes the channel of a message that is not acknowledged within its
  `consumer_timeout`, so a handler must not run that long.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from semel.errors import UsageError
from semel.events.brokers.listening import (
    AFTER_NOTHING,
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
from semel.events.event import Event, attributes_of
from semel.extras import requires
from semel.validation import Duration, to_timedelta

with requires("semel.events.brokers.rabbitmq", "aiormq"):
    import aiormq
    from aiormq.abc import AbstractChannel, AbstractConnection, ChannelFrame, DeliveredMessage
    from aiormq.exceptions import (
        AMQPError,
        ChannelAccessRefused,
        ChannelLockedResource,
        ChannelNotFoundEntity,
        ChannelPreconditionFailed,
        DeliveryError,
        InvalidFrameError,
        PublishError,
    )
    from pamqp import commands
    from pamqp.header import ContentHeader

USUAL_CONSUMER_TIMEOUT: Final = timedelta(minutes=30)
DELAY_WITHIN: Final = timedelta(seconds=5)
"""How long the broker may take to confirm a message that has to wait, before it goes back to its queue."""
_SHORTEST_MS: Final = 64
_LONGEST_MS: Final = 2**27
_MAX_SHORT: Final = 255
"""Bytes of a short string of the protocol."""
_FIRST_TIMESTAMP: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""The protocol has no earlier one; the time of an event is a header, too."""
_LOST: Final = (AMQPError, OSError, RuntimeError)
"""What calls raise whose connection is gone."""


@asynccontextmanager
async def listen(
    consumer: AnyConsumer,
    url: str,
    *,
    queue: str,
    concurrency: int = CONCURRENCY,
    prefetch: int = PREFETCH,
    no_ack: bool = False,
    consumer_timeout: Duration | None = None,
    stop_within: Duration = STOP_WITHIN,
) -> AsyncIterator[None]:
    """Hand the messages of a queue to a consumer for as long as the block runs.

    At its end no further message is taken, and handlers that run are waited for. The queue must be there. Queues of the
    name `<queue>.semel-retry.<milliseconds>` are made beside it for messages that have to wait.

    Args:
        consumer: of a `Semel` (its handlers run in threads) or of an `AsyncSemel`.
        url: of the broker, such as `amqp://user:password@host/vhost`.
        queue: the name of the queue.
        concurrency: how many handlers run at a time.
        prefetch: how many messages the broker gives before the first is acknowledged.
        no_ack: refused; a broker that waits for no acknowledgement loses what a crash interrupts.
        consumer_timeout: what the broker is configured with; handlers have to end before it.
        stop_within: how long to wait at the end for handlers that run.

    Raises:
        UsageError: the queue or the virtual host is not there or is refused, or something is set so that messages would
            be lost.
    """
    if no_ack:
        raise UsageError(
            "no_ack=True has the broker forget a message when it is sent, so that a crash loses it; nothing was taken. "
            "Leave it out."
        )
    check_runtime(consumer, consumer_timeout)
    subscription = _Subscription(url, queue, prefetch=max(prefetch, concurrency))
    async with run_listener(consumer, subscription, concurrency=concurrency, stop_within=stop_within):
        yield


def check_runtime(consumer: AnyConsumer, consumer_timeout: Duration | None) -> None:
    """Compare how long a handler may run with how long the broker waits; it cannot be asked for that.

    Raises:
        UsageError: handlers may run for longer than the broker waits.
    """
    longest = consumer.policy.max_runtime
    if consumer_timeout is not None:
        limit = to_timedelta("consumer_timeout", consumer_timeout, error=UsageError)
        if longest >= limit:
            raise UsageError(
                f"A handler of {consumer.name} may run for {longest} (max_runtime), and the broker closes the channel "
                f"of a message that is not acknowledged within {limit} (consumer_timeout); nothing was taken. Give "
                f"Consumer(max_runtime=…) a shorter time, or the broker a longer one."
            )
    elif longest >= USUAL_CONSUMER_TIMEOUT:
        log.warning(
            "a handler of %s may run for %s (max_runtime); a broker closes the channel after its consumer_timeout, "
            "which is %s unless configured otherwise. Say consumer_timeout= here to have it checked",
            consumer.name,
            longest,
            USUAL_CONSUMER_TIMEOUT,
        )


class _Subscription(Subscription):
    """A queue, over one connection after the other."""

    def __init__(self, url: str, queue: str, *, prefetch: int) -> None:
        self._url = url
        self._queue = queue
        self._prefetch = prefetch
        self._take: Callable[[Message], None] = lambda _: None
        self._link: _Link | None = None
        self._is_paused = False
        self._delay = RetryDelay()

    async def start(self, take: Callable[[Message], None]) -> None:
        self._take = take
        try:
            await self._connect()
        except ChannelNotFoundEntity as error:
            raise UsageError(
                f"There is no queue {self._queue!r} on this broker; nothing was taken. Declare it, and bind it to what "
                f"it is to hear of."
            ) from error
        except (ChannelAccessRefused, ChannelLockedResource) as error:
            raise UsageError(
                f"RabbitMQ refuses the queue {self._queue!r} ({error.args[0]}); nothing was taken."
            ) from error
        except InvalidFrameError as error:
            # The client does not read why the broker closes the connection instead of opening the virtual host.
            name = unquote(urlsplit(self._url).path[1:]) or "/"
            raise UsageError(
                f"RabbitMQ does not open the virtual host {name!r:.200} for this user; nothing was taken. Look at the "
                f"path of the address, whether there is such a virtual host, and at the rights of the user."
            ) from error

    async def _connect(self) -> None:
        self._link = await _Link.open(self._url, self._queue, self._prefetch, self._take)
        self._delay.reset()

    async def run(self) -> None:
        while True:
            link = self._link
            reason = "closed"
            if link is not None:
                reason = await link.wait_until_lost()
                await link.close()
                self._link = None
            if self._is_paused:
                return
            await self._delay.wait(f"the connection to RabbitMQ is lost ({reason})")
            with unless_lost():
                await self._connect()

    async def pause(self) -> None:
        self._is_paused = True
        if self._link is not None:
            await self._link.cancel()

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()

    async def acknowledge(self, message: Message) -> None:
        link, tag = message.token[:2]
        link.acks.add(tag)

    async def retry(self, message: Message, after: timedelta) -> None:
        link, tag, delivered = message.token
        is_delayed = False
        with unless_lost():
            # A broker that was just started may leave a message of a replicated queue unconfirmed for a minute.
            async with asyncio.timeout(DELAY_WITHIN.total_seconds()):
                await link.delays.publish(delivered.body, delivered.header.properties, self._queue, after)
            is_delayed = True
        if is_delayed:
            link.acks.add(tag)
            return
        # Where only the channel for delays is gone, or says nothing, nobody else would ever settle it.
        await asyncio.sleep(AFTER_NOTHING.total_seconds())
        await self.give_back(message)

    async def dead_letter(self, message: Message, disposition: Disposition) -> None:  # noqa: ARG002 - it travels as is
        # Goes where the queue's own settings say (x-dead-letter-exchange), or nowhere; the letter is stored already.
        await self._reject(message, requeue=False)

    async def give_back(self, message: Message) -> None:
        await self._reject(message, requeue=True)

    async def _reject(self, message: Message, *, requeue: bool) -> None:
        link, tag = message.token[:2]
        with unless_lost():
            await link.channel.basic_reject(tag, requeue=requeue, wait=False)
            # Not before it is on its way: an acknowledgement of all before a later one would be for this one, too.
            link.acks.forget(tag)


class _Link:
    """One connection, with a channel that messages come over and one that those which have to wait leave by."""

    def __init__(self, connection: AbstractConnection, channel: AbstractChannel) -> None:
        self._connection = connection
        self.channel = channel
        self.acks = _Acknowledgements(channel)
        self.delays = DelayQueues(connection)
        self._tag: str | None = None
        self._is_cancelled_by_broker = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, url: str, queue: str, prefetch: int, take: Callable[[Message], None]) -> Self:
        """Connect, and have messages sent."""
        connection = await aiormq.connect(url)
        try:
            channel = await connection.channel(publisher_confirms=False)
            await channel.queue_declare(queue, passive=True)
            await channel.basic_qos(prefetch_count=prefetch)
            link = cls(connection, channel)
            await link._consume(queue, take)
        except BaseException:
            await _close(connection)
            raise
        return link

    async def _consume(self, queue: str, take: Callable[[Message], None]) -> None:
        async def deliver(delivered: DeliveredMessage) -> None:
            tag = delivered.delivery.delivery_tag  # type: ignore[union-attr]
            assert tag is not None  # noqa: S101 - every delivery has one
            self.acks.expect(tag)
            properties = delivered.header.properties
            headers = dict(properties.headers or {})
            if properties.content_type:
                headers["content-type"] = properties.content_type
            take(Message(headers, delivered.body, (self, tag, delivered)))

        self.channel.on_consumer_cancel_callbacks.add(self._on_cancel)
        self._tag = (await self.channel.basic_consume(queue, deliver, no_ack=False)).consumer_tag

    def _on_cancel(self, _: Any) -> None:
        if not self._is_cancelled_by_broker.done():
            self._is_cancelled_by_broker.set_result(None)

    async def wait_until_lost(self) -> str:
        """Wait until nothing comes any more; gives the reason."""
        ends: list[asyncio.Future[Any]] = [
            self._is_cancelled_by_broker,
            *(asyncio.ensure_future(one.closing) for one in (self.channel, self._connection)),
        ]
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in done:
            if not end.cancelled() and end.exception() is not None:
                return type(end.exception()).__name__
        return "closed"

    async def cancel(self) -> None:
        """Have nothing more sent."""
        if self._tag is not None:
            with unless_lost():
                await self.channel.basic_cancel(self._tag)

    async def close(self) -> None:
        """Send what waits to be acknowledged, and end."""
        with unless_lost():
            await self.acks.flush()
        await _close(self._connection)


class DelayQueues:
    """Queues, one for each length of a delay, whose messages go back to where they came from."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._channel: AbstractChannel | None = None
        self._declared: set[str] = set()
        self._lock = asyncio.Lock()

    async def publish(self, body: bytes, properties: commands.Basic.Properties, queue: str, after: timedelta) -> None:
        """Send a message so that it comes to `queue` after a while; waits for the confirmation.

        Raises:
            PublishError: somebody has deleted the queue for messages that wait; the next one makes it again.
            Unwritable: the client can read such a message, and cannot write it.
        """
        milliseconds = _round_up(after)
        name = f"{queue}.semel-retry.{milliseconds}"
        try:
            channel = await self._open(name, queue, milliseconds)
            # Were it not mandatory, the broker would confirm what it has no queue for.
            await channel.basic_publish(body, routing_key=name, properties=_waiting(properties), mandatory=True)
        except PublishError:
            self._declared.discard(name)
            raise
        except _LOST:
            raise
        except Exception as error:
            raise Unwritable(f"it cannot be written again ({type(error).__name__})") from error

    async def _open(self, name: str, queue: str, milliseconds: int) -> AbstractChannel:
        """A channel, and the queue of this name."""
        async with self._lock:
            if self._channel is None or self._channel.is_closed:
                self._channel = await self._connection.channel(publisher_confirms=True)
                self._declared.clear()
            if name not in self._declared:
                await self._channel.queue_declare(name, durable=True, arguments=_delay_arguments(queue, milliseconds))
                self._declared.add(name)
            return self._channel


def _waiting(properties: commands.Basic.Properties) -> commands.Basic.Properties:
    """The properties of a message while it waits: what was said of its way here is not said of its way back.

    A header `CC` would send copies elsewhere again, `expiration` would end it early or its wait, and of a `user_id` the
    broker demands that it is ours.
    """
    waiting = copy(properties)
    waiting.headers = {name: value for name, value in (properties.headers or {}).items() if name not in ("CC", "BCC")}
    waiting.expiration = waiting.user_id = None
    waiting.delivery_mode = 2
    return waiting


def _round_up(after: timedelta) -> int:
    """The next power of two in milliseconds: a queue whose messages wait equally long lets the first go first."""
    wanted = max(_SHORTEST_MS, math.ceil(after.total_seconds() * 1000))
    return min(_LONGEST_MS, int(2 ** math.ceil(math.log2(wanted))))


def _delay_arguments(queue: str, milliseconds: int) -> dict[str, Any]:
    return {
        "x-queue-type": "quorum",
        "x-message-ttl": milliseconds,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue,
        # A message leaves only once it has arrived; for that the broker demands that a full queue refuses.
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


class _Acknowledgements:
    """What is to be acknowledged on one channel. Tags that follow each other from the oldest open one are one frame."""

    def __init__(self, channel: AbstractChannel) -> None:
        self._channel = channel
        self._open: OrderedDict[int, bool] = OrderedDict()
        """Every delivery that is not settled, oldest first; whether it is to be acknowledged."""
        self._ready: list[int] = []
        self._flushing: asyncio.Task[None] | None = None

    def expect(self, tag: int) -> None:
        """A message has come."""
        self._open[tag] = False

    def forget(self, tag: int) -> None:
        """It is settled in another way."""
        self._open.pop(tag, None)

    def add(self, tag: int) -> None:
        """Acknowledge it, together with all that become ready at the same time."""
        if tag not in self._open:
            return
        self._open[tag] = True
        self._ready.append(tag)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_soon())

    async def _flush_soon(self) -> None:
        await asyncio.sleep(0)
        with unless_lost():
            await self.flush()

    async def flush(self) -> None:
        """Send what is ready."""
        while self._ready:
            last = 0
            while self._open:
                tag, is_ready = next(iter(self._open.items()))
                if not is_ready:
                    break
                last = tag
                del self._open[tag]
            rest = [tag for tag in self._ready if self._open.pop(tag, False)]
            self._ready.clear()
            if last:
                await self._channel.basic_ack(last, multiple=True, wait=False)
            for tag in rest:
                await self._channel.basic_ack(tag, wait=False)


@contextmanager
def unless_lost() -> Iterator[None]:
    """Leave out what is said over a connection that is gone: the broker delivers again what it was not told of."""
    try:
        yield
    except Unwritable as error:
        log.warning("a message is given back without a delay: %s", error)
    except _LOST as error:
        log.debug("RabbitMQ was not told: %s", error)
    except asyncio.CancelledError:
        # A channel that is closed cancels what waits for it; nobody asked this task to end.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise


async def _close(connection: AbstractConnection) -> None:
    with unless_lost():
        await connection.close()


def publisher(
    url: str,
    *,
    exchange: str = "",
    routing_key: str | Callable[[Event], str] = "",
    confirm_within: Duration = 30.0,
) -> RabbitPublisher:
    """A publisher for a relay: sends events to an exchange and waits until the broker has them.

    Args:
        url: of the broker.
        exchange: the name of an exchange, which must be there; without it the routing key names a queue.
        routing_key: a text, or a callable that makes one of an event.
        confirm_within: how long to wait for the broker.

    Raises:
        UsageError: no exchange can have this name.
    """
    try:
        commands.Basic.Publish(exchange=exchange)
    except ValueError as error:
        raise UsageError(f"No exchange is named {exchange!r:.200} ({error}); nothing was made.") from error
    return RabbitPublisher(url, exchange, routing_key, to_timedelta("confirm_within", confirm_within, error=UsageError))


class RabbitPublisher:
    """Sends events, a whole list in one write, and says of each whether the broker has it."""

    def __init__(
        self, url: str, exchange: str, routing_key: str | Callable[[Event], str], confirm_within: timedelta
    ) -> None:
        self._url = url
        self._exchange = exchange
        self._routing_key = routing_key
        self._confirm_within = confirm_within.total_seconds()
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            await _close(connection)

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        """Send events; gives for each None, or why the broker does not have it.

        Raises:
            ConnectionError: the broker cannot be reached; it may have some of them.
        """
        prepared = [self._prepare(event) for event in events]
        # One event twice in a list is sent once: a return is told apart by the message id alone.
        to_send = {letter.message_id: letter for letter in prepared if isinstance(letter, _Outgoing)}
        try:
            async with asyncio.timeout(self._confirm_within):
                answers = await self._send_apart(list(to_send.values()))
        except (AMQPError, OSError, RuntimeError, TimeoutError) as error:
            await self.close()
            raise ConnectionError(
                f"RabbitMQ could not be reached, or did not confirm in time ({type(error).__name__}); events that were "
                f"not confirmed have to be published again."
            ) from error
        by_id = dict(zip(to_send, answers, strict=True))
        return [by_id[letter.message_id] if isinstance(letter, _Outgoing) else letter for letter in prepared]

    def _prepare(self, event: Event) -> _Outgoing | Exception:
        try:
            key = self._routing_key(event) if callable(self._routing_key) else self._routing_key
            return _Outgoing(event, self._exchange, key)
        except Exception as error:  # noqa: BLE001 - of this event alone
            return error

    async def _send_apart(self, letters: list[_Outgoing]) -> list[Exception | None]:
        """Send events; those that cannot be written, or close the channel, are found by sending fewer at a time.

        The broker does not say for which of them it closed the channel. What it had taken before comes twice, and is a
        duplicate.
        """
        try:
            return await self._send(letters)
        except (ChannelPreconditionFailed, Unwritable) as error:
            if len(letters) == 1:
                reason = error.reason if isinstance(error, ChannelPreconditionFailed) else error
                return [ValueError(f"RabbitMQ does not take the event: {reason}")]
        middle = len(letters) // 2
        return [*await self._send_apart(letters[:middle]), *await self._send_apart(letters[middle:])]

    async def _send(self, letters: list[_Outgoing]) -> list[Exception | None]:
        channel: Any = await self._open_channel()  # what the client's protocol does not name is asked for below
        if can_write_frames(channel):
            waiting = await write_frames(channel, letters)
        else:
            waiting = [
                asyncio.ensure_future(
                    channel.basic_publish(
                        letter.body,
                        exchange=letter.exchange,
                        routing_key=letter.routing_key,
                        properties=letter.properties,
                        mandatory=True,
                        wait=False,
                    )
                )
                for letter in letters
            ]
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        return [_verdict(answer, letter) for answer, letter in zip(answers, letters, strict=True)]

    async def _open_channel(self) -> AbstractChannel:
        async with self._lock:
            if self._channel is None or self._channel.is_closed:
                if self._connection is None or self._connection.is_closed:
                    self._connection = await aiormq.connect(self._url)
                self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
            return self._channel


class Unwritable(Exception):
    """An event, or a message that has to wait, is not what the client can put into frames of the protocol."""


class _Outgoing:
    """An event as it is sent."""

    __slots__ = ("body", "exchange", "message_id", "properties", "routing_key")

    def __init__(self, event: Event, exchange: str, routing_key: str) -> None:
        if len(routing_key.encode()) > _MAX_SHORT:
            raise UsageError(f"A routing key has at most {_MAX_SHORT} bytes; the event was not published.")
        attributes, self.body = attributes_of(event)
        content_type = attributes.get("datacontenttype")
        if content_type is not None and len(content_type.encode()) <= _MAX_SHORT:
            del attributes["datacontenttype"]
        else:
            content_type = None  # what has no room in the property is a header, as other attributes are
        identity = identity_of(event.source, event.id)
        if len(identity.encode()) > _MAX_SHORT:
            identity = sha256(identity.encode()).hexdigest()
        headers: dict[str, Any] = {f"cloudEvents_{name}": text for name, text in attributes.items()}
        headers["x-deduplication-header"] = identity  # what the plugin for de-duplication compares
        self.exchange = exchange
        self.routing_key = routing_key
        self.message_id = identity
        self.properties = commands.Basic.Properties(
            message_id=identity,
            content_type=content_type,
            delivery_mode=2,
            headers=headers,
            timestamp=event.time if event.time is not None and event.time >= _FIRST_TIMESTAMP else None,
            message_type=event.type if len(event.type.encode()) <= _MAX_SHORT else None,
        )


def _verdict(answer: Any, letter: _Outgoing) -> Exception | None:
    """What came of one event.

    Raises:
        ChannelPreconditionFailed: the broker closed the channel, because of this event or of another one.
        ConnectionError: nobody knows, because the connection was lost.
    """
    match answer:
        case ChannelPreconditionFailed():
            raise answer
        case PublishError():
            return LookupError(
                f"RabbitMQ returned the event: no queue is bound to the exchange {letter.exchange!r} for the routing "
                f"key {letter.routing_key!r}."
            )
        case ChannelNotFoundEntity():
            raise ConnectionError(
                f"RabbitMQ has no exchange {letter.exchange!r}; make it, and events go on."
            ) from answer
        case DeliveryError():
            return OSError("RabbitMQ refused the event: a queue is full, or could not store it.")
        case AMQPError() | asyncio.CancelledError() | OSError() | RuntimeError():
            raise ConnectionError("the connection was lost before the event was confirmed") from answer
        case Exception():
            return answer
    return None


def can_write_frames(channel: Any) -> bool:
    """Whether the client has what `write_frames` needs, which it does not document."""
    names = (
        "confirmations",
        "create_future",
        "delivery_tag",
        "lock",
        "message_id_delivery_tag",
        "number",
        "write_queue",
    )
    return all(hasattr(channel, name) for name in (*names, "_split_body"))


async def write_frames(channel: Any, letters: list[_Outgoing]) -> list[asyncio.Future[Any]]:
    """Send events in one write; gives for each the future of its confirmation.

    The client's own call takes a lock and a task for each, which costs three times the processor time.

    Raises:
        Unwritable: one of them is not what frames can hold; nothing was sent.
    """
    frames: list[Any] = []
    waiting: list[asyncio.Future[Any]] = []
    async with channel.lock:
        try:
            for letter in letters:
                frames.append(
                    commands.Basic.Publish(exchange=letter.exchange, routing_key=letter.routing_key, mandatory=True)
                )
                frames.append(ContentHeader(properties=letter.properties, body_size=len(letter.body)))
                frames.extend(channel._split_body(letter.body))  # noqa: SLF001 - asked for by `can_write_frames`
            written = ChannelFrame.marshall(frames=frames, channel_number=channel.number, drain_future=None)
        except Exception as error:
            raise Unwritable(f"it cannot be written as the protocol demands ({type(error).__name__})") from error
        # From here on all of them are sent: the broker counts, too, and confirms by number.
        for letter in letters:
            channel.delivery_tag += 1
            confirmation = channel.create_future()
            channel.confirmations[channel.delivery_tag] = confirmation
            channel.message_id_delivery_tag[letter.message_id] = channel.delivery_tag
            confirmation.add_done_callback(_forget_on_answer(channel, letter.message_id, channel.delivery_tag))
            waiting.append(confirmation)
        await channel.write_queue.put(written)
    return waiting


def _forget_on_answer(channel: Any, message_id: str, tag: int) -> Callable[[Any], None]:
    def forget(_: Any) -> None:
        if channel.message_id_delivery_tag.get(message_id) == tag:
            del channel.message_id_delivery_tag[message_id]

    return forget
