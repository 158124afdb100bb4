"""One worker process of the simulation: the real lane and the real keeper, driven step by step.

What always holds: what the shells do around lane and keeper (`aio_lane`, `sync_lane`, the two runtimes) is done here in
the same order, with a turn of the scheduler wherever a thread or task could lose its own.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from semel.core.flow import Flow, run
from semel.core.operations import Claim, Lost, Read, Renew, Scan
from semel.core.store import Answers
from semel.engine.attempt import AttemptState
from semel.engine.effects import Rest
from semel.engine.flows import Once
from semel.engine.keeper import DOZE, Keeper
from semel.engine.lane import Lane, Round, Ticket
from semel.engine.waiting import Waiter
from semel.errors import StoreUnavailable

if TYPE_CHECKING:
    from semel.testing.simulate.caller import Caller
    from semel.testing.simulate.simulation import Simulation

IDLE, READY, OUT = 0, 1, 2


class ProcessClock:
    """The monotonic clock of one process: as fast as every other, and off by its skew."""

    __slots__ = ("_sim", "_skew_us")

    def __init__(self, sim: Simulation, skew: float) -> None:
        self._sim = sim
        self._skew_us = round(skew * 1_000_000) + 1_000_000_000

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return (self._sim.now_us + self._skew_us) / 1_000_000

    def instant(self, at: float) -> int:
        """The first microsecond of the simulation at which this clock shows `at` or more."""
        instant = round(at * 1_000_000) - self._skew_us
        while (instant + self._skew_us) / 1_000_000 < at:
            instant += 1
        return instant

    def rest(self, wake: threading.Event, until: float | None) -> None:
        """Nobody sleeps in a simulation."""
        raise NotImplementedError

    async def arest(self, wake: asyncio.Event, until: float | None) -> None:
        """Nobody sleeps in a simulation."""
        raise NotImplementedError


class Worker:
    """A process: callers live in it, share its lane and its keeper, and die with it."""

    __slots__ = ("actor", "alive", "clock", "index", "keeper", "lane", "parked", "sim", "skew", "thaws_us", "up")

    def __init__(self, sim: Simulation, index: int) -> None:
        skews = sim.world.skews
        self.sim = sim
        self.index = index
        self.actor = 1000 + index
        self.skew = skews[index % len(skews)]
        self.clock = ProcessClock(sim, self.skew)
        self.alive = True
        self.up = True
        self.thaws_us: int | None = None
        self.parked: list[Any] = []
        self.lane = LaneRunner(self)
        self.keeper = KeeperRunner(self)

    def go(self) -> None:
        """Its move: send what waits in the lane."""
        self.sim.faults.at_round(self)

    def hold(self, state: AttemptState, once: Once) -> None:
        """Keep an attempt's lease alive, as the runtimes do."""
        policy = once.request.policy
        keeper = self.keeper
        beat = keeper.keeper.heartbeat.hold(
            state.lease,
            length=policy.lease_for.total_seconds(),
            max_runtime=policy.max_runtime.total_seconds(),
            asked=once.asked,
        )
        state.keep(beat, self.clock.monotonic)
        keeper.stirred = True
        keeper.rouse(beat.next)

    def done(self, state: AttemptState | None, digest: bytes, waiter: Waiter | None) -> None:
        """A call is over, as the runtimes see it."""
        keeper = self.keeper
        if state is not None and state.beat is not None:
            keeper.keeper.heartbeat.release(state.beat)
        if keeper.keeper.waiting.done(digest, waiter):
            keeper.rouse(None)


