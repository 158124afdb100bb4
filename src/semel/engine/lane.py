"""The lane: what concurrent callers ask for while a round is on its way goes together in the next one.

A pure state machine: tickets come in, rounds go out, replies come back. It has no timer and adds no delay when alone.
What always holds: at most one round is on its way; a ticket is answered exactly once or dropped because its caller is
gone; a claim granted to a caller who is gone is given back, so that no claim is without an owner, and where its reply
was lost it is asked once more, as long as the store is not left alone. Whoever leads keeps leading until somebody who
waits can take over, and a give-back never waits for a later visitor. What begins something or only looks is refused at
once where the guard says so or too many wait; a write of an attempt that runs never is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from semel.core.circuit import RUNNING, Change, Guard
from semel.core.operations import Answer, Claim, Operation, Read, Scan, give_back
from semel.core.store import Answers, Batching, Plan
from semel.errors import StoreUnavailable

_FULL_FOR = 1.0
_CUT_SHORT = "The round was interrupted before the store answered; whether it took effect is not known."


class Ticket:
    """One operation in a lane. `seat` is whatever the shell waits on; `again` says that it was sent before."""

    __slots__ = ("abandoned", "again", "answer", "leads", "operation", "seat")

    def __init__(self, operation: Operation, seat: Any = None) -> None:
        self.operation = operation
        self.seat = seat
        self.answer: Answer | Exception | None = None
        self.abandoned = False
        self.again = False
        self.leads = False

    def result(self) -> Answer:
        """The answer; raises the error that was the answer."""
        if isinstance(self.answer, Exception):
            raise self.answer
        assert self.answer is not None  # noqa: S101 - shells look only after the ticket was answered
        return self.answer


_operation_of = attrgetter("operation")

Round = list[list[Ticket]]


class Lane:
    """Gathers tickets into rounds of at most `store.batch`, one list per kind of operation.

    Args:
        store: what makes plans.
        guard: what stands in front of the store; none where the store has its own.
        most_waiting: how many tickets may wait.
    """

    def __init__(self, store: Batching, guard: Guard | None = None, most_waiting: int = 10_000) -> None:
        self._store = store
        self.guard = self._guard = guard
        self._most_waiting = most_waiting
        self._waiting: deque[Ticket] = deque()
        self._leading = False

    def submit(self, ticket: Ticket) -> bool:
        """Queue a ticket, or answer it with a refusal. True means that nobody leads: the submitter has to."""
        guard = self._guard
        if (guard is not None and not guard.closed) or len(self._waiting) >= self._most_waiting:
            ticket.answer = self._refusal(ticket.operation)
            if ticket.answer is not None:
                return False
        self._waiting.append(ticket)
        if self._leading:
            return False
        self._leading = ticket.leads = True
        return True

    def _refusal(self, operation: Operation) -> StoreUnavailable | None:
        if len(self._waiting) >= self._most_waiting and not isinstance(operation, RUNNING):
            message = (
                f"{len(self._waiting)} operations of this process wait for {self._store.name} already, so it was not "
                f"asked; nothing ran. Ask again with the same key later, or raise max_queue= of Limits."
            )
            return StoreUnavailable(message, retry_after=_FULL_FOR, asked=False)
        return None if self._guard is None else self._guard.refusal(operation)

    def take(self) -> Round:
        """The next round; empty when nothing is left to send."""
        kinds: dict[type, list[Ticket]] = {}
        room = self._store.batch
        while self._waiting and room:
            ticket = self._waiting.popleft()
            if ticket.abandoned and not ticket.again and isinstance(ticket.operation, (Claim, Read, Scan)):
                continue  # never sent, so nothing to undo
            kinds.setdefault(type(ticket.operation), []).append(ticket)
            room -= 1
        if kinds and self._guard is not None:
            self._guard.sent()
        return list(kinds.values())

    def plans(self, round_: Round) -> list[Plan]:
        """What a driver runs for a round."""
        if len(round_) == 1:
            return [self._store.plan(list(map(_operation_of, round_[0])), joined=False)]
        return [self._store.plan(list(map(_operation_of, list_)), joined=False) for list_ in round_]

    def settle(
        self, round_: Round, replies: Sequence[Answers | Exception] | None, struck: Exception | None = None
    ) -> list[Ticket]:
        """Hand the replies of a round to its tickets; returns those that somebody still waits for.

        With a store that is left alone from now on, those who wait for the next round are among them. None: the round
        was cut short, so its fate is unknown, and it says nothing of the store. The same holds for those whose answer
        would be `struck`: that error befell whoever sent the round, and is no answer of the store.
        """
        told = () if replies is None else replies
        if replies is None:
            replies = [StoreUnavailable(_CUT_SHORT)] * len(round_)
        guard = self._guard
        if guard is None:
            return self._handed_out(round_, replies, struck)
        guard.heard(told)
        answered = self._handed_out(round_, replies, struck)
        return answered if guard.closed else answered + self._sent_away()

    def changes(self) -> Sequence[Change]:
        """What became of the store since this was last asked."""
        return self._guard.changes() if self._guard is not None and self._guard.has_changed else ()

    def _sent_away(self) -> list[Ticket]:
        """Those who wait for a round that must not be sent: nobody waits for a store that rests."""
        refused: list[Ticket] = []
        for ticket in self._waiting:
            if not ticket.abandoned:
                ticket.answer = self._refusal(ticket.operation)
                if ticket.answer is not None:
                    refused.append(ticket)
        if refused:
            self._waiting = deque(ticket for ticket in self._waiting if ticket.answer is None)
        return refused

    def _handed_out(
        self, round_: Round, replies: Sequence[Answers | Exception], struck: Exception | None
    ) -> list[Ticket]:
        answered = []
        for list_, reply in zip(round_, replies, strict=True):
            answers = [reply] * len(list_) if isinstance(reply, Exception) else reply
            for ticket, given in zip(list_, answers, strict=True):
                answer = given if struck is None or given is not struck else StoreUnavailable(_CUT_SHORT)
                ticket.answer = answer
                if not ticket.abandoned:
                    answered.append(ticket)
                elif isinstance(ticket.operation, Claim):
                    self._undo(ticket, answer)
        return answered

    def abandon(self, ticket: Ticket) -> None:
        """The caller is gone. What was granted to it, or will be, is given back: once, however often this is said."""
        if ticket.abandoned:
            return
        already = ticket.answer
        ticket.abandoned = True
        if already is not None and isinstance(ticket.operation, Claim):
            self._undo(ticket, already)

    def _undo(self, claim: Ticket, answer: Answer | Exception) -> None:
        """A claim that may have been granted is asked again first: the same one says so, and is then given back."""
        undo = give_back(answer)
        if undo is None and not self._may_be_granted(claim, answer):
            return
        ticket = Ticket(undo or claim.operation)
        ticket.abandoned = True
        ticket.again = undo is None
        self._waiting.append(ticket)

    def _may_be_granted(self, claim: Ticket, answer: Answer | Exception) -> bool:
        lost = isinstance(answer, StoreUnavailable) and answer.asked and not answer.conflict
        return lost and not claim.again and (self._guard is None or self._guard.closed)

    def idle(self) -> bool:
        """Whether there is something to send and nobody to send it: the asker then leads."""
        if self._leading or not self._waiting:
            return False
        self._leading = True
        return True

    def hand_over(self) -> Ticket | None:
        """Who leads next. None: the lane is empty and nobody leads; a ticket without a caller: go on leading."""
        for ticket in self._waiting:
            if not ticket.abandoned:
                ticket.leads = True
                return ticket
        if self._waiting:
            return self._waiting[0]
        self._leading = False
        return None
