"""What is done beside calls: waiting for somebody else's key, keeping leases alive, counting replays.

Pure state machines say what is due, flows ask for it, and a watch runs such a flow in a thread or in a task.

- `Waiting` knows everybody in this process who waits. However many wait, there is one read per key and look and at most
  five looks a second; a waiter holds no connection; no more wait than the limits say, and whoever comes then is told so
  at once; when the owner is gone exactly one waiter is told to claim, and the next only after that one has left without
  the key.
- `Heartbeat` knows every lease of this process. A lease is renewed at a third of its length, and no longer than
  `max_runtime`; an attempt whose lease was refused, or whose renewals stayed without answer until the lease must be
  over, is told that it is lost before anybody else can have been granted the key by the store's clock.
- `RunningHandlers` knows every handler of this process that runs, where there is a limit to their number. It forgets a
  call that nobody holds any more, and what a parent process ran.
- `Background` looks for the waiters, and writes down replays and who this process is. An error of the store never ends
  it.
- `Renewer` renews all leases that are due as one list, which never waits behind what callers ask the store for. If it
  comes too late, because the process or the event loop stood still, it marks the leases that are over as lost before
  anything else, and says once how long that was.
- `ThreadWatch` and `TaskWatch` do what is due and rest until something is. What is watched is touched under `lock`;
  nothing that may block or call out is done under it. They begin with the first thing to watch; the thread is a daemon
  and ends by itself after a while without any, or with `close`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import msgspec

from semel.core.circuit import Change, Limits
from semel.core.flow import Flow, arun, run
from semel.core.operations import (
    AddReplays,
    Answer,
    Found,
    Lost,
    Operation,
    Read,
    Recorded,
    RegisterWorker,
    Renew,
    Renewed,
)
from semel.core.record import Lease, Status, StoredRecord, Worker
from semel.core.store import AsyncDriver, Driver, Store
from semel.engine.clock import Clock
from semel.engine.lane import AsyncLane, Lane, ThreadLane
from semel.errors import TooManyHandlers

if TYPE_CHECKING:
    from semel.engine.call_flow import CallFlow


class PerformAll(msgspec.Struct, frozen=True):
    """Perform several operations as one list; the reply is a list of answers, errors included as values."""

    operations: list[Operation]


class SleepUntil(msgspec.Struct, frozen=True):
    """Nothing to do until this instant of the engine's clock, or until something changes."""

    until: float | None


class Stalled(msgspec.Struct, frozen=True):
    """Report that nothing was renewed for so many seconds, and that so many leases are over because of it."""

    seconds: float
    lapsed: int


class Ended(msgspec.Struct, frozen=True):
    """A waiter's news: the record has its final answer."""

    record: StoredRecord


class Promoted(msgspec.Struct, frozen=True):
    """A waiter's news: the owner is gone, and this waiter is the one to claim again."""


class TimedOut(msgspec.Struct, frozen=True):
    """A waiter's news: the time it was willing to wait is over."""


class Crowded(msgspec.Struct, frozen=True):
    """A waiter's news: it cannot wait, because as many wait already as may.

    `whole_process` says whether that is so for all keys of the process together, or for this key alone.
    """

    whole_process: bool


News = Ended | Promoted | TimedOut | Crowded


_PART = 3


class HeldLease:
    """One lease kept alive. `lost` says why it is not any more."""

    __slots__ = ("deadline", "lease", "length", "lost", "next", "stop")

    def __init__(self, lease: Lease, length: float, asked: float, stop: float) -> None:
        self.lease = lease
        self.length = length
        self.deadline = asked + length
        self.next = asked + length / _PART
        self.stop = stop
        self.lost: str | None = None

    @property
    def counted_from(self) -> float:
        """Since when its length counts: it was claimed then, or renewed; never, where somebody else holds the key."""
        return float("-inf") if self.lost is not None else self.deadline - self.length

    def over(self, now: float) -> str | None:
        """Why the lease is lost at this instant, if it is."""
        if self.lost is not None:
            return self.lost
        if now >= self.stop:
            return "it ran longer than max_runtime, so its lease is no longer renewed"
        if now >= self.deadline:
            return "its lease could not be renewed in time"
        return None


