"""What an engine keeps running: the lane to the store, the keeper, and the renewal of leases. Made on first use.

Invariants: a process has one of them for its threads, and one for each event loop; none is inherited by a fork or
shared with another loop. The keeper's state is touched under one lock; whoever waits holds nothing else. Leases are
renewed by a thread of its own, on a connection of its own, so that neither a lane nor a handler that blocks its event
loop delays them; only where the store's connections belong to the loop, and none can be opened beside them, a task of
that loop does it. Work that must outlive a cancelled caller is a task that is held here until it is done.

Turns: a record that is claimed in a transaction is invisible until that commits, so whoever wants to wait for it would
have to ask again and again in a transaction of its own, and hold a connection of the caller's pool meanwhile. So of all
requests of a process that wait for the same key one at a time claims; the others hold no connection, and are served by
the one look for all who wait. A turn is over when `end` is called, whatever became of the claim.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

from semel.core.circuit import Change, Guard
from semel.core.key import Key
from semel.core.operations import Answer, Operation
from semel.core.policy import Policy
from semel.core.record import Worker
from semel.core.store import (
    AsyncDriver,
    Batching,
    Driver,
    LanePort,
    Store,
    lane_wrapper_of,
    listener_of,
    maker_of_separate_drivers,
)
from semel.engine import call_errors
from semel.engine.background import (
    Background,
    Crowded,
    HeldLease,
    News,
    Renewals,
    Renewer,
    Stalled,
    TaskWatch,
    ThreadWatch,
    Waiter,
    Waiting,
    Watch,
    renewing_for_loops,
    renewing_for_threads,
)
from semel.engine.clock import Clock
from semel.engine.lane import AsyncLane, Lane, ThreadLane, locked_lock
from semel.errors import InProgress


class Placed(Protocol):
    """An engine, which may be put on another store and clock for a while."""

    @property
    def store(self) -> Store:
        """Where records are kept."""

    @property
    def clock(self) -> Clock:
        """What waiting is measured by."""


class EnginePort:
    """What a runtime needs of its engine.

    Args:
        engine: says where records are kept, and what waiting is measured by.
        new_lane: makes a lane to the store.
        new_waiting: makes a registry of those who wait for keys that others run.
        retire: told that a lane is gone; what its guard knows of the store is for the next one.
        tell_change: told that the store is left alone from now on, or answers again.
        tell_stall: told that the process stood still for so long that leases lapsed.
        worker: says who this process is, where its nonces say it.
    """

    def __init__(
        self,
        engine: Placed,
        *,
        new_lane: Callable[[], Lane],
        new_waiting: Callable[[], Waiting],
        retire: Callable[[Guard | None], None],
        tell_change: Callable[[Change], None],
        tell_stall: Callable[[Stalled], None],
        worker: Callable[[], Worker] | None = None,
    ) -> None:
        self._engine = engine
        self.worker = worker
        self.new_lane = new_lane
        self.new_waiting = new_waiting
        self.retire = retire
        self.tell_change = tell_change
        self.tell_stall = tell_stall

    @property
    def store(self) -> Store:
        """Where records are kept."""
        return self._engine.store

    @property
    def clock(self) -> Clock:
        """What waiting is measured by."""
        return self._engine.clock


class RuntimeBase:
    """What both kinds have in common."""

    _watch: Watch
    _renewals: Renewals
    _driver: Driver | AsyncDriver

    def __init__(self, host: EnginePort, lane: Lane, wake: Callable[[Waiter], None]) -> None:
        self.pid = os.getpid()
        self.guard = lane.guard
        self._store = host.store
        self._clock = host.clock
        self.background = Background(host.clock, host.new_waiting(), wake, host.worker)
        self._listens = False
        self._lane_wrapper = lane_wrapper_of(host.store)

    def take_turn(self, digest: bytes) -> Waiter | None:
        """Become the one who claims a key; None while somebody else is."""
        with self._watch.lock:
            return self.background.waiting.take_turn(digest)

    def plan_registration(self) -> None:
        """Tell the store soon who this process is: a claim was granted that is a reason to."""
        with self._watch.lock:
            self._watch.wake_by(self.background.plan_registration())

    def finish(self, held: HeldLease | None, digest: bytes, waiter: Waiter | None) -> None:
        """A call is over: let go of its lease, and let waiters look."""
        if held is not None:
            self._renewals.release(held)
        with self._watch.lock:
            if self.background.waiting.done(digest, waiter):
                self._watch.wake_by(None)

    def count_replay(self, digest: bytes) -> None:
        """Count a replay that was served."""
        with self._watch.lock:
            if self.background.count_replay(digest):
                self._watch.wake_by(self.background.due())

    def _join(self, digest: bytes, until: float, event: Any, last: Waiter | None) -> Waiter:
        """Begin to wait for a key; a waiter who has news already need not. The store is asked to tell of ends."""
        with self._watch.lock:
            first, self._listens = not self._listens, True
        listener = listener_of(self._store, self._driver) if first else None
        if listener is not None:
            listener.listen(lambda digest: self.finish(None, digest, None))
        with self._watch.lock:
            waiter = self.background.waiting.join(digest, until, self._clock.monotonic(), event, last)
            if waiter.news is None:
                self._watch.wake_by(min(until, self.background.waiting.due() or until))
            return waiter

    @contextmanager
    def _waiting(self, digest: bytes, until: float, event: Any, last: Waiter | None) -> Iterator[Waiter]:
        """Wait for a key inside; a caller who is cut off there waits no more."""
        waiter = self._join(digest, until, event, last)
        try:
            yield waiter
        except BaseException:
            self._leave(waiter)
            raise

    def _leave(self, waiter: Waiter) -> None:
        """Take out a waiter whose caller was cut off."""
        with self._watch.lock:
            self.background.waiting.leave(waiter)
            if self.background.waiting.done(waiter.digest, waiter):
                self._watch.wake_by(None)

    def _drain(self) -> list[Operation]:
        """What was counted or planned and is not written down yet."""
        with self._watch.lock:
            return [*self.background.drain(), *self.background.drain_registration()]


class SyncRuntime(RuntimeBase):
    """What runs for the threads of one process."""

    _watch: ThreadWatch
    _driver: Driver

    def __init__(self, host: EnginePort) -> None:
        lane = host.new_lane()
        super().__init__(host, lane, _release_event)
        self._driver = host.store.driver()
        self.lane = ThreadLane(lane, self._driver, host.tell_change)
        wrapper = self._lane_wrapper
        self._outer: LanePort = self.lane if wrapper is None else wrapper.wrap_lane(self.lane, _open_lane)
        self.perform: Callable[[Operation], Answer] = self._outer.perform
        opening = nullcontext(self.lane.perform_all)
        self._watch = ThreadWatch(self.background, host.clock, lambda: opening, _nothing_else, "semel-keeper")
        renewer = Renewer(host.clock)
        self._leases = renewing_for_threads(host.store, renewer, host.clock, host.tell_stall)
        self._renewals = Renewals(renewer, self._leases, host.clock)
        self.keep_lease, self.release = self._renewals.hold, self._renewals.release
        self.keep_claims = self._renewals.hold_claims

    def wait(self, digest: bytes, until: float, last: Waiter | None) -> Waiter:
        """Block until the waiter has news; `last` is the one this call waited with before."""
        event = locked_lock()
        with self._waiting(digest, until, event, last) as waiter:
            if waiter.news is None:
                event.acquire()
        return waiter

    def wakes(self) -> list[threading.Event]:
        """What wakes the threads that are alive here; tests ask whether they rest."""
        return [*self._watch.wakes(), *self._leases.wakes()]

    def close(self) -> None:
        """Write down what was counted, end the threads, let go of the connections."""
        tallies = self._drain()
        if tallies:
            self.lane.perform_all(tallies)
        self._watch.close()
        self._leases.close()
        self._outer.close()
        self._driver.close()


class AsyncRuntime(RuntimeBase):
    """What runs for one event loop; without a `lease_thread` it renews leases by itself."""

    _watch: TaskWatch
    _driver: AsyncDriver

    def __init__(self, host: EnginePort, lease_thread: LeaseThread | None) -> None:
        lane = host.new_lane()
        super().__init__(host, lane, _set_event)
        self.loop = asyncio.get_running_loop()
        self._driver = host.store.async_driver()
        self.lane = AsyncLane(lane, self._driver, host.tell_change, can=host.store.capabilities)
        if (wrapper := self._lane_wrapper) is None:
            self._outer: LanePort = self.lane
        else:
            self._outer = wrapper.async_wrap_lane(self.lane, _open_async_lane)
        self.perform: Callable[[Operation], Awaitable[Answer]] = self._outer.perform
        self._watch = TaskWatch(self.background, host.clock, self.lane.perform_all, _nothing_else, "semel-keeper")
        self._leases: TaskWatch | None = None
        self._renewals = self._make_renewals(host) if lease_thread is None else lease_thread.renewals
        self.keep_lease, self.release = self._renewals.hold, self._renewals.release
        self.keep_claims = self._renewals.hold_claims
        self._spawned: set[asyncio.Task[Any]] = set()

    def _make_renewals(self, host: EnginePort) -> Renewals:
        """Renewal by this loop itself."""
        renewer = Renewer(host.clock)
        self._leases = TaskWatch(renewer, host.clock, self.lane.perform_all, host.tell_stall, "semel-leases")
        return Renewals(renewer, self._leases, host.clock)

    async def wait(self, digest: bytes, until: float, last: Waiter | None) -> Waiter:
        """Wait until the waiter has news; `last` is the one this call waited with before."""
        event = asyncio.get_running_loop().create_future()
        with self._waiting(digest, until, event, last) as waiter:
            if waiter.news is None:
                await event
        return waiter

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` in a task that outlives the caller; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        return task

    def wakes(self) -> list[asyncio.Event]:
        """What wakes the tasks that are alive here; tests ask whether they rest."""
        return [*self._watch.wakes(), *([] if self._leases is None else self._leases.wakes())]

    async def close(self) -> None:
        """Let what is under way come to its end, write down what was counted, let go of the connections."""
        while self._spawned:
            await asyncio.wait(set(self._spawned))
        tallies = self._drain()
        if tallies:
            await self.lane.perform_all(tallies)
        await self._watch.close()
        if self._leases is not None:
            await self._leases.close()
        await self.lane.close()
        await self._outer.close()
        await self._driver.close()


class LeaseThread:
    """What renews the leases of all event loops of a process: a thread with a loop and a connection of its own."""

    def __init__(self, host: EnginePort, make_driver: Callable[[], AsyncDriver]) -> None:
        self.pid = os.getpid()
        renewer = Renewer(host.clock)
        self._watch: ThreadWatch = renewing_for_loops(host.store, make_driver, renewer, host.clock, host.tell_stall)
        self.renewals = Renewals(renewer, self._watch, host.clock)

    def wakes(self) -> list[threading.Event]:
        """What wakes the thread, if there is one; tests ask whether it rests."""
        return self._watch.wakes()

    async def close(self) -> None:
        """End the thread, if there is one, without holding this loop up."""
        if self._watch.wakes():
            await asyncio.to_thread(self._watch.close)


async def async_finish_apart(
    runtime: AsyncRuntime, work: Callable[[], Coroutine[Any, Any, None]], *, wait: bool
) -> None:
    """Do what has to be done after a cancellation in a task that no further one reaches."""
    task = runtime.spawn(work())
    if wait:
        await asyncio.shield(task)


def sync_finish_apart(_runtime: SyncRuntime, work: Callable[[], None], *, wait: bool) -> None:
    """Do what has to be done after an interrupt: nobody else could, so whoever was interrupted waits for it."""
    del wait
    work()


async def async_wait_for_threads(threads: Sequence[Future[Any]]) -> None:
    """Wait for threads that go on although their handler was cancelled: until they end its lease is kept."""
    for thread in threads:
        await _wait_for(thread)


def sync_wait_for_threads(_threads: Sequence[Future[Any]]) -> None:
    """There are none: a handler in a thread is not cancelled."""


async def _wait_for(thread: Future[Any]) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    thread.add_done_callback(lambda _: _call_in(loop, ended.set))
    await ended.wait()


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], Any]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


class SyncRuntimes:
    """The runtime of this process: one, made on first use."""

    def __init__(self, host: EnginePort) -> None:
        self._host = host
        self._made: SyncRuntime | None = None
        self._making = threading.Lock()

    def current(self) -> SyncRuntime:
        """The runtime of this process."""
        made = self._made
        if made is not None and made.pid == os.getpid():
            return made
        if made is not None:
            self._making = threading.Lock()  # after a fork: the parent's lock may be held by a thread that is not here
            self._made = None
        with self._making:
            if self._made is None:
                self._made = SyncRuntime(self._host)
            return self._made

    def alive(self) -> list[SyncRuntime]:
        """All that were made and not closed."""
        return [] if self._made is None else [self._made]

    def close(self) -> None:
        """Let go of everything; what is needed later is made again."""
        made, self._made = self._made, None
        if made is not None and made.pid == os.getpid():
            try:
                made.close()
            finally:
                self._host.retire(made.guard)


class AsyncRuntimes:
    """The runtimes of this process: one for each event loop, made on first use, and one thread for all their leases."""

    def __init__(self, host: EnginePort) -> None:
        self._host = host
        self._made: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncRuntime] = weakref.WeakKeyDictionary()
        self._latest: AsyncRuntime | None = None
        self.leases: LeaseThread | None = None
        self._making = threading.Lock()

    def current(self) -> AsyncRuntime:
        """The runtime of the running event loop."""
        loop = asyncio.get_running_loop()
        latest = self._latest
        if latest is not None and latest.loop is loop and latest.pid == os.getpid():
            return latest
        made = self._made.get(loop)
        if made is None or made.pid != os.getpid():
            for closed in [other for other in self._made if other.is_closed()]:
                self._host.retire(self._made.pop(closed).guard)
            made = self._made[loop] = AsyncRuntime(self._host, self._lease_thread())
        self._latest = made
        return made

    def _lease_thread(self) -> LeaseThread | None:
        """What keeps the leases of all loops of this process alive; None where each loop has to do it."""
        make_driver = maker_of_separate_drivers(self._host.store)
        if make_driver is None:
            return None
        leases = self.leases
        if leases is not None and leases.pid == os.getpid():
            return leases
        if leases is not None:
            self._making = threading.Lock()  # after a fork: the parent's lock may be held by a thread that is not here
            self.leases = None
        with self._making:
            if self.leases is None:
                self.leases = LeaseThread(self._host, make_driver)
            return self.leases

    def alive(self) -> list[AsyncRuntime]:
        """All that were made and not closed, in whatever loop."""
        return list(self._made.values())

    async def close(self) -> None:
        """Let go of what belongs to this loop, and with the last one of the thread; it is made again when needed."""
        self._latest = None
        made = self._made.pop(asyncio.get_running_loop(), None)
        if made is not None and made.pid == os.getpid():
            try:
                await made.close()
            finally:
                self._host.retire(made.guard)
        leases = self.leases
        if leases is not None and leases.pid == os.getpid() and not self._made:
            await leases.close()


def _release_event(waiter: Waiter) -> None:
    waiter.event.release()


def _set_event(waiter: Waiter) -> None:
    if not waiter.event.done():
        waiter.event.set_result(None)


def _nothing_else(effect: Any) -> None:
    raise AssertionError(effect)


def _open_lane(target: Batching, driver: Driver) -> ThreadLane:
    """A lane for a wrapper's own use, without a circuit breaker in front of it."""
    return ThreadLane(Lane(target), driver, _nothing_else)


