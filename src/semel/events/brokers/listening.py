"""Taking messages from a broker: what the listeners of all brokers share.

- A message is acknowledged after its record is written, and only on the strength of it. What was not acknowledged comes
  again, and is then a duplicate.
- A handler that lost its lease settles nothing where that would settle the copy of somebody else.
- At the end no further message is taken, those that wait go back, those that run end and are acknowledged.
- While no handler has ended for as long as one may run, no message is kept waiting here: others may have room.
- What has to be changed in the program ends the listener: the error leaves `async with`, nothing is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol
from urllib.parse import quote

from semel.api import AsyncSemel, Semel
from semel.core.policy import Policy
from semel.errors import LeaseLost, UsageError
from semel.events.consumer import Consumer
from semel.events.disposition import Backoff, Disposition
from semel.handlers import WasCancelled, async_is_cut_off
from semel.validation import Duration, to_timedelta

CONCURRENCY: Final = 64
PREFETCH: Final = 256
STOP_WITHIN: Final = timedelta(seconds=30)
AFTER_NOTHING: Final = timedelta(seconds=1)
"""How long to wait with the next delivery where nobody says: a broker that delivers at once would do nothing else."""

_CANCEL_AGAIN_AFTER: Final = 0.5
_PLAIN: Final = "!#$&'()*+,-./:;=?@[]_~"

log = logging.getLogger("semel.events.brokers")


class Receiver(Protocol):
    """What listeners need of a consumer."""

    name: str
    policy: Policy
    is_async: bool

    def receive(self, headers: Mapping[str, Any], body: bytes) -> Any:
        """Process a message, and give its disposition, or an awaitable of it."""


AnyConsumer = Consumer[AsyncSemel] | Consumer[Semel] | Receiver


@dataclass(slots=True, eq=False)
class Message:
    """One delivery of a message; `token` is what the broker's adapter knows it by."""

    headers: Mapping[str, Any]
    body: bytes
    token: Any


class Settler(ABC):
    """What one broker is told of each message.

    What is told of a message that the broker has given to somebody else by now, or over a connection that is gone, is
    left out: the message comes again.
    """

    settles_others = False
    """Whether what is told of an old delivery counts for a newer delivery of the same message."""

    @abstractmethod
    async def acknowledge(self, message: Message) -> None:
        """The message is done with."""

    @abstractmethod
    async def retry(self, message: Message, after: timedelta) -> None:
        """Have it delivered again, not before `after`."""

    @abstractmethod
    async def dead_letter(self, message: Message, disposition: Disposition) -> None:
        """Pass it on to where the broker keeps what nobody could process."""

    def begin(self, message: Message) -> None:  # noqa: B027 - not every broker has deadlines
        """Its handler is about to run."""

    def abandon(self, message: Message) -> None:  # noqa: B027 - as above
        """Tell the broker nothing more of it."""


class Subscription(Settler):
    """One broker's side of a listener: how messages come, and what the broker is told of each."""

    can_hold_off = False
    """Whether messages come only when they are asked for, so that what is given back goes to others."""

    @abstractmethod
    async def start(self, take: Callable[[Message], None]) -> None:
        """Connect, check, and begin to hand messages to `take`.

        Raises:
            UsageError: settings of the broker would lose messages.
        """

    @abstractmethod
    async def run(self) -> None:
        """Keep the subscription alive until it is cancelled, over lost connections."""

    @abstractmethod
    async def pause(self) -> None:
        """Take no further messages."""

    @abstractmethod
    async def close(self) -> None:
        """Tell the broker what it was not told yet, and end the connection."""

    @abstractmethod
    async def give_back(self, message: Message) -> None:
        """Have it delivered again at once: nobody touched it."""

    def hold_off(self) -> None:
        """Ask for no further messages until `go_on`."""

    def go_on(self) -> None:
        """Ask for messages again."""