class Heartbeat:
    """Every lease that a handler of this process holds."""

    def __init__(self) -> None:
        self._beats: dict[bytes, HeldLease] = {}

    def hold(self, lease: Lease, *, length: float, max_runtime: float, asked: float) -> HeldLease:
        """Keep a lease alive; `asked` is when the claim was sent, so that the deadline errs on the safe side."""
        beat = HeldLease(lease, length, asked, asked + max_runtime)
        self._beats[lease.nonce] = beat
        return beat

    def release(self, beat: HeldLease) -> None:
        """The attempt is over."""
        self._beats.pop(beat.lease.nonce, None)

    def due(self) -> float | None:
        """When something has to be done next."""
        times = [min(beat.next, beat.deadline, beat.stop) for beat in self._beats.values() if beat.lost is None]
        return min(times, default=None)

    def lapse(self, now: float) -> list[HeldLease]:
        """Mark leases whose time is over as lost; answers those that were not renewed in time."""
        lapsed = []
        for beat in self._beats.values():
            if beat.lost is None:
                beat.lost = beat.over(now)
                if beat.lost is not None and now < beat.stop:
                    lapsed.append(beat)
        return lapsed

    def beats(self, now: float) -> list[Renew]:
        """What to send now. Leases whose time is over are marked lost instead."""
        self.lapse(now)
        renewals = []
        for beat in self._beats.values():
            if beat.lost is None and now >= beat.next:
                beat.next = min(now + beat.length / _PART, beat.deadline)
                # Not beyond the end of renewals: a process that is frozen or killed then keeps nobody else waiting.
                length = min(beat.length, beat.stop - now)
                renewals.append(Renew(beat.lease, round(length * 1_000_000)))
        return renewals

    def answered(self, renewal: Renew, answer: Answer | Exception, sent: float) -> None:
        """Take in the answer to a renewal that was sent at `sent`; an error means that it will be tried again."""
        beat = self._beats.get(renewal.lease.nonce)
        if beat is None:
            return
        match answer:
            case Renewed():
                beat.deadline = sent + renewal.lease_us / 1_000_000
                beat.next = sent + beat.length / _PART
            case Lost():
                beat.lost = "somebody else holds the key now, or its doubt was resolved"
            case _:
                beat.next = min(sent + beat.length / (_PART * 2), beat.deadline)


FIRST_LOOK = 0.05
BETWEEN_LOOKS = 0.2
JITTER = 0.1


class Waiter:
    """One caller that waits. `event` is whatever its shell waits on; `news` is what ends the wait."""

    __slots__ = ("digest", "event", "news", "until")

    def __init__(self, digest: bytes, until: float, event: Any = None) -> None:
        self.digest = digest
        self.until = until
        self.event = event
        self.news: News | None = None


