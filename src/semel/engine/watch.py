"""A watch in a thread of its own, whatever the threads or event loops of the caller are busy with.

Invariants: what is watched is touched under `lock`; nothing that may block or call out is done under it. The thread is
a daemon, begins with the first thing to watch, and ends by itself after a while without any, or with `close`.

A background watch: do what is due, rest until something is, for as long as there is something to watch.

A flow: it asks for lists of operations, for rest, and for reports; a thread (`sync_watch`) or a task (`aio_watch`) of
an event loop carries it out.

A watch in a task of an event loop: it looks after things whenever the loop gets round to it.

Invariants: everything is touched by that loop alone, so nobody ever waits for `lock`; whoever uses either kind of watch
takes it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from semel.core.flow import Flow, arun, run
from semel.core.operations import Answer, Operation
from semel.engine.clock import Clock
from semel.engine.effects import PerformAll, SleepUntil

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

    def rouse(self, at: float | None) -> None:
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

    def rouse(self, at: float | None) -> None:
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