def _open_async_lane(target: Batching, driver: AsyncDriver) -> AsyncLane:
    """A lane for a wrapper's own use, without a circuit breaker in front of it."""
    return AsyncLane(Lane(target), driver, _nothing_else)


class Queue(Protocol):
    """Where turns are taken: the moving parts of a process, or of an event loop."""

    def take_turn(self, digest: bytes) -> Waiter | None:
        """Become the one who claims; None while somebody else is."""

    def finish(self, held: None, digest: bytes, waiter: Waiter | None) -> None:
        """End a turn, and let those who wait look."""


class Turn:
    """One request on its way to a claim in a transaction.

    Args:
        queue: gives the moving parts of the engine.
        clock: that of the engine.
        key: what is claimed.
        policy: says whether, and for how long, the request waits for somebody else.
        tell: told when the request is refused, because somebody else still runs the key.
    """

    def __init__(
        self, queue: Callable[[], Queue], clock: Clock, key: Key, policy: Policy, tell: Callable[[Key], None]
    ) -> None:
        self.key = key
        self._queue = queue
        self._clock = clock
        self._tell = tell
        self._waits = policy.when_running == "wait"
        self._until = clock.monotonic() + policy.wait_for.total_seconds()
        self._waiter: Waiter | None = None

    def take(self) -> bool:
        """Whether this request may claim now; otherwise it waits first.

        Raises:
            InProgress: somebody else runs the key, and as many wait already as may.
        """
        if self._waiter is not None:
            self._refuse_crowded(self._waiter.news)
        elif self._waits:
            self._waiter = self._queue().take_turn(self.key.digest)
            return self._waiter is not None
        return True

    def _refuse_crowded(self, news: News | None) -> None:
        if isinstance(news, Crowded):
            self._tell(self.key)
            raise call_errors.too_many_waiting_error(self.key, 0, whole_process=news.whole_process)

    def refuse(self, error: InProgress) -> None:
        """Somebody else runs the key: return if there is time to wait for it.

        Raises:
            InProgress: there is none, and this is told.
        """
        if not self._waits or self._clock.monotonic() >= self._until:
            self._tell(self.key)
            raise error

    def end(self) -> None:
        """The request is over, or claims no more: the next one may."""
        if self._waits:
            self._queue().finish(None, self.key.digest, self._waiter)


class AsyncQueue(Queue, Protocol):
    """A queue in which one can wait."""

    def wait(self, digest: bytes, until: float, last: Waiter | None) -> Awaitable[Waiter]:
        """Wait until there is news of the key, or until the time is over."""


class AsyncTurn(Turn):
    """A turn for which one can wait."""

    _queue: Callable[[], AsyncQueue]

    async def wait(self) -> None:
        """Wait until it is worth claiming: the key is settled, nobody is at it, or the time is over."""
        self._waiter = await self._queue().wait(self.key.digest, self._until, self._waiter)


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class SyncQueue(Queue, Protocol):
    """A queue in which one can wait."""

    def wait(self, digest: bytes, until: float, last: Waiter | None) -> Waiter:
        """Wait until there is news of the key, or until the time is over."""


class SyncTurn(Turn):
    """A turn for which one can wait."""

    _queue: Callable[[], SyncQueue]

    def wait(self) -> None:
        """Wait until it is worth claiming: the key is settled, nobody is at it, or the time is over."""
        self._waiter = self._queue().wait(self.key.digest, self._until, self._waiter)