class Waiting:
    """The waiters of this process, by key. `random` gives the jitter, from 0 to 1; `limits` how many may wait."""

    def __init__(self, random: Callable[[], float], limits: Limits | None = None) -> None:
        self._random = random
        self._limits = limits or Limits()
        self._count = 0
        self._keys: dict[bytes, list[Waiter]] = {}
        self._heirs: dict[bytes, Waiter] = {}
        self._nudged: set[bytes] = set()
        self._look_at: float | None = None
        self._last_look = float("-inf")

    def join(self, digest: bytes, until: float, now: float, event: Any = None, last: Waiter | None = None) -> Waiter:
        """Begin to wait. Whoever waits again, after `last` was promoted, did not get the key: its turn is over.

        A waiter who cannot stay comes back with its news at once; whoever waited before keeps its place.
        """
        if last is not None and self._heirs.get(digest) is last:
            del self._heirs[digest]
        waiter = Waiter(digest, until, event)
        if last is None and (crowded := self._crowded(digest)) is not None:
            waiter.news = crowded
            return waiter
        self._count += 1
        self._keys.setdefault(digest, []).append(waiter)
        if self._look_at is None:
            self._look_at = max(now + FIRST_LOOK, self._last_look + BETWEEN_LOOKS)
        return waiter

    def _crowded(self, digest: bytes) -> Crowded | None:
        if self._count >= self._limits.waiters:
            return Crowded(whole_process=True)
        if len(self._keys.get(digest, ())) >= self._limits.waiters_per_key:
            return Crowded(whole_process=False)
        return None

    def take_turn(self, digest: bytes) -> Waiter | None:
        """Become the one of this process who claims a key, as if promoted; None while somebody else is."""
        if digest in self._heirs:
            return None
        self._heirs[digest] = Waiter(digest, float("inf"))
        return self._heirs[digest]

    def leave(self, waiter: Waiter) -> None:
        """Stop waiting, with or without news. A promoted waiter keeps its turn until `done`."""
        waiters = self._keys.get(waiter.digest, [])
        if waiter in waiters:
            waiters.remove(waiter)
            self._count -= 1
            if not waiters:
                self._keys.pop(waiter.digest, None)
                self._nudged.discard(waiter.digest)
        if not self._keys:
            self._look_at = None

    def done(self, digest: bytes, waiter: Waiter | None) -> bool:
        """A call for this key is over in this process: look at once, if anybody waits (then it answers true).

        If the call was a promoted waiter, its turn is over too, and the next look may promote another.
        """
        if waiter is not None and self._heirs.get(digest) is waiter:
            del self._heirs[digest]
        if digest not in self._keys:
            return False
        self._nudged.add(digest)
        return True

    def due(self) -> float | None:
        """When something has to be done next; the past means now."""
        if not self._keys:
            return None
        if self._nudged:
            return float("-inf")
        ends = min(waiter.until for waiters in self._keys.values() for waiter in waiters)
        return ends if self._look_at is None else min(ends, self._look_at)

    def look(self, now: float) -> tuple[list[Waiter], list[Read]]:
        """Who has waited long enough, and what to read now."""
        late = [waiter for waiters in self._keys.values() for waiter in waiters if now >= waiter.until]
        for waiter in late:
            waiter.news = TimedOut()
            self.leave(waiter)
        if self._look_at is not None and now >= self._look_at:
            wanted = list(self._keys)
            self._last_look = now
            self._look_at = now + BETWEEN_LOOKS + JITTER * self._random()
        else:
            wanted = [digest for digest in self._nudged if digest in self._keys]
        self._nudged.clear()
        return late, [Read(digest, waits=True) for digest in wanted]

    def looked(self, read: Read, answer: Answer | Exception) -> list[Waiter]:
        """Take in what a read found; returns the waiters who now have news."""
        if not isinstance(answer, Found):
            return []  # the store did not answer: look again later
        waiters = list(self._keys.get(read.digest, []))
        record = answer.record
        if record is not None and record.final and record.expires_us > answer.now_us:
            for waiter in waiters:
                waiter.news = Ended(record)
                self.leave(waiter)
            return waiters
        if not waiters or _is_held(record, answer.now_us) or read.digest in self._heirs:
            return []
        return [self._promote(waiters[0])]

    def _promote(self, waiter: Waiter) -> Waiter:
        waiter.news = Promoted()
        self._heirs[waiter.digest] = waiter
        self.leave(waiter)
        return waiter


def _is_held(record: StoredRecord | None, now_us: int) -> bool:
    return record is not None and record.status is Status.RUNNING and record.lease_us > now_us


TALLY_EVERY = 10.0
TALLY_AGAIN = 0.1
_MOST_COUNTED = 1000
_MOST_WRITTEN = 32


