"""Drives the real keeper as the runtimes of both colours do: it rests, is roused, asks for lists of operations.

What always holds: the keeper is awake when it said it would be, or earlier; it is never asked to do two things at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.core.flow import Flow
from semel.core.operations import Lost, Renew
from semel.engine.effects import Rest
from semel.engine.keeper import DOZE, Keeper
from semel.engine.lane import Ticket
from semel.engine.waiting import Waiter, Waiting

if TYPE_CHECKING:
    from semel.testing.simulate.process import Worker


class KeeperRunner:
    """Drives the real keeper, as the runtimes do."""

    __slots__ = (
        "actor",
        "flow",
        "keeper",
        "missing",
        "queued",
        "resting",
        "resting_until",
        "stirred",
        "tickets",
        "woken",
        "worker",
    )

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.actor = 2000 + worker.index
        self.keeper = Keeper(worker.clock, Waiting(_no_jitter), _wake_up)
        self.flow: Flow[None] | None = None
        self.resting = False
        self.resting_until: float | None = None
        self.stirred = False
        self.woken = False
        self.queued = False
        self.tickets: list[Ticket] = []
        self.missing = 0

    def rouse(self, at: float | None) -> None:
        """Make sure that the keeper is awake at `at` (None: now)."""
        if self.flow is None:
            self.flow = self.keeper.watch()
            self._queue()
        elif at is None or self.resting_until is None or at < self.resting_until:
            self.woken = True
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

    def answered(self, ticket: Ticket) -> None:
        """One of its operations came back."""
        if type(ticket.answer) is Lost and type(ticket.operation) is Renew:
            self.worker.sim.witness.refused.add(ticket.operation.lease.nonce)
        self.missing -= 1
        if not self.missing:
            self._queue()

    def step(self) -> None:
        """Go on."""
        self.queued = False
        assert self.flow is not None
        if self.tickets:
            answers = [ticket.answer for ticket in self.tickets]
            self.tickets = []
            wanted = self.flow.send(answers)
        elif self.resting:
            wanted = self._wake()
        else:
            wanted = next(self.flow)
        while isinstance(wanted, Rest):
            self.resting, self.resting_until = True, self._until(wanted.until)
            if not self.woken:
                return
            wanted = self._wake()
        self.tickets = [Ticket(operation, self) for operation in wanted.operations]
        self.missing = len(self.tickets)
        for ticket in self.tickets:
            self.worker.lane.submit(ticket)

    def _until(self, until: float | None) -> float | None:
        if until is None and self.stirred:
            until = self.worker.clock.monotonic() + DOZE
        self.stirred = False
        return until

    def _wake(self) -> Any:
        self.resting, self.resting_until, self.woken = False, self.worker.clock.monotonic(), False
        assert self.flow is not None
        return self.flow.send(None)

    def mark(self) -> tuple[object, ...]:
        """All of it, for telling states apart."""
        keeper, waiting = self.keeper, self.keeper.waiting
        beats = [(beat.lease.nonce, beat.deadline, beat.next, beat.lost) for beat in keeper.heartbeat._beats.values()]
        waiters = [(waiter.seat.actor, waiter.until) for waiters in waiting._keys.values() for waiter in waiters]
        heirs = [waiter.seat.actor for waiter in waiting._heirs.values()]
        timing = (waiting._look_at, waiting._last_look, keeper._tally_at, self.resting, self.resting_until, self.woken)
        return tuple(beats), tuple(waiters), tuple(heirs), frozenset(waiting._nudged), timing, self.missing

    def leftover(self) -> str | None:
        """What is still held though nobody is left to hold it."""
        waiting = self.keeper.waiting
        for what, left in (
            ("a lease", self.keeper.heartbeat._beats),
            ("a waiter", waiting._keys),
            ("a promotion", waiting._heirs),
            ("a ticket", self.worker.lane.lane._waiting),
        ):
            if left:
                return what
        return None


def _no_jitter() -> float:
    return 0.0


def _wake_up(waiter: Waiter) -> None:
    waiter.seat.news(waiter)
