"""A lane for threads, by combining: the first to arrive runs a round for those who wait, then hands the lead on.

What always holds: a thread is blocked only while somebody leads; whoever is interrupted while leading settles the
round it had taken (its fate is unknown, so those who waited send again) and hands the lead on before it leaves. What a
handler of signals raises in a round is meant for the thread that leads, and is no answer to anybody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from semel.core.guard import Change
from semel.core.operations import Answer, Operation
from semel.core.store import Answers, Driver
from semel.engine.lane import Lane, Round, Ticket
from semel.errors import SemelError


class CombiningLane:
    """The lane of one process's threads. `tell` hears what becomes of the store, outside every lock."""

    def __init__(self, lane: Lane, driver: Driver, tell: Callable[[Change], None]) -> None:
        self._lane = lane
        self._driver = driver
        self._tell = tell
        self._lock = threading.Lock()

    def perform(self, operation: Operation) -> Answer:
        """Have one operation performed, together with whatever else is asked meanwhile."""
        ticket = Ticket(operation)
        self._pass(ticket)
        return ticket.result()

    def perform_all(self, operations: Sequence[Operation]) -> list[Answer | Exception]:
        """Have a list performed; errors come back as values."""
        tickets = [Ticket(operation) for operation in operations]
        leads = False
        with self._lock:
            for ticket in tickets:
                ticket.seat = _closed_seat()
                leads = self._lane.submit(ticket) or leads
        try:
            if leads:
                self._lead(tickets[0])
            for ticket in tickets:
                self._await(ticket)
        except BaseException:
            for ticket in tickets:  # one of them may have been handed the lead
                self._leave(ticket)
            raise
        return [ticket.answer for ticket in tickets if ticket.answer is not None]

    def _pass(self, ticket: Ticket) -> None:
        with self._lock:
            leads = self._lane.submit(ticket)
            if not leads:
                ticket.seat = _closed_seat()
        if leads:
            self._lead(ticket)
        else:
            self._await(ticket)

    def _await(self, ticket: Ticket) -> None:
        try:
            while ticket.answer is None:
                ticket.seat.acquire()
                if ticket.answer is None:
                    self._lead(ticket)
        except BaseException:
            self._leave(ticket)
            raise

    def _leave(self, ticket: Ticket) -> None:
        with self._lock:
            self._lane.abandon(ticket)
            must_lead = (ticket.leads and ticket.answer is None) or self._lane.idle()
        if must_lead:
            self._lead(ticket)

    def _lead(self, own: Ticket) -> None:
        """Run rounds until this thread's own ticket is answered, then hand the lead on."""
        while True:
            with self._lock:
                round_ = self._lane.take()
                plans = self._lane.plans(round_)
            try:
                replies = self._driver.perform(plans) if plans else []
            except Exception as error:
                if _may_be_a_signals(error):
                    self._interrupted(own, round_)
                    raise
                replies = [error] * len(round_)  # a failing driver fails its round, not the lane
            except BaseException:
                self._interrupted(own, round_)
                raise
            struck = _struck(own, round_, replies)
            if struck is not None:
                self._interrupted(own, round_, replies, struck)
                raise struck
            if not self._settled(own, round_, replies):
                return

    def _settled(
        self,
        own: Ticket,
        round_: Round,
        replies: Sequence[Answers | Exception] | None,
        struck: Exception | None = None,
    ) -> bool:
        """Hand out the replies, and the lead on; whether this very thread has to go on leading."""
        with self._lock:
            answered = self._lane.settle(round_, replies, struck)
            changes = self._lane.changes()
            done = own.answer is not None or own.abandoned
            heir = self._lane.hand_over() if done else _GO_ON
        for ticket in answered:
            if ticket is not own and ticket.seat is not None:
                ticket.seat.release()
        leads_on = heir is not None and heir.abandoned
        if heir is not None and not leads_on:
            heir.seat.release()
        for change in changes:
            self._tell(change)
        return leads_on

    def _interrupted(
        self,
        own: Ticket,
        round_: Round,
        replies: Sequence[Answers | Exception] | None = None,
        struck: Exception | None = None,
    ) -> None:
        own.abandoned, own.leads = True, False
        if self._settled(own, round_, replies, struck):
            self._lead(own)


def _struck(own: Ticket, round_: Round, replies: Sequence[Answers | Exception]) -> Exception | None:
    """The error that is the answer to this thread's own operation, where a signal's handler may have raised it.

    Drivers and plans catch what a handler raises like any other error, so it comes back as a reply.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    for list_, reply in zip(round_, replies, strict=True):
        if own in list_:
            answer = reply if isinstance(reply, Exception) else reply[list_.index(own)]
            return answer if isinstance(answer, Exception) and _may_be_a_signals(answer) else None
    return None


def _may_be_a_signals(error: Exception) -> bool:
    """Whether a handler of signals may have raised it: they run in the main thread alone, wherever it is.

    What a store answers is an error of semel's own. What a value is refused with is not, and nothing is lost by taking
    it for a signal's: it is raised here, as it would be anyway, and whoever shares it asks again.
    """
    return not isinstance(error, SemelError) and threading.current_thread() is threading.main_thread()


def _closed_seat() -> threading.Lock:
    seat = threading.Lock()
    seat.acquire()
    return seat


_GO_ON = Ticket(None)  # type: ignore[arg-type]  # never sent: it only says that this thread goes on leading
_GO_ON.abandoned = True
