"""Drives the real watches, over waiters and over leases, as threads and tasks do: they rest, are roused, ask for lists.

What always holds: a watch is awake when it said it would be, or earlier; it is never asked to do two things at once.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from semel.core.flow import Flow
from semel.core.operations import Lost, Renew
from semel.engine.effects import Rest, Stalled
from semel.engine.keeper import Keeper
from semel.engine.renewal import Renewer
from semel.engine.waiting import Waiter, Waiting
from semel.engine.watch import DOZE, Watched, watching
from semel.testing.simulate.violation import Violation

if TYPE_CHECKING:
    from semel.testing.simulate.lane_runner import LaneRunner, Visit
    from semel.testing.simulate.process import Worker


class WatchRunner:
    """Drives a watch; what it asks for goes through `lane`."""

    __slots__ = (
        "_watched",
        "actor",
        "flow",
        "lane",
        "lock",
        "queued",
        "resting",
        "resting_until",
        "stirred",
        "visit",
        "woken_early",
        "worker",
    )

    def __init__(self, worker: Worker, lane: LaneRunner, watched: Watched, actor: int) -> None:
        self.worker = worker
        self.lane = lane
        self.actor = actor
        self.lock = nullcontext()  # there is one thread
        self._watched = watched
        self.flow: Flow[None] | None = None
        self.resting = False
        self.resting_until: float | None = None
        self.stirred = False
        self.woken_early = False
        self.queued = False
        self.visit: Visit | None = None

    def rouse(self, at: float | None) -> None:
        """Make sure that the watch is awake at `at` (None: now)."""
        self.stirred = True
        if self.flow is None:
            self.flow = watching(self._watched, self.worker.clock)
            self._queue()
        elif at is None or self.resting_until is None or at < self.resting_until:
            self.woken_early = True
            if self.resting:
                self._queue()

    def _queue(self) -> None:
        if not self.queued:
            self.queued = True
            self.worker.sim.ready.append(self)

    def due_us(self) -> int | None:
        """When it wakes by itself."""
        if not self.resting or self.resting_until is None:
            return None
        return self.worker.clock.instant(self.resting_until)

    def on_time(self) -> None:
        """Time has passed."""
        if self.resting and self.resting_until is not None and self.worker.clock.monotonic() >= self.resting_until:
            self._queue()

    def woken(self) -> None:
        """Its list came back, or the lead came to it."""
        self._queue()

    def step(self) -> None:
        """Go on."""
        self.queued = False
        assert self.flow is not None
        if self.visit is not None:
            if not self.visit.is_over:
                self.lane.resume(self.visit)
            if not self.visit.is_over:
                return
            wanted = self.flow.send(self._answers(self.visit))
        elif self.resting:
            wanted = self._wake()
        else:
            wanted = next(self.flow)
        while isinstance(wanted, (Rest, Stalled)):
            if isinstance(wanted, Stalled):
                self._reported()
                wanted = self.flow.send(None)
                continue
            self.resting, self.resting_until = True, self._until(wanted.until)
            if not self.woken_early:
                return
            wanted = self._wake()
        self.visit = self.lane.ask_all(self, wanted.operations)

    def _answers(self, visit: Visit) -> list[Any]:
        self.visit = None
        for ticket in visit.tickets:
            if type(ticket.answer) is Lost and type(ticket.operation) is Renew:
                self.worker.sim.witness.refused.add(ticket.operation.lease.nonce)
        answers: list[Any] = visit.value
        return answers

    def _reported(self) -> None:
        sim = self.worker.sim
        if not sim.held_up:
            raise Violation("told", "a stall was reported, and nothing stood still")
        sim.seen["stall reported"] += 1

    def _until(self, until: float | None) -> float | None:
        if until is None and self.stirred:
            until = self.worker.clock.monotonic() + DOZE
        self.stirred = False
        return until

    def _wake(self) -> Any:
        self.resting, self.resting_until, self.woken_early = False, self.worker.clock.monotonic(), False
        assert self.flow is not None
        return self.flow.send(None)

    def mark(self) -> tuple[object, ...]:
        """Where it is, for telling states apart."""
        return self.resting, self.resting_until, self.woken_early, self.visit is None


class KeeperRunner(WatchRunner):
    """Drives the real keeper."""

    __slots__ = ("keeper",)

    def __init__(self, worker: Worker, lane: LaneRunner) -> None:
        self.keeper = Keeper(worker.clock, Waiting(_no_jitter), _wake_up)
        super().__init__(worker, lane, self.keeper, 2000 + worker.index)

    def mark(self) -> tuple[object, ...]:
        """All of it, for telling states apart."""
        waiting = self.keeper.waiting
        waiters = [(waiter.seat.actor, waiter.until) for waiters in waiting._keys.values() for waiter in waiters]
        heirs = [waiter.seat.actor for waiter in waiting._heirs.values()]
        timing = (waiting._look_at, waiting._last_look, self.keeper._tally_at)
        return tuple(waiters), tuple(heirs), frozenset(waiting._nudged), timing, super().mark()

    def leftover(self) -> str | None:
        """What is still held though nobody is left to hold it."""
        waiting = self.keeper.waiting
        for what, left in (
            ("a waiter", waiting._keys),
            ("a promotion", waiting._heirs),
            ("a ticket", self.lane.lane._waiting),
        ):
            if left:
                return what
        return None


class RenewalRunner(WatchRunner):
    """Drives the real renewal of leases."""

    __slots__ = ("renewer",)

    def __init__(self, worker: Worker, lane: LaneRunner) -> None:
        self.renewer = Renewer(worker.clock)
        super().__init__(worker, lane, self.renewer, 2500 + worker.index)

    def mark(self) -> tuple[object, ...]:
        """All of it, for telling states apart."""
        beats = self.renewer.heartbeat._beats.values()
        held = [(beat.lease.nonce, beat.deadline, beat.next, beat.lost) for beat in beats]
        return tuple(held), self.renewer._ready_since, super().mark()

    def leftover(self) -> str | None:
        """What is still held though nobody is left to hold it."""
        return "a lease" if self.renewer.heartbeat._beats else None


def _no_jitter() -> float:
    return 0.0


def _wake_up(waiter: Waiter) -> None:
    waiter.seat.news(waiter)