class RunningHandlers:
    """The calls of this process whose handlers run, or are about to be claimed; `most` of them at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._running: WeakSet[CallFlow] = WeakSet()

    def enter(self, call: CallFlow) -> None:
        """Count a call, before it claims its key.

        Raises:
            TooManyHandlers: as many are running as may.
        """
        if self._pid != os.getpid():  # the parent's handlers do not run here, and one of its threads may hold the lock
            self._start_over()
        with self._lock:
            if call in self._running or len(self._running) < self._most:
                self._running.add(call)
                return
        message = (
            f"{self._most} handlers are running in this process, as many as its limits allow (max_handlers); nothing "
            f"ran. Ask again with the same key, or raise the limit."
        )
        raise TooManyHandlers(message)

    def leave(self, call: CallFlow) -> None:
        """A call is over, or waits for somebody else."""
        if self._pid == os.getpid():
            with self._lock:
                self._running.discard(call)


REGISTER_AFTER = 1.0
"""Seconds between the first claim of a process and the note of who it is, so that no caller waits behind that."""
REGISTER_RETRY = 10.0
REGISTER_AGAIN = 24 * 3600.0
_NEVER = float("inf")


class Background:
    """What a process keeps an eye on: who waits. `wake_up` is told which waiter has news; `worker` says who this is.

    A claim that was sent at `register_from` or later is a reason to register.
    """

    def __init__(
        self,
        clock: Clock,
        waiting: Waiting,
        wake_up: Callable[[Waiter], None],
        worker: Callable[[], Worker] | None = None,
    ) -> None:
        self.waiting = waiting
        self.replays: Counter[bytes] = Counter()
        self.register_from = _NEVER if worker is None else -_NEVER
        self._worker = worker
        self._register_at: float | None = None
        self._clock = clock
        self._wake_up = wake_up
        self._tally_at: float | None = None

    def count_replay(self, digest: bytes) -> bool:
        """Count a replay, to be written down later; whether it is the first since the last time that was done.

        Under heavy load some stay uncounted.
        """
        if digest in self.replays or len(self.replays) < _MOST_COUNTED:
            self.replays[digest] += 1
        first = self._tally_at is None
        if first:
            self._tally_at = self._clock.monotonic() + TALLY_EVERY
        return first

    def plan_registration(self) -> float:
        """Note soon who this process is; answers when."""
        self.register_from = _NEVER
        self._register_at = self._clock.monotonic() + REGISTER_AFTER
        return self._register_at

    def due(self) -> float | None:
        """When the keeper has something to do next."""
        times = (self.waiting.due(), self._tally_at, self._register_at)
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: float) -> Flow[None]:
        """Do what is due now."""
        late, reads = self.waiting.look(now)
        for waiter in late:
            self._wake_up(waiter)
        operations: list[Operation] = [*reads, *self._tallies(now), *self._registration(now)]
        if not operations:
            return
        answers = yield PerformAll(operations)
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(operation, Read):  # a tally that failed is not worth a second try
                for waiter in self.waiting.looked(operation, answer):
                    self._wake_up(waiter)
            elif isinstance(operation, RegisterWorker):
                self.register_from = now + (REGISTER_AGAIN if isinstance(answer, Recorded) else REGISTER_RETRY)

    def _tallies(self, now: float) -> list[Operation]:
        if self._tally_at is None or now < self._tally_at:
            return []
        tallies = self.drain(_MOST_WRITTEN)
        self._tally_at = now + TALLY_AGAIN if self.replays else None
        return tallies

    def _registration(self, now: float) -> list[Operation]:
        if self._register_at is None or now < self._register_at:
            return []
        return self.drain_registration()

    def drain_registration(self) -> list[Operation]:
        """The note of who this is, where it was planned and is not written yet."""
        if self._worker is None or self._register_at is None:
            return []
        self._register_at = None
        return [RegisterWorker(self._worker())]

    def drain(self, most: int = _MOST_COUNTED) -> list[Operation]:
        """Replays counted and not yet written down, a few at a time, so that no caller waits behind them."""
        digests = list(self.replays)[:most]
        return [AddReplays(digest, self.replays.pop(digest)) for digest in digests]


DOZE = 1.0
"""Seconds that an idle watch stays half awake after the last call, so that not every call of a busy process has to
rouse it: a thread that wakes up costs more than the call."""

Perform = Callable[[Sequence[Operation]], list[Answer | Exception]]


class Watched(Protocol):
    """What a watch looks after."""

    def due(self) -> float | None:
        """When there is something to do next; None: nothing is known of."""

    def tick(self, now: float) -> Flow[None]:
        """Do what is due at `now`."""


def watching(watched: Watched, clock: Clock) -> Flow[None]:
    """Do what is due, for ever."""
    while True:
        due = watched.due()
        now = clock.monotonic()
        if due is None or due > now:
            yield SleepUntil(due)
        else:
            yield from watched.tick(now)


_log = logging.getLogger("semel")


class _Ended(BaseException):
    """Ends the flow of a watch."""


class ThreadWatch:
    """Runs a watch in a thread.

    Args:
        watched: what to look after.
        clock: what the thread rests on.
        opening: opens, for each thread anew, what carries lists of operations out; closed in the same thread.
        report: called with every other effect that the watch asks for.
        name: what the thread is called.
    """

    def __init__(
        self,
        watched: Watched,
        clock: Clock,
        opening: Callable[[], AbstractContextManager[Perform]],
        report: Callable[[Any], None],
        name: str,
    ) -> None:
        self.lock = threading.Lock()
        self._watched = watched
        self._clock = clock
        self._opening = opening
        self._report = report
        self._name = name
        self._turn: _Turn | None = None
        self._stirred = False

    def wake_by(self, at: float | None) -> None:
        """Make sure the thread is awake at `at` (None: now). To be called under `lock`."""
        self._stirred = True
        turn = self._turn
        if turn is None:
            turn = _Turn()
            turn.thread = threading.Thread(target=self._run, args=(turn,), name=self._name, daemon=True)
            self._turn = turn  # only now: `wakes` reads it without the lock
            turn.thread.start()
        elif at is None or turn.resting_until is None or at < turn.resting_until:
            turn.wake.set()

    def _run(self, turn: _Turn) -> None:
        try:
            with self._opening() as perform:
                run(self._locked(watching(self._watched, self._clock)), lambda wanted: self._do(wanted, turn, perform))
        except _Ended:
            return
        except Exception:
            with self.lock:
                self._turn = None if self._turn is turn else self._turn
            _log.exception(
                "the thread %s ended by an error; what it looked after is no longer looked after", self._name
            )
            raise

    def _locked(self, flow: Flow[None]) -> Flow[None]:
        """The same flow, with its own code under the lock."""
        with self.lock:
            wanted = next(flow)
        while True:
            answer = yield wanted
            with self.lock:
                wanted = flow.send(answer)

    def _do(self, wanted: Any, turn: _Turn, perform: Perform) -> Any:
        if turn.stopped:
            raise _Ended
        match wanted:
            case PerformAll(operations):
                return perform(operations)
            case SleepUntil(until):
                return self._rest(until, turn)
        return self._report(wanted)

    def _rest(self, until: float | None, turn: _Turn) -> None:
        with self.lock:
            if self._watched.due() != until:
                return  # something changed between the flow's look and this one
            if until is None:
                if not self._stirred:
                    self._turn = None if self._turn is turn else self._turn
                    raise _Ended
                until = self._clock.monotonic() + DOZE
            turn.resting_until = until
            self._stirred = False
        self._clock.rest(turn.wake, until)
        with self.lock:
            turn.resting_until = self._clock.monotonic()
            turn.wake.clear()
        if turn.stopped:
            raise _Ended

    def wakes(self) -> list[threading.Event]:
        """What wakes the thread, if there is one."""
        turn = self._turn
        return [] if turn is None or not turn.thread.is_alive() else [turn.wake]

    def close(self) -> None:
        """End the thread and wait for it. What is watched later begins another."""
        with self.lock:
            turn, self._turn = self._turn, None
            if turn is None:
                return
            turn.stopped = True
            turn.wake.set()
        if turn.thread is not threading.current_thread():
            turn.thread.join()


class _Turn:
    """One life of the thread."""

    thread: threading.Thread

    def __init__(self) -> None:
        self.wake = threading.Event()
        self.resting_until: float | None = None
        self.stopped = False


class TaskWatch:
    """Runs a watch in a task, which begins with the first thing to watch; arguments as for `ThreadWatch`."""

    def __init__(
        self,
        watched: Watched,
        clock: Clock,
        perform: Callable[[Sequence[Operation]], Awaitable[list[Answer | Exception]]],
        report: Callable[[Any], None],
        name: str,
    ) -> None:
        self.lock = threading.Lock()
        self._watched = watched
        self._clock = clock
        self._perform = perform
        self._report = report
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._resting_until: float | None = None
        self._stirred = False

    def wake_by(self, at: float | None) -> None:
        """Make sure the task is awake at `at` (None: now)."""
        self._stirred = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name)
        elif at is None or self._resting_until is None or at < self._resting_until:
            self._wake.set()

    async def _run(self) -> None:
        try:
            await arun(watching(self._watched, self._clock), self._do)
        except Exception:
            _log.exception("the task %s ended by an error; what it looked after is no longer looked after", self._name)
            raise

    async def _do(self, wanted: Any) -> Any:
        match wanted:
            case PerformAll(operations):
                return await self._perform(operations)
            case SleepUntil(until):
                return await self._rest(until)
        return self._report(wanted)

    async def _rest(self, until: float | None) -> None:
        if until is None and self._stirred:
            until = self._clock.monotonic() + DOZE
        self._resting_until = until
        self._stirred = False
        await self._clock.arest(self._wake, until)
        self._resting_until = self._clock.monotonic()
        self._wake.clear()

    def wakes(self) -> list[asyncio.Event]:
        """What wakes the task, if there is one."""
        return [] if self._task is None or self._task.done() else [self._wake]

    async def close(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


THREAD_NAME = "semel-leases"


class Renewer:
    """What the watch over leases looks after."""

    def __init__(self, clock: Clock) -> None:
        self.heartbeat = Heartbeat()
        self._clock = clock
        self._ready_since = clock.monotonic()

    def due(self) -> float | None:
        """When a lease has to be renewed next, or is over."""
        return self.heartbeat.due()

    def tick(self, now: float) -> Flow[None]:
        """Renew what is due; report first if this comes too late for some."""
        late = now - max(self.due() or now, self._ready_since)
        lapsed = self.heartbeat.lapse(now)
        if any(late >= beat.length / 3 for beat in lapsed):
            yield Stalled(late, len(lapsed))
        renewals = self.heartbeat.beats(now)
        if renewals:
            answers = yield PerformAll(list[Operation](renewals))
            for renewal, answer in zip(renewals, answers, strict=True):
                self.heartbeat.answered(renewal, answer, now)
            self._ready_since = self._clock.monotonic()


class Watch(Protocol):
    """What runs a watch, in a thread or in a task."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """What guards the leases."""

    def wake_by(self, at: float | None) -> None:
        """Be awake at `at`."""


class Renewals:
    """Keeps leases alive, by the watch that looks after `renewer`."""

    def __init__(self, renewer: Renewer, watch: Watch, clock: Clock) -> None:
        self._heartbeat = renewer.heartbeat
        self._watch = watch
        self._clock = clock

    def hold(self, call: CallFlow) -> None:
        """Keep the lease of a call's attempt alive."""
        policy = call.request.policy
        with self._watch.lock:
            beat = self._heartbeat.hold(
                call.lease,
                length=policy.lease_for.total_seconds(),
                max_runtime=policy.max_runtime.total_seconds(),
                asked=call.asked_at,
            )
            call.keep(beat, self._clock.monotonic)
            self._watch.wake_by(beat.next)

    def hold_claims(self, leases: Sequence[Lease], *, length: float, asked: float) -> list[HeldLease]:
        """Keep the leases of claims alive whose handlers have not begun, until they are released."""
        with self._watch.lock:
            beats = [
                self._heartbeat.hold(lease, length=length, max_runtime=float("inf"), asked=asked) for lease in leases
            ]
            if beats:
                self._watch.wake_by(beats[0].next)
        return beats

    def release(self, beat: HeldLease) -> None:
        """The attempt is over."""
        with self._watch.lock:
            self._heartbeat.release(beat)


