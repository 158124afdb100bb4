"""A lane for threads, by combining: the first to arrive runs a round for those who wait, then hands the lead on.

What always holds: a thread is blocked only while somebody leads; whoever is interrupted while leading settles the
round it had taken (its fate is unknown, so those who waited send again) and hands the lead on before it leaves. A claim
that was granted to a thread which is struck by a signal before it could take the answer is given back. What a handler
of signals raises in a round is meant for the thread that leads, and is no answer to anybody else.

What a thread does is a flow: it asks to have a round sent, or to wait for its seat. So the simulator drives the same.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeVar

from semel.core.circuit import Change
from semel.core.operations import Answer, Operation
from semel.core.store import Answers, Driver
from semel.engine.lane import Lane, Round, Ticket
from semel.errors import SemelError

T = TypeVar("T")
Replies = list[Answers | Exception]

SEND: Final = object()
"""What a thread that leads asks for: have the next round sent. Everything else is a seat to wait for."""

Visit = Generator[Any, Any, T]
"""What one thread does in the lane."""


def closed_seat() -> threading.Lock:
    """A seat: whoever acquires it waits until somebody releases it."""
    seat = threading.Lock()
    seat.acquire()
    return seat


class CombiningLane:
    """The lane of one process's threads.

    Args:
        lane: what waits, and in which order it goes.
        driver: carries rounds out.
        tell: hears what becomes of the store, outside every lock.
        new_seat: makes what a thread waits on.
    """

    def __init__(
        self,
        lane: Lane,
        driver: Driver,
        tell: Callable[[Change], None],
        new_seat: Callable[[], Any] = closed_seat,
    ) -> None:
        self._lane = lane
        self._driver = driver
        self._tell = tell
        self._new_seat = new_seat
        self._lock = threading.Lock()
        self._round: Round = []  # on its way

    def perform(self, operation: Operation) -> Answer:
        """Have one operation performed, together with whatever else is asked meanwhile."""
        return self._carried(self.asking(Ticket(operation)))

    def perform_all(self, operations: Sequence[Operation]) -> list[Answer | Exception]:
        """Have a list performed; errors come back as values."""
        return self._carried(self.asking_all([Ticket(operation) for operation in operations]))

    def asking(self, ticket: Ticket) -> Visit[Answer]:
        """One operation, from its ticket to its answer."""
        try:
            self._submit((ticket,))
            if ticket.leads:
                yield from self._lead(ticket)
            if ticket.answer is None:
                yield from self._await(ticket)
            answer = ticket.answer
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[return-value]  # it is answered by now
        except GeneratorExit:
            raise  # dropped together with the lane
        except BaseException as error:
            if error is not ticket.answer:  # else it is what the store said
                yield from self._leave(ticket)
            raise

    def asking_all(self, tickets: Sequence[Ticket]) -> Visit[list[Answer | Exception]]:
        """A list of operations, from their tickets to their answers."""
        try:
            self._submit(tickets)
            for ticket in tickets:
                yield from self._await(ticket)
        except GeneratorExit:
            raise
        except BaseException:
            for ticket in tickets:  # one of them may have been handed the lead
                yield from self._leave(ticket)
            raise
        return [ticket.answer for ticket in tickets if ticket.answer is not None]

    def _carried(self, visit: Visit[T]) -> T:
        """Do what a visit asks for. Whatever strikes on the way is raised in the visit, which cleans up."""
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                while True:
                    wanted = visit.send(answer) if error is None else visit.throw(error)
                    error = None
                    answer = self._sent() if wanted is SEND else wanted.acquire()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            except BaseException as problem:
                if inspect.getgeneratorstate(visit) == inspect.GEN_CLOSED:
                    raise
                error = problem

    def _submit(self, tickets: Sequence[Ticket]) -> None:
        with self._lock:
            for ticket in tickets:
                if not self._lane.submit(ticket):
                    ticket.seat = self._new_seat()

    def _await(self, ticket: Ticket) -> Visit[None]:
        while ticket.answer is None:
            if ticket.leads:
                yield from self._lead(ticket)
            else:
                yield ticket.seat

    def _leave(self, ticket: Ticket) -> Visit[None]:
        """The thread goes, whatever it was about to get; what it leads or was granted is not left behind."""
        with self._lock:
            self._lane.abandon(ticket)
            led = ticket.leads
            ticket.leads = led or self._lane.idle()
        if led:
            self._settled(ticket, None)
        yield from self._lead(ticket)

    def _lead(self, own: Ticket) -> Visit[None]:
        """Send rounds until this thread's own ticket is answered and the lead handed on."""
        while own.leads:
            try:
                replies = yield SEND
            except Exception as error:
                if _may_be_a_signals(error):
                    raise
                replies = [error] * len(self._round)  # a failing driver fails its round, not the lane
            struck = _struck(own, self._round, replies)
            if struck is not None:
                own.abandoned = True
            self._settled(own, replies, struck)
            if struck is not None:
                raise struck

    def _sent(self) -> Replies:
        """Send the next round; the replies."""
        plans = self.take()
        return self._driver.perform(plans) if plans else []

    def take(self) -> list[Any]:
        """Take the next round; its plans."""
        with self._lock:
            self._round = self._lane.take()
            return self._lane.plans(self._round)

    def _settled(self, own: Ticket, replies: Replies | None, struck: Exception | None = None) -> None:
        """Hand out the replies, and the lead on, unless this very thread has to go on leading."""
        heir = None
        with self._lock:
            round_, self._round = self._round, []
            answered = self._lane.settle(round_, replies, struck)
            changes = self._lane.changes()
            if own.answer is not None or own.abandoned:
                heir = self._lane.hand_over()
                own.leads = heir is not None and heir.abandoned  # nobody who waits can take over
        for ticket in answered:
            if ticket is not own and ticket.seat is not None:
                ticket.seat.release()
        if heir is not None and not heir.abandoned:
            heir.seat.release()
        for change in changes:
            self._tell(change)


def _struck(own: Ticket, round_: Round, replies: Replies) -> Exception | None:
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