class LaneRunner:
    """Sends rounds of the real lane: one task leads (tasks), or the first caller leads and hands on (threads)."""

    __slots__ = ("due_us", "lane", "leader", "replies", "round", "state", "threads", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.lane = Lane(worker.sim.store)
        self.threads = worker.sim.world.colour == "threads"
        self.state = IDLE
        self.leader: Ticket | None = None
        self.round: Round = []
        self.replies: list[Answers | Exception] = []
        self.due_us: int | None = None

    def submit(self, ticket: Ticket) -> None:
        """Queue a ticket."""
        if self.lane.submit(ticket):
            self.state = READY
            self.leader = ticket

    def only_reads(self) -> bool:
        """Whether the next round cannot change anything."""
        return all(isinstance(ticket.operation, (Read, Scan)) for ticket in self.lane._waiting)

    def waiting_callers(self) -> list[Caller]:
        """Whose tickets wait, as far as they can be cancelled: a thread that is about to send cannot."""
        tickets = [ticket for ticket in self.lane._waiting if not ticket.abandoned and ticket.seat is not self.worker.keeper]
        return [ticket.seat for ticket in tickets if not self.threads or ticket is not self.leader or ticket.leads]

    def take(self) -> list[Any]:
        """Take the next round; the plans of it."""
        round_ = self.round = self.lane.take()
        if len(round_) > 1 or (round_ and len(round_[0]) > 1):
            self._count()
        return self.lane.plans(round_)

    def sent(self, replies: list[Answers | Exception], due_us: int | None = None) -> None:
        """The round is out; its replies are there at once, or at an instant."""
        self.replies = replies
        self.state = OUT
        self.due_us = due_us
        if due_us is None:
            self.worker.sim.ready.append(self)

    def apply(self, plans: list[Any]) -> list[Answers | Exception]:
        """What the store answers, as a driver would pass it on."""
        store = self.worker.sim.store
        return [run(plan, store.apply_all) for plan in plans]

    def step(self) -> None:
        """The replies come back."""
        if self.state != OUT:
            return  # interrupted meanwhile
        if self.worker.sim.faults.while_out(self):
            return
        self.settle(self.replies)

    def settle(self, replies: list[Answers | Exception]) -> None:
        """Hand the replies out, and the lead on."""
        lane, round_ = self.lane, self.round
        self.round, self.replies, self.due_us = [], [], None
        for ticket in lane.settle(round_, replies):
            ticket.seat.answered(ticket)
        if self.threads and self.leader is not None and self.leader.answer is None and not self.leader.abandoned:
            self.state = READY
            return
        self._hand_over()

    def _hand_over(self) -> None:
        heir = self.lane.hand_over()
        if heir is None:
            self.state = IDLE
            self.leader = None
            return
        self.state = READY
        if heir.abandoned:
            self.worker.sim.seen["led on for the gone"] += 1
        elif self.threads:
            self.leader = heir
            self.worker.sim.seen["lead handed over"] += 1

    def abandon(self, ticket: Ticket) -> None:
        """Its caller was cancelled or interrupted, as the lanes of the two colours see it."""
        lane = self.lane
        if self.threads and ticket is self.leader and self.state == OUT:
            ticket.abandoned = True
            self.worker.sim.seen["leader interrupted"] += 1
            replies: list[Answers | Exception] = [unanswered()] * len(self.round)
            self.worker.sim.faults.unanswered(self, replies)
            self.settle(replies)
            return
        answered = ticket.answer is not None
        lane.abandon(ticket)
        if self.threads and ticket.leads and not answered:
            self.worker.sim.seen["heir interrupted"] += 1
        if lane.idle():
            self.state = READY
            self.leader = ticket

    def _count(self) -> None:
        seen = self.worker.sim.seen
        if len(self.round) > 1:
            seen["round of several kinds"] += 1
        for list_ in self.round:
            if len(list_) > 1 and isinstance(list_[0].operation, Claim):
                digests = {ticket.operation.key.digest for ticket in list_}  # type: ignore[union-attr]
                seen["duplicates in one batch" if len(digests) < len(list_) else "strangers in one batch"] += 1

    def mark(self) -> tuple[object, ...]:
        """All of it, for telling states apart."""
        queue = tuple([_mark(ticket) for ticket in self.lane._waiting])
        if self.state != OUT:
            return self.state, queue, self.threads and _seat(self.leader)
        out = tuple([_mark(ticket) for list_ in self.round for ticket in list_])
        answers = [reply if isinstance(reply, list) else type(reply) for reply in self.replies]
        return queue, out, _seat(self.leader), self.due_us, repr(answers)


def _seat(ticket: Ticket | None) -> int:
    return -1 if ticket is None or ticket.seat is None else ticket.seat.actor


def _mark(ticket: Ticket) -> tuple[object, ...]:
    return _seat(ticket), type(ticket.operation), ticket.abandoned, ticket.leads


class KeeperRunner:
    """Drives the real keeper, as the runtimes do."""

    __slots__ = ("actor", "flow", "keeper", "missing", "queued", "resting", "resting_until", "stirred", "tickets", "woken", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.actor = 2000 + worker.index
        self.keeper = Keeper(worker.clock, _no_jitter, _wake_up)
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
            self.worker.sim.refused.add(ticket.operation.lease.nonce)
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


def unanswered() -> StoreUnavailable:
    """What a driver says of a round that the store did not answer."""
    return StoreUnavailable("the simulated store did not answer")


def _no_jitter() -> float:
    return 0.0


def _wake_up(waiter: Waiter) -> None:
    waiter.seat.news(waiter)
