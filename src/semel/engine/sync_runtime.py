"""What one process needs for threads: the lane, the keeper and its thread. Made on first use, gone with `close`.

What always holds: the keeper's state is touched under one lock; waiters block on a seat of their own and hold nothing
else; the keeper's thread is a daemon and ends with `close` or with the process.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from semel.core.flow import Flow, run
from semel.core.guard import Change
from semel.core.operations import Answer, Operation
from semel.core.store import Store
from semel.core.tiers import InFront, tiers_of
from semel.engine.attempt import AttemptState
from semel.engine.clock import Clock
from semel.engine.effects import Rest, Together
from semel.engine.flows import Once
from semel.engine.keeper import DOZE, Keeper
from semel.engine.lane import Lane
from semel.engine.sync_lane import CombiningLane
from semel.engine.waiting import Waiter, Waiting

_log = logging.getLogger("semel")


class Closed(BaseException):
    """Ends the keeper's flow."""


class Runtime:
    """The moving parts of one process."""

    def __init__(
        self, store: Store, lane: Lane, clock: Clock, waiting: Waiting, tell: Callable[[Change], None]
    ) -> None:
        self.pid = os.getpid()
        self._clock = clock
        self._driver = store.driver()
        self.guard = lane.guard
        self.lane = CombiningLane(lane, self._driver, tell)
        self._tiers = tiers_of(store)
        front = None if self._tiers is None else self._tiers.front
        self._front_driver = None if front is None else front.driver()
        # A lane of its own: what the cache answers does not wait for what the store behind it is busy with.
        self._front = CombiningLane(Lane(front), self._front_driver, _unheard) if front and self._front_driver else None
        self._keeper = Keeper(clock, waiting, _seat_ready)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._resting_until: float | None = None
        self._stirred = False
        self._listens = False
        self._thread: threading.Thread | None = None
        self._closed = False

    def perform(self, operation: Operation) -> Answer:
        """Have one operation performed, by the tiers of the store where it has some."""
        if self._tiers is None:
            return self.lane.perform(operation)
        answer = self._tiers.at_hand(operation)
        if answer is not None:
            return answer
        flow = self._tiers.ask(operation)
        return self.lane.perform(operation) if flow is None else run(flow, self._on_tier)

    def _on_tier(self, wanted: Any) -> Any:
        if isinstance(wanted, InFront) and self._front is not None:
            return self._front.perform(wanted.operation)  # type: ignore[arg-type]  # an operation of the cache
        return self.lane.perform(wanted)

    def hold(self, state: AttemptState, once: Once) -> None:
        """Keep an attempt's lease alive."""
        policy = once.request.policy
        with self._lock:
            beat = self._keeper.heartbeat.hold(
                state.lease,
                length=policy.lease_for.total_seconds(),
                max_runtime=policy.max_runtime.total_seconds(),
                asked=once.asked,
            )
            state.keep(beat, self._clock.monotonic)
            self._stirred = True
            self._rouse(beat.next)

    def wait(self, digest: bytes, until: float, last: Waiter | None) -> Waiter:
        """Block until the waiter has news; `last` is the one this call waited with before."""
        self._listen()
        seat = threading.Lock()
        seat.acquire()
        with self._lock:
            waiter = self._keeper.waiting.join(digest, until, self._clock.monotonic(), seat, last)
            if waiter.news is not None:
                return waiter
            self._rouse(min(until, self._keeper.waiting.due() or until))
        try:
            seat.acquire()
        except BaseException:
            with self._lock:
                self._keeper.waiting.leave(waiter)
                if self._keeper.waiting.done(digest, waiter):
                    self._rouse(None)
            raise
        return waiter

    def _listen(self) -> None:
        """From the first wait on, have the store tell of ends, where it can."""
        with self._lock:
            first, self._listens = not self._listens, True
        listen = getattr(self._driver, "listen", None) if first else None
        if listen is not None:
            listen(lambda digest: self.done(None, digest, None))

    def done(self, state: AttemptState | None, digest: bytes, waiter: Waiter | None) -> None:
        """A call is over."""
        with self._lock:
            if state is not None and state.beat is not None:
                self._keeper.heartbeat.release(state.beat)
            if self._keeper.waiting.done(digest, waiter):
                self._rouse(None)

    def replayed(self, digest: bytes) -> None:
        """Count a replay."""
        with self._lock:
            self._keeper.replayed(digest)

    def _rouse(self, at: float | None) -> None:
        """Make sure the keeper is awake at `at` (None: now). It is not disturbed when it will be anyway."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="semel-keeper", daemon=True)
            self._thread.start()
        elif at is None or self._resting_until is None or at < self._resting_until:
            self._wake.set()

    def _watch(self) -> None:
        try:
            run(self._locked(self._keeper.watch()), self._attend)
        except Closed:
            return
        except Exception:
            _log.exception("the keeper ended; leases of this process are no longer renewed")
            raise

    def _locked(self, flow: Flow[None]) -> Flow[None]:
        """The same flow, with its own code under the lock."""
        with self._lock:
            wanted = next(flow)
        while True:
            answer = yield wanted
            with self._lock:
                wanted = flow.send(answer)

    def _attend(self, wanted: Any) -> Any:
        if self._closed:
            raise Closed
        match wanted:
            case Together(operations):
                return self.lane.perform_all(operations)
            case Rest(until):
                return self._rest(until)
        raise AssertionError(wanted)

    def _rest(self, until: float | None) -> None:
        with self._lock:
            due = self._keeper.due()
            if due != until:
                return  # something changed between the flow's look and this one
            if until is None and self._stirred:
                until = self._clock.monotonic() + DOZE
            self._resting_until = until
            self._stirred = False
        self._clock.rest(self._wake, until)
        with self._lock:
            self._resting_until = self._clock.monotonic()
            self._wake.clear()
        if self._closed:
            raise Closed

    def close(self) -> None:
        """Write down what was counted, end the keeper, let go of the connections."""
        with self._lock:
            tallies = self._keeper.drain()
            self._closed = True
            self._wake.set()
        if tallies:
            self.lane.perform_all(tallies)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._front_driver is not None:
            self._front_driver.close()
        self._driver.close()


def _seat_ready(waiter: Waiter) -> None:
    waiter.seat.release()


def _unheard(_change: Change) -> None:
    """A cache has no guard, but a gate of its own, which tells by itself."""
