"""Drives the real lane as the shells of both colours do: who leads, what goes out, what comes back, who is gone.

The guard in front of the store is real as well, and watched: nobody is refused whom it has to let through.

What always holds: a round is out as soon as the store has seen it, and comes back later; in between a caller may be
cancelled. With tasks one task leads for all; with threads the first to arrive leads, and hands the lead on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from semel.core.breaker import Breaker
from semel.core.flow import run
from semel.core.guard import Guard
from semel.core.operations import Checkpoint, Claim, Complete, Fail, Read, Renew, Scan
from semel.core.store import Answers, Store
from semel.engine.lane import Lane, Round, Ticket
from semel.errors import StoreUnavailable
from semel.testing.simulate.violation import Violation

if TYPE_CHECKING:
    from semel.testing.simulate.caller import Caller
    from semel.testing.simulate.exchange import Exchange
    from semel.testing.simulate.process import Worker

IDLE, READY, OUT = 0, 1, 2
FIRST_OF_PROCESS = 1000
"""The actors of callers have smaller numbers."""

_REST, _LONGEST_REST = 0.1, 0.4
_OF_A_RUN = (Complete, Fail, Renew, Checkpoint)


class LaneRunner:
    """Sends rounds of the real lane: one task leads (tasks), or the first caller leads and hands on (threads)."""

    __slots__ = (
        "actor",
        "breaker",
        "due_us",
        "exchange",
        "lane",
        "leader",
        "replies",
        "round",
        "silent",
        "state",
        "threads",
        "worker",
    )

    def __init__(self, worker: Worker, actor: int, *, guarded: bool = True) -> None:
        self.worker = worker
        self.actor = actor
        self.breaker = Breaker(
            failures=worker.sim.world.failures, rest=_REST, longest=_LONGEST_REST, chance=lambda: 1.0
        )
        guard = Guard(self.breaker, worker.clock.monotonic) if guarded else None
        self.lane = Lane(cast("Store", worker.sim.store), guard)  # asked for plans and the size of a batch, no more
        self.silent = False  # whether the last round stayed without any answer
        self.threads = worker.sim.world.colour == "threads"
        self.state = IDLE
        self.leader: Ticket | None = None
        self.round: Round = []
        self.replies: list[Answers | Exception] = []
        self.due_us: int | None = None
        self.exchange: Exchange | None = None  # a round that is made of several requests, on its way

    def go(self) -> None:
        """Its move: send what waits."""
        self.worker.sim.faults.at_round(self)

    def submit(self, ticket: Ticket) -> None:
        """Queue a ticket."""
        if self.lane.submit(ticket):
            self.state = READY
            self.leader = ticket
        elif ticket.answer is not None:
            self._refused(ticket, "refused at once")
            ticket.seat.answered(ticket)

    def _refused(self, ticket: Ticket, how: str) -> None:
        if isinstance(ticket.operation, _OF_A_RUN):
            raise Violation("guard", f"{type(ticket.operation).__name__} of an attempt that runs was refused")
        if not self.silent:
            raise Violation("guard", f"{type(ticket.operation).__name__} was refused although the store answers")
        self.worker.sim.seen[how] += 1

    def only_reads(self) -> bool:
        """Whether the next round cannot change anything."""
        return all(isinstance(ticket.operation, (Read, Scan)) for ticket in self.lane._waiting)

    def waiting_callers(self) -> list[Caller]:
        """Whose tickets wait, as far as they can be cancelled: a thread that is about to send cannot."""
        tickets = [ticket for ticket in self.lane._waiting if not ticket.abandoned and is_callers(ticket)]
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

    def begin(self, exchange: Exchange) -> None:
        """The round is out, request by request."""
        self.take()
        self.state, self.exchange = OUT, exchange
        exchange.begin()

    def step(self) -> None:
        """The replies come back."""
        if self.state != OUT:
            return  # interrupted meanwhile
        if self.worker.sim.faults.while_out(self):
            return
        self.settle(self.replies)

    def settle(self, replies: list[Answers | Exception] | None) -> None:
        """Hand the replies out, and the lead on. None: the round was cut short."""
        lane, round_ = self.lane, self.round
        self.round, self.replies, self.due_us = [], [], None
        if replies:
            self.silent = all(isinstance(reply, Exception) for reply in replies)
        for ticket in lane.settle(round_, replies):
            if isinstance(ticket.answer, StoreUnavailable) and not ticket.answer.asked:
                self._refused(ticket, "sent away")
            ticket.seat.answered(ticket)
        for change in lane.changes():
            self.worker.sim.seen["left alone" if change == "store_open" else "found again"] += 1
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
            self.settle(None)
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
        if self.breaker._failed:
            queue = (*queue, self._trouble())
        if self.state != OUT:
            return self.state, queue, self.threads and _seat(self.leader)
        out = tuple([_mark(ticket) for list_ in self.round for ticket in list_])
        answers = [reply if isinstance(reply, list) else type(reply) for reply in self.replies]
        way = None if self.exchange is None else self.exchange.mark()
        return queue, out, _seat(self.leader), self.due_us, repr(answers), way

    def _trouble(self) -> tuple[object, ...]:
        breaker = self.breaker
        return breaker._failed, breaker._tries, breaker._again_at, breaker._trying_since, self.silent


def is_callers(ticket: Ticket) -> bool:
    """Whether a caller waits for it, who can be cancelled; a watch cannot."""
    return bool(ticket.seat.actor < FIRST_OF_PROCESS)


def _seat(ticket: Ticket | None) -> int:
    return -1 if ticket is None or ticket.seat is None else ticket.seat.actor


def _mark(ticket: Ticket) -> tuple[object, ...]:
    return _seat(ticket), type(ticket.operation), ticket.abandoned, ticket.leads


def unanswered() -> StoreUnavailable:
    """What a driver says of a round that the store did not answer."""
    return StoreUnavailable("the simulated store did not answer")
