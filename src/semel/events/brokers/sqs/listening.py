"""Listening to a queue of SQS.

- A message is hidden from others while its handler runs: its visibility is extended from a thread of its own, with a
  client of its own, so that a handler that burns the processor keeps it.
- SQS deletes a message also for somebody whose time is over, and its new holder would lose it. A handler that
  lost its lease therefore says nothing.
- Of a group of a FIFO queue one message is handled at a time, in the order of the queue. If it has to come again, the
  later ones of its group that were received with it are given back, and the other groups go on.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Final

from semel.deadlines import Deadlines, Extend
from semel.errors import UsageError
from semel.events.brokers.aws import Address, connect, translating
from semel.events.brokers.listening import (
    CONCURRENCY,
    PREFETCH,
    STOP_WITHIN,
    AnyConsumer,
    Message,
    RetryDelay,
    Subscription,
    log,
    run_listener,
)
from semel.events.brokers.sqs.messages import Held, MessageReader
from semel.events.brokers.sqs.queues import IN_ONE_REQUEST, LONGEST_VISIBILITY, SCHEME, Queue, find_queue
from semel.events.brokers.sqs.settling import Settler, extend_visibility
from semel.events.disposition import Disposition
from semel.validation import Duration, to_timedelta

POLL_FOR: Final = timedelta(seconds=5)
_LONGEST_POLL: Final = 20
_POLLERS: Final = 8
"""Requests for messages side by side while there are many; one, while there are none."""
_ANSWER_WITHIN: Final = 10.0
_MOST_ATTRIBUTES: Final = 10
_DEAD_LETTER_AGAIN: Final = timedelta(seconds=5)


@asynccontextmanager
async def listen(
    consumer: AnyConsumer,
    url: str,
    *,
    queue: str,
    event_id: str | None = None,
    event_subject: str | None = None,
    concurrency: int = CONCURRENCY,
    prefetch: int = PREFETCH,
    visibility: Duration | None = None,
    poll_for: Duration = POLL_FOR,
    dead_letter_queue: str | None = None,
    stop_within: Duration = STOP_WITHIN,
    **options: Any,
) -> AsyncIterator[None]:
    """Hand the messages of a queue to a consumer for as long as the block runs.

    At its end no further message is taken, handlers that run are waited for, and what waits is given back.

    Args:
        consumer: of a `Semel` (its handlers run in threads) or of an `AsyncSemel`.
        url: of the service, such as `sqs://eu-west-1`.
        queue: the name of the queue, or its URL.
        event_id: where the id of the producer is in a body that is no CloudEvent, as a path of names with dots, such as
            `detail.event_id` in an envelope of EventBridge.
        event_subject: where the subject is in an envelope of EventBridge.
        concurrency: how many handlers run at a time.
        prefetch: how many messages are taken before the first is deleted.
        visibility: how long a message stays with a process that is gone; by default what the queue is set to.
        poll_for: how long a request waits for messages, at most 20 s. The end of the block waits for it.
        dead_letter_queue: where a copy of each dead letter is sent, after it is stored.
        stop_within: how long to wait at the end for handlers that run.
        options: of the SDK's client.

    Raises:
        UsageError: there is no such queue, or it cannot be listened to as it is set.
        ConnectionError: SQS cannot be reached.
    """
    subscription = _Subscription(
        Address.of(url, SCHEME),
        options,
        queue,
        MessageReader(event_id, event_subject),
        prefetch=max(prefetch, concurrency),
        concurrency=concurrency,
        visibility=None if visibility is None else _whole_seconds("visibility", visibility, LONGEST_VISIBILITY),
        poll_for=_whole_seconds("poll_for", poll_for, timedelta(seconds=_LONGEST_POLL)),
        consumer=consumer,
        dead_letter_queue=dead_letter_queue,
    )
    async with run_listener(consumer, subscription, concurrency=concurrency, stop_within=stop_within):
        yield


def _whole_seconds(name: str, given: Duration, most: timedelta) -> int:
    duration = to_timedelta(name, given, error=UsageError)
    if duration % timedelta(seconds=1) or duration > most:
        raise UsageError(f"{name} is whole seconds up to {most}, because SQS counts in them; nothing was taken.")
    return int(duration.total_seconds())


class Groups:
    """The messages of FIFO queues that wait until the one before them in their group is settled."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Message]] = {}
        """The first of each is the one that is handled."""

    def admit(self, message: Message) -> Held | None:
        """The one that it has to wait for; None: it may be handled now."""
        group = message.token.group
        if group is None:
            return None
        line = self._lines.setdefault(group, deque())
        before: Held | None = line[-1].token if line else None
        line.append(message)
        return before

    def drop_lost(self, group: str | None) -> list[Message]:
        """Those that wait in a group from the first on that others may have been given, the last first."""
        line = self._lines.get(group or "", deque())
        lost = next((place for place in range(1, len(line)) if not line[place].token.is_ours), len(line))
        return [line.pop() for _ in range(len(line) - lost)]

    def next_after(self, held: Held) -> Message | None:
        """The next one of the same group."""
        line = self._lines.get(held.group or "")
        if line is None:
            return None
        line.popleft()
        if not line:
            del self._lines[held.group or ""]
            return None
        return line[0]

    def stop(self, held: Held) -> list[Message]:
        """Those that wait in its group, the last first; the group begins anew."""
        line = self._lines.pop(held.group or "", deque())
        return [message for message in reversed(line) if message.token is not held]


