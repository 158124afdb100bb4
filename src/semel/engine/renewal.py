"""Renewal: every lease that handlers of this process hold is kept alive, apart from everything else the process does.

Invariants: renewals of all leases that are due go as one list. They never wait behind what callers ask the store for.
A watch that comes to its work too late, because the process or the event loop stood still, marks the leases that are
over by then as lost before anything else, and says once how long that was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from semel.core.circuit import Change
from semel.core.flow import Flow
from semel.core.operations import Answer, Operation
from semel.core.store import AsyncDriver, Driver, Store
from semel.engine.async_lane import AsyncLane
from semel.engine.background import Beat, Heartbeat
from semel.engine.call_flow import CallFlow
from semel.engine.clock import Clock
from semel.engine.effects import PerformAll, Stalled
from semel.engine.lane import Lane
from semel.engine.sync_lane import CombiningLane
from semel.engine.watch import Perform, ThreadWatch

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

    def rouse(self, at: float | None) -> None:
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
            self._watch.rouse(beat.next)

    def release(self, beat: Beat) -> None:
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
    opened: list[tuple[CombiningLane, Driver]] = []

    def perform(operations: Sequence[Operation]) -> list[Answer | Exception]:
        if not opened:
            driver = store.driver()
            opened.append((CombiningLane(Lane(store), driver, _ignore), driver))
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
        return AsyncLane(Lane(store), driver, _ignore), driver

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
