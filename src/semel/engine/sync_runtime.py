"""What one process needs for threads: the lane, the keeper, and the renewal of leases. Made on first use.

What always holds: the keeper's state is touched under one lock; waiters block on a seat of their own and hold nothing
else. Leases are renewed by a thread of its own, on a connection of its own, so that no round of the lane delays them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from semel.core.circuit import Change
from semel.core.flow import run
from semel.core.operations import Answer, Operation
from semel.core.store import InFront, Store, tiers_of
from semel.engine.attempt import AttemptState
from semel.engine.background import Keeper, Waiter, Waiting
from semel.engine.call_flow import Once
from semel.engine.clock import Clock
from semel.engine.effects import Stalled
from semel.engine.lane import Lane
from semel.engine.renewal import Renewals, Renewer, renewing_for_threads
from semel.engine.sync_lane import CombiningLane
from semel.engine.watch import ThreadWatch


class Runtime:
    """The moving parts of one process."""

    def __init__(
        self,
        store: Store,
        lane: Lane,
        clock: Clock,
        waiting: Waiting,
        *,
        tell: Callable[[Change], None],
        report: Callable[[Stalled], None],
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
        opening = nullcontext(self.lane.perform_all)
        self._watch = ThreadWatch(self._keeper, clock, lambda: opening, _nothing_else, "semel-keeper")
        renewer = Renewer(clock)
        self._leases = renewing_for_threads(store, renewer, clock, report)
        self._renewals = Renewals(renewer, self._leases, clock)
        self.hold: Callable[[AttemptState, Once], None] = self._renewals.hold
        self.release: Callable[[AttemptState], None] = self._renewals.release
        self._listens = False

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

    def wait(self, digest: bytes, until: float, last: Waiter | None) -> Waiter:
        """Block until the waiter has news; `last` is the one this call waited with before."""
        self._listen()
        seat = threading.Lock()
        seat.acquire()
        with self._watch.lock:
            waiter = self._keeper.waiting.join(digest, until, self._clock.monotonic(), seat, last)
            if waiter.news is not None:
                return waiter
            self._watch.rouse(min(until, self._keeper.waiting.due() or until))
        try:
            seat.acquire()
        except BaseException:
            with self._watch.lock:
                self._keeper.waiting.leave(waiter)
                if self._keeper.waiting.done(digest, waiter):
                    self._watch.rouse(None)
            raise
        return waiter

    def take_turn(self, digest: bytes) -> Waiter | None:
        """Become the one of this process who claims a key; None while somebody else is."""
        with self._watch.lock:
            return self._keeper.waiting.take_turn(digest)

    def _listen(self) -> None:
        """From the first wait on, have the store tell of ends, where it can."""
        with self._watch.lock:
            first, self._listens = not self._listens, True
        listen = getattr(self._driver, "listen", None) if first else None
        if listen is not None:
            listen(lambda digest: self.done(None, digest, None))

    def done(self, state: AttemptState | None, digest: bytes, waiter: Waiter | None) -> None:
        """A call is over."""
        if state is not None:
            self.release(state)
        with self._watch.lock:
            if self._keeper.waiting.done(digest, waiter):
                self._watch.rouse(None)

    def replayed(self, digest: bytes) -> None:
        """Count a replay."""
        with self._watch.lock:
            if self._keeper.replayed(digest):
                self._watch.rouse(self._keeper.due())

    def wakes(self) -> list[threading.Event]:
        """What wakes the threads that are alive here; tests ask whether they rest."""
        return [*self._watch.wakes(), *self._leases.wakes()]

    def close(self) -> None:
        """Write down what was counted, end the threads, let go of the connections."""
        with self._watch.lock:
            tallies = self._keeper.drain()
        if tallies:
            self.lane.perform_all(tallies)
        self._watch.close()
        self._leases.close()
        if self._front_driver is not None:
            self._front_driver.close()
        self._driver.close()


def _nothing_else(effect: Any) -> None:
    raise AssertionError(effect)


def _seat_ready(waiter: Waiter) -> None:
    waiter.seat.release()


def _unheard(_change: Change) -> None:
    """A cache has no guard, but a gate of its own, which tells by itself."""