class _Subscription(Subscription):
    """A queue, which is asked for as many messages as there is room for."""

    settles_others = True
    can_hold_off = True

    def __init__(
        self,
        address: Address,
        options: dict[str, Any],
        queue: str,
        reader: MessageReader,
        *,
        prefetch: int,
        concurrency: int,
        visibility: int | None,
        poll_for: int,
        consumer: AnyConsumer,
        dead_letter_queue: str | None,
    ) -> None:
        self._address = address
        self._options = options
        self._name = queue
        self._reader = reader
        self._prefetch = prefetch
        self._worth_asking = max(1, min(IN_ONE_REQUEST, prefetch - concurrency))
        self._visibility = visibility or 0
        self._poll_for = poll_for
        self._policy = consumer.policy
        self._dead_letter_name = dead_letter_queue
        self._take: Callable[[Message], None] = lambda _: None
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._queue = Queue(queue, "", {})
        self._dead_letters: Queue | None = None
        self._settler: Settler | None = None
        self._deadlines: Deadlines | None = None
        self._groups = Groups()
        self._held: set[Held] = set()
        self._asked = 0
        """Messages that may be in an answer on its way."""
        self._room = asyncio.Event()
        self._polls: set[asyncio.Task[Any]] = set()
        self._is_paused = False
        self._is_held_off = False

    async def start(self, take: Callable[[Message], None]) -> None:
        self._take = take
        within = self._poll_for + _ANSWER_WITHIN
        client = connect("sqs", self._address, read_within=within, **self._options)
        self._client = await self._stack.enter_async_context(client)
        self._queue = await find_queue(self._client, self._name)
        if self._dead_letter_name is not None:
            self._dead_letters = await find_queue(self._client, self._dead_letter_name)
        self._visibility = self._visibility or self._queue.visibility
        self._check()
        self._settler = Settler(self._client, self._queue.url, self._forget)
        longest = self._policy.max_runtime.total_seconds()
        self._deadlines = Deadlines(self._connect_extender, every=self._visibility / 3, longest=longest)
        self._deadlines.start()

    def _check(self) -> None:
        """Refuse what would give messages to everybody, or for ever, and warn of limits that SQS has of its own.

        Raises:
            UsageError: the visibility time-out is 0, or dead letters go where they came from.
        """
        if not self._visibility:
            raise UsageError(
                f"The queue {self._name!r} has a visibility time-out of 0 s, so that SQS gives a message to others "
                f"while its handler runs; nothing was taken. Give visibility=."
            )
        if self._dead_letters is not None and self._dead_letters.url == self._queue.url:
            raise UsageError(
                f"dead_letter_queue is {self._name!r}, which is listened to, so that the copy of a dead letter would "
                f"be delivered and copied again and again; nothing was taken. Name another queue."
            )
        receives, attempts = self._queue.most_receives, self._policy.max_attempts
        if receives is not None and (attempts is None or receives <= attempts):
            log.warning(
                "SQS moves a message away after %d deliveries (maxReceiveCount of %s), also those that only had to "
                "wait; max_attempts of the consumer is %s and counts what failed. Set maxReceiveCount well above it",
                receives,
                self._name,
                attempts,
            )
        if self._policy.max_runtime >= LONGEST_VISIBILITY:
            log.warning("a handler may run for longer than the 12 hours for which SQS hides a message (max_runtime)")

    @asynccontextmanager
    async def _connect_extender(self) -> AsyncIterator[Extend]:
        """Runs in the thread of the deadlines, with a client of its own."""
        try:
            async with connect("sqs", self._address, read_within=_ANSWER_WITHIN, **self._options) as client:

                async def extend(messages: Sequence[Held]) -> None:
                    await extend_visibility(client, self._queue.url, messages, self._visibility)

                yield extend
        except UsageError as error:
            raise ConnectionError(str(error)) from error  # tried again: credentials may be renewed meanwhile

    async def run(self) -> None:
        assert self._settler is not None  # noqa: S101 - set by `start`
        polling = self._start_poll(self._poll_for_ever())
        await asyncio.wait({polling, self._settler.has_failed}, return_when=asyncio.FIRST_COMPLETED)
        if self._settler.has_failed.done():
            self._settler.has_failed.result()
        await polling

    def _start_poll(self, poll: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(poll)
        self._polls.add(task)
        task.add_done_callback(self._polls.discard)
        return task

    @property
    def _free(self) -> int:
        return 0 if self._is_held_off else self._prefetch - len(self._held) - self._asked

    async def _poll_for_ever(self) -> None:
        delay = RetryDelay()
        while not self._is_paused:
            self._room.clear()
            if self._free < self._worth_asking:
                await self._room.wait()
                continue
            try:
                has_more = await self._receive(self._poll_for)
                delay.reset()
            except ConnectionError as error:
                await delay.wait(str(error))
                continue
            if has_more:
                for _ in range(_POLLERS - len(self._polls)):
                    self._start_poll(self._poll_while_there_are())

    async def _poll_while_there_are(self) -> None:
        """Ask beside the others for as long as answers are full."""
        try:
            while not self._is_paused and self._free >= self._worth_asking and await self._receive(0):
                pass
        except (ConnectionError, UsageError):
            return  # the one that goes on for ever meets it too, and says so

    async def _receive(self, wait: int) -> bool:
        """Ask for messages; says whether there may be more."""
        number = max(1, min(IN_ONE_REQUEST, self._free))
        self._asked += number
        asked = time.monotonic()
        try:
            with translating("SQS"):
                reply = await self._client.receive_message(
                    QueueUrl=self._queue.url,
                    MaxNumberOfMessages=number,
                    WaitTimeSeconds=wait,
                    VisibilityTimeout=self._visibility,
                    MessageAttributeNames=["All"],
                    MessageSystemAttributeNames=["MessageGroupId"],
                )
        finally:
            self._asked -= number
            self._tell_of_room()
        found = reply.get("Messages", ())
        for raw in found:
            self._add(Held(raw, asked=asked, visibility=self._visibility))
        return len(found) == number

    def _add(self, held: Held) -> None:
        assert self._deadlines is not None  # noqa: S101 - set by `start`
        self._held.add(held)
        headers, body = self._reader.read(held.raw)
        message = Message(headers, body, held)
        before = self._wait_for_turn(message) if self._queue.is_fifo else None  # else groups say nothing of the order
        self._deadlines.hold(held, behind=before)
        if before is None:
            self._take(message)

    def _wait_for_turn(self, message: Message) -> Held | None:
        """The one that it has to wait for; what came before and waited in vain, behind a wedged handler, is let go."""
        for lost in self._groups.drop_lost(message.token.group):
            self._deliver_after(lost, timedelta())
        return self._groups.admit(message)

    async def pause(self) -> None:
        self._is_paused = True
        self._room.set()
        if self._polls:
            # What SQS gives to a request that nobody waits for would be hidden until its visibility time-out ends.
            _, late = await asyncio.wait(self._polls, timeout=self._poll_for + 1)
            for task in late:
                task.cancel()

    def hold_off(self) -> None:
        self._is_held_off = True

    def go_on(self) -> None:
        self._is_held_off = False
        self._room.set()

    async def close(self) -> None:
        if self._deadlines is not None:
            await self._deadlines.stop()
        if self._settler is not None:
            try:
                async with asyncio.timeout(_ANSWER_WITHIN):
                    await self._settler.finish()
            except TimeoutError:
                log.warning("SQS was not told of all messages within %g s; the rest is delivered again", _ANSWER_WITHIN)
            self._settler.has_failed.cancel()
        await self._stack.aclose()

    def begin(self, message: Message) -> None:
        if self._deadlines is not None:
            self._deadlines.begin(message.token)

    def abandon(self, message: Message) -> None:
        self._stop_group(message)
        if self._deadlines is not None:
            self._deadlines.release(message.token)
        self._forget(message.token)

    def _forget(self, held: Held) -> None:
        self._held.discard(held)
        self._tell_of_room()

    def _tell_of_room(self) -> None:
        if self._free >= self._worth_asking:
            self._room.set()

    async def acknowledge(self, message: Message) -> None:
        held: Held = message.token
        assert self._settler is not None  # noqa: S101 - set by `start`
        assert self._deadlines is not None  # noqa: S101 - set by `start`
        self._deadlines.release(held)
        self._settler.delete(held)
        following = self._groups.next_after(held)
        if following is None:
            return
        if following.token.is_ours:
            self._take(following)
        else:
            self.abandon(following)  # somebody else may have it, and no later one may go before it

    async def retry(self, message: Message, after: timedelta) -> None:
        self._stop_group(message)
        self._deliver_after(message, after)

    async def give_back(self, message: Message) -> None:
        await self.retry(message, timedelta())

    def _stop_group(self, message: Message) -> None:
        """Give back what waits for a message; SQS gives none of the group to anybody before this one."""
        for following in self._groups.stop(message.token):
            self._deliver_after(following, timedelta())

    def _deliver_after(self, message: Message, after: timedelta) -> None:
        assert self._settler is not None  # noqa: S101 - set by `start`
        assert self._deadlines is not None  # noqa: S101 - set by `start`
        self._deadlines.release(message.token)
        self._settler.deliver_after(message.token, after.total_seconds())

    async def dead_letter(self, message: Message, disposition: Disposition) -> None:
        if self._dead_letters is not None:
            try:
                with translating("SQS"):
                    await self._client.send_message(**_copy_for(self._dead_letters, message.token, disposition))
            except (ConnectionError, UsageError) as error:
                log.warning("a dead letter was not passed on (%s); it is tried again", error)
                await self.retry(message, _DEAD_LETTER_AGAIN)
                return
        await self.acknowledge(message)


def _copy_for(queue: Queue, held: Held, disposition: Disposition) -> dict[str, Any]:
    """A message as it is sent to a queue for dead letters, with the reason where there is room for it."""
    attributes = {
        name: {key: value for key, value in attribute.items() if key in ("DataType", "StringValue", "BinaryValue")}
        for name, attribute in held.raw.get("MessageAttributes", {}).items()
    }
    room = queue.most_bytes - _size_of(held.raw["Body"], attributes)
    for name, text in (("Semel-Reason", disposition.status), ("Semel-Reference", disposition.reference)):
        if text and len(attributes) < _MOST_ATTRIBUTES:
            added = {name: {"DataType": "String", "StringValue": text}}
            room -= _size_of("", added)
            if room >= 0:  # SQS would never take what is too large, and the message would come again and again
                attributes |= added
    copy = {"QueueUrl": queue.url, "MessageBody": held.raw["Body"], "MessageAttributes": attributes}
    if queue.is_fifo:
        message_id = held.raw["MessageId"]  # the same for each delivery, so that one passed on twice is left out
        copy |= {"MessageGroupId": held.group or message_id, "MessageDeduplicationId": message_id}
    return copy


def _size_of(body: str, attributes: Mapping[str, Mapping[str, Any]]) -> int:
    """How many bytes SQS counts: of the body, and of the name, the type and the value of each attribute."""
    parts = [body, *attributes, *(part for attribute in attributes.values() for part in attribute.values())]
    return sum(len(part.encode() if isinstance(part, str) else part) for part in parts)