async def process(
    settler: Settler, message: Message, receive: Callable[[Message], Awaitable[Disposition]]
) -> Disposition:
    """Have a message processed, and tell the broker what came of it; gives that too.

    What `receive` raises has to be changed in the program: then the broker is told nothing.
    """
    settler.begin(message)
    try:
        disposition = await receive(message)
    except BaseException:
        settler.abandon(message)
        raise
    if disposition.action == "ack":
        await settler.acknowledge(message)
    elif disposition.action == "dead_letter":
        log.warning("an event became a dead letter (%s): %s", disposition.status, disposition.reference)
        await settler.dead_letter(message, disposition)
    elif isinstance(disposition.error, LeaseLost) and settler.settles_others:
        # Somebody else may have it by now, and would lose it by what is said here.
        settler.abandon(message)
    else:
        after = disposition.retry_after
        await settler.retry(message, AFTER_NOTHING if after is None else after)
    return disposition


class Listener:
    """Hands the messages of one subscription to a consumer, so many at a time."""

    def __init__(
        self, consumer: AnyConsumer, subscription: Subscription, concurrency: int, stop_within: timedelta
    ) -> None:
        self._subscription = subscription
        self._concurrency = concurrency
        self._stop_within = stop_within.total_seconds()
        self._max_runtime = consumer.policy.max_runtime.total_seconds()
        self._last_began = 0.0
        self._has_changed = asyncio.Event()
        """Whether a message came or a handler ended."""
        self._waiting: asyncio.Queue[Message] = asyncio.Queue()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._has_failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_stopping = False
        self._threads: ThreadPoolExecutor | None = None
        receive: Callable[..., Any] = consumer.receive
        self._receive: Callable[[Message], Awaitable[Disposition]]
        if consumer.is_async:
            self._receive = lambda message: receive(message.headers, message.body)
        else:
            threads = ThreadPoolExecutor(concurrency, thread_name_prefix=f"semel-{consumer.name}")
            loop = asyncio.get_running_loop()
            self._threads = threads
            self._receive = lambda message: loop.run_in_executor(threads, receive, message.headers, message.body)

    async def start(self) -> list[asyncio.Task[None]]:
        """Begin to listen; gives the tasks that do so."""
        await self._subscription.start(self._take)
        work = [self._work() for _ in range(self._concurrency)]
        if self._subscription.can_hold_off:
            work.append(self._look_for_standstills())
        return [asyncio.create_task(self._watch(one)) for one in (*work, self._subscription.run())]

    @property
    def has_failed(self) -> asyncio.Future[None]:
        """Is given the error that ends the listener."""
        return self._has_failed

    async def stop(self, tasks: list[asyncio.Task[None]]) -> None:
        """Take nothing more, let what runs end, acknowledge it, and end."""
        self._is_stopping = True
        ends_at = asyncio.get_running_loop().time() + self._stop_within
        try:
            await self._subscription.pause()
            await self._give_back_until(ends_at)
            await self._let_end(ends_at)
            await self._give_back_until(ends_at)
        finally:
            await cancel_all(tasks)
            await self._subscription.close()
            if self._threads is not None:
                self._threads.shutdown(wait=False)

    async def _give_back(self) -> None:
        while not self._waiting.empty():
            await self._subscription.give_back(self._waiting.get_nowait())

    async def _give_back_until(self, ends_at: float) -> None:
        try:
            async with asyncio.timeout_at(ends_at):
                await self._give_back()
        except TimeoutError:
            log.warning(
                "the broker did not take back all that waited within %s s; the rest is delivered again when it finds "
                "that this process has gone",
                self._stop_within,
            )

    async def _let_end(self, ends_at: float) -> None:
        try:
            async with asyncio.timeout_at(ends_at):
                await self._idle.wait()
        except TimeoutError:
            log.warning(
                "%d handlers still ran %s s after the end was asked for, and are no longer waited for; their messages "
                "were not acknowledged and will be delivered again",
                self._running,
                self._stop_within,
            )

    async def _look_for_standstills(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self._stands_still():
                await self._hold_off()
            left = self._last_began + self._max_runtime - loop.time()
            await asyncio.sleep(left if left > 0 else self._max_runtime)

    def _stands_still(self) -> bool:
        """Whether every handler has run for longer than it may."""
        lasts = asyncio.get_running_loop().time() - self._last_began
        return self._running == self._concurrency and lasts >= self._max_runtime

    async def _hold_off(self) -> None:
        """Leave messages to others until a handler ends."""
        log.warning(
            "all %d handlers run for longer than max_runtime (%s s): no message is taken until one of them ends, and "
            "those that wait are given back",
            self._concurrency,
            self._max_runtime,
        )
        self._subscription.hold_off()
        while self._stands_still():
            self._has_changed.clear()
            await self._give_back()
            await self._has_changed.wait()
        self._subscription.go_on()

    def _take(self, message: Message) -> None:
        self._waiting.put_nowait(message)
        self._has_changed.set()

    async def _watch(self, work: Awaitable[None]) -> None:
        try:
            await work
        except (KeyboardInterrupt, SystemExit):
            raise  # of the whole program
        except asyncio.CancelledError as error:
            if async_is_cut_off() or self._is_stopping:
                raise
            cause = WasCancelled("what a listener waited for was cancelled, and not the listener")
            cause.__cause__ = error
            self._fail(cause)
        except BaseException as error:  # noqa: BLE001 - it ends the listener, and leaves `async with`
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._has_failed.done():
            self._has_failed.set_exception(error)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            message = await self._waiting.get()
            if self._is_stopping:
                await self._subscription.give_back(message)
                continue
            self._running += 1
            self._last_began = loop.time()
            self._idle.clear()
            try:
                await process(self._subscription, message, self._receive)
            finally:
                self._running -= 1
                self._has_changed.set()
                if not self._running:
                    self._idle.set()


@asynccontextmanager
async def run_listener(
    consumer: AnyConsumer, subscription: Subscription, *, concurrency: int, stop_within: Duration
) -> AsyncIterator[None]:
    """Listen for as long as the block runs.

    Raises:
        UsageError: the program or the broker's settings have to be changed; what it happened to was not acknowledged.
    """
    if not isinstance(concurrency, int) or concurrency < 1:
        raise UsageError(f"concurrency is a positive whole number, not {concurrency!r}; nothing was taken.")
    within = to_timedelta("stop_within", stop_within, may_be_zero=True, error=UsageError)
    listener = Listener(consumer, subscription, concurrency, within)
    try:
        tasks = await listener.start()
    except BaseException:
        await subscription.close()
        raise
    block = asyncio.current_task()
    assert block is not None  # noqa: S101 - inside a coroutine there is one
    interrupted = False

    def interrupt(_: asyncio.Future[None]) -> None:
        nonlocal interrupted
        if not listener.has_failed.cancelled():
            interrupted = True
            block.cancel()

    listener.has_failed.add_done_callback(interrupt)
    try:
        yield
    except asyncio.CancelledError:
        # A cancellation by somebody else, at the same time, goes on as one.
        if not interrupted or block.uncancel() > 0:
            raise
    finally:
        listener.has_failed.remove_done_callback(interrupt)
        await _finish(asyncio.ensure_future(listener.stop(tasks)))
    if listener.has_failed.done():
        listener.has_failed.result()


async def _finish(ending: asyncio.Future[None]) -> None:
    """Wait for an end to its end, even if the one who waits is cancelled meanwhile."""
    was_cancelled = False
    while not ending.done():
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            was_cancelled = True
    ending.result()
    if was_cancelled:
        raise asyncio.CancelledError


async def cancel_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """End tasks and wait for them.

    A cancellation that arrives while a client closes a connection may end up as an error of that connection, after
    which the task goes on: it is cancelled until it ends.
    """
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=_CANCEL_AGAIN_AFTER)


class RetryDelay:
    """How long to wait before the broker is tried again: longer after each failure in a row."""

    def __init__(self) -> None:
        self._backoff = Backoff(first=0.1, most=10.0)
        self._failures = 0

    def reset(self) -> None:
        """The broker answered: begin with the shortest wait again."""
        self._failures = 0

    async def wait(self, reason: str) -> None:
        """Say what happened, and wait."""
        self._failures += 1
        pause = self._backoff.after(self._failures)
        log.warning("%s; the next try is in %.1f s", reason, pause.total_seconds())
        await asyncio.sleep(pause.total_seconds())


def identity_of(source: str, id_: str) -> str:
    """One text of visible ASCII that names an event among all others of a broker."""
    return f"{quote(source, safe=_PLAIN)}|{quote(id_, safe=_PLAIN)}"