def renewing_for_threads(
    store: Store, renewer: Renewer, clock: Clock, report: Callable[[Stalled], None]
) -> ThreadWatch:
    """A watch in a thread, on a connection of its own that is opened for the first renewal."""
    return ThreadWatch(renewer, clock, lambda: _blocking(store), report, THREAD_NAME)


def renewing_for_loops(
    store: Store,
    make_driver: Callable[[], AsyncDriver],
    renewer: Renewer,
    clock: Clock,
    report: Callable[[Stalled], None],
) -> ThreadWatch:
    """The same, with an event loop in the thread, for drivers that are awaited."""
    return ThreadWatch(renewer, clock, lambda: _in_own_loop(store, make_driver), report, THREAD_NAME)


@contextmanager
def _blocking(store: Store) -> Iterator[Perform]:
    opened: list[tuple[ThreadLane, Driver]] = []

    def perform(operations: Sequence[Operation]) -> list[Answer | Exception]:
        if not opened:
            driver = store.driver()
            opened.append((ThreadLane(Lane(store), driver, _ignore), driver))
        return opened[0][0].perform_all(operations)

    try:
        yield perform
    finally:
        for _, driver in opened:
            driver.close()


@contextmanager
def _in_own_loop(store: Store, make_driver: Callable[[], AsyncDriver]) -> Iterator[Perform]:
    opened: list[tuple[asyncio.Runner, AsyncLane, AsyncDriver]] = []

    async def lane_here() -> tuple[AsyncLane, AsyncDriver]:
        driver = make_driver()
        return AsyncLane(Lane(store), driver, _ignore, can=store.capabilities), driver

    def perform(operations: Sequence[Operation]) -> list[Answer | Exception]:
        if not opened:
            runner = asyncio.Runner()
            opened.append((runner, *runner.run(lane_here())))
        runner, lane, _ = opened[0]
        return runner.run(lane.perform_all(operations))

    try:
        yield perform
    finally:
        for runner, lane, driver in opened:
            with runner:
                runner.run(lane.close())
                runner.run(driver.close())


def _ignore(_change: Change) -> None:
    """This lane has no guard: what keeps an attempt alive is sent whatever the store did before."""
