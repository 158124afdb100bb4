"""The lane: what concurrent callers ask for while a round is on its way goes together in the next one.

`Lane` is a pure state machine: tickets come in, rounds go out, replies come back. It has no timer and adds no delay
when alone. Invariants: at most one round is on its way; a ticket is answered exactly once or dropped because its
caller is gone; a claim granted to a caller who is gone is given back, so that no claim is without an owner, and where
its reply was lost it is asked once more, as long as the store is not left alone. Whoever leads keeps leading until
somebody who waits can take over, and a give-back never waits for a later visitor. What begins something or only looks
is refused at once where the guard says so or too many wait; a write of an attempt that runs never is.

`ThreadLane` is for threads: the first to arrive runs a round for those who wait, then hands the lead on. A thread is
blocked only while somebody leads. If the leading thread is interrupted, its round fails with "outcome unknown", so
that the others send again, and the lead passes on. A claim that was granted to a thread which is struck by a signal
before it could take the answer is given back; what a handler of signals raises in a round is meant for the thread
that leads, and is no answer to anybody else. What a thread does is a flow: it asks to have a round sent, or to wait
for its seat.

`AsyncLane` is for one event loop: a task leads while there is something to send, so that a cancelled caller never
cuts a round short. With an eager driver, which needs no task to itself, an answer that is at hand is given without a
detour. It uses no more of an event loop than `Loop`. So the simulator drives the very same code of both.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar

from semel.core.circuit import RUNNING, Change, Guard
from semel.core.operations import Answer, Claim, Operation, Read, Scan, give_back
from semel.core.store import Answers, AsyncDriver, Batching, Capabilities, Capability, Driver, Plan
from semel.errors import SemelError, StoreUnavailable

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
Tell = Callable[[Change], None]


class Lane:
    """Gathers tickets into rounds of at most `store.max_operations`, one list per kind of operation.

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
        return None if self._guard is None else self._guard.check(operation)

    def take(self) -> Round:
        """The next round; empty when nothing is left to send."""
        kinds: dict[type, list[Ticket]] = {}
        room = self._store.max_operations
        while self._waiting and room:
            ticket = self._waiting.popleft()
            if ticket.abandoned and not ticket.again and isinstance(ticket.operation, (Claim, Read, Scan)):
                continue  # never sent, so nothing to undo
            kinds.setdefault(type(ticket.operation), []).append(ticket)
            room -= 1
        if kinds and self._guard is not None:
            self._guard.on_send()
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
        guard.on_reply(told)
        answered = self._handed_out(round_, replies, struck)
        return answered if guard.closed else answered + self._sent_away()

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


class ThreadLane:
    """The lane of one process's threads.

    Args:
        lane: what waits, and in which order it goes.
        driver: carries rounds out.
        tell: hears what becomes of the store, outside every lock.
        new_seat: makes what a thread waits on.
    """

    def __init__(self, lane: Lane, driver: Driver, tell: Tell, new_seat: Callable[[], Any] = closed_seat) -> None:
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

    def close(self) -> None:
        """Nothing to wait for: a round on its way belongs to the thread that sends it."""

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
            guard = self._lane.guard
            changes = guard.take_events() if guard is not None and guard.has_changed else ()
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


_AT_A_STRETCH = 32


class Loop(Protocol):
    """What a lane needs of its event loop."""

    def create_future(self) -> Any:
        """Something to await, which has `done` and `set_result`."""

    def create_task(self, coroutine: Coroutine[Any, Any, None], /) -> Any:
        """Run a coroutine beside everything else."""

    def call_soon(self, function: Callable[[], None], /) -> Any:
        """Call a function in the next turn."""


class AsyncLane:
    """The lane of one event loop: the running one, if none is given.

    Args:
        lane: what waits, and in which order it goes.
        driver: carries rounds out.
        tell: hears what becomes of the store.
        loop: what runs it.
        can: what the store of `driver` declares: whether rounds may be started outside a task.
    """

    def __init__(
        self, lane: Lane, driver: AsyncDriver, tell: Tell, loop: Loop | None = None, can: Capabilities = frozenset()
    ) -> None:
        self._lane = lane
        self._driver = driver
        self._tell = tell
        self._loop: Loop = loop or asyncio.get_running_loop()
        self._leader: asyncio.Task[None] | None = None
        self._eager = Capability.EAGER in can
        self._gathers = Capability.GATHER in can
        self._asker: asyncio.Task[Any] | None = None
        self._asked = 0
        self._crowded = False

    async def perform(self, operation: Operation) -> Answer:
        """Have one operation performed, together with whatever else is asked meanwhile."""
        ticket = Ticket(operation)
        if self._lane.submit(ticket):
            try:
                self._start_leading()
            except BaseException:  # an eager round runs in here, and was interrupted
                self._leave(ticket)
                raise
        if ticket.answer is None:
            ticket.seat = self._loop.create_future()
            try:
                await ticket.seat
            except asyncio.CancelledError:
                self._leave(ticket)
                raise
        return ticket.result()

    async def perform_all(self, operations: Sequence[Operation]) -> list[Answer | Exception]:
        """Have a list performed; errors come back as values."""
        tickets = [Ticket(operation) for operation in operations]
        leads = False
        for ticket in tickets:
            leads = self._lane.submit(ticket) or leads
        if leads:
            self._start_leading()
        for ticket in tickets:
            if ticket.answer is None:
                ticket.seat = self._loop.create_future()
                try:
                    await ticket.seat
                except asyncio.CancelledError:
                    self._leave(ticket)
                    raise
        return [ticket.answer for ticket in tickets if ticket.answer is not None]

    def _leave(self, ticket: Ticket) -> None:
        """The caller was cancelled."""
        self._lane.abandon(ticket)
        if self._lane.idle():
            self._start_leading()

    def _start_leading(self) -> None:
        leading = self._lead()
        if not self._eager or (self._gathers and self._others_ask()):
            self._leader = self._loop.create_task(leading)
            return
        try:
            first = leading.send(None)
        except StopIteration:
            return
        self._leader = self._loop.create_task(_rest(leading, first))

    def _others_ask(self) -> bool:
        """Whether several tasks ask: two in one turn of the loop, and from then on until a round was for one alone.

        Somebody who asks again and again without waiting is made to, so that the others get their turn.
        """
        if not self._crowded:
            task = asyncio.current_task()
            if self._asker is None:
                self._asker, self._asked = task, 0
                self._loop.call_soon(self._next_turn)
            self._asked += 1
            self._crowded = self._asker is not task or self._asked > _AT_A_STRETCH
        return self._crowded

    def _next_turn(self) -> None:
        self._asker = None

    async def _lead(self) -> None:
        while True:
            round_ = self._lane.take()
            self._crowded = sum(map(len, round_)) > 1
            replies: list[Answers | Exception] | None
            try:
                replies = await self._driver.perform(self._lane.plans(round_)) if round_ else []
            except Exception as error:  # noqa: BLE001 - a failing driver fails its round, not the lane
                replies = [error] * len(round_)
            except asyncio.CancelledError:
                # The loop is being shut down. Callers still have things to write down, so the lane must not die:
                # whether this round took effect is not known, and what matters is sent again.
                replies = None
            except GeneratorExit:
                raise  # dropped together with its loop
            except BaseException:
                # An interrupt ends the loop's turn, not the lane: whoever runs the loop again, to clean up, needs it.
                if self._settled(round_, None):
                    self._leader = self._loop.create_task(self._lead())
                raise
            if not self._settled(round_, replies):
                return

    def _settled(self, round_: Round, replies: Sequence[Answers | Exception] | None) -> bool:
        """Hand out the replies; whether there is more to send."""
        for ticket in self._lane.settle(round_, replies):
            if ticket.seat is not None and not ticket.seat.done():
                ticket.seat.set_result(None)
        if (guard := self._lane.guard) is not None and guard.has_changed:
            for change in guard.take_events():
                self._tell(change)
        return self._lane.hand_over() is not None

    async def close(self) -> None:
        """Let the round on its way come home."""
        leader = self._leader
        if leader is not None and not leader.done():
            await asyncio.wait([leader])


@types.coroutine
def _rest_of(started: Coroutine[Any, Any, None], first: Any) -> Generator[Any, Any, None]:
    """Go on with a coroutine that has already been started and waits for `first`."""
    wanted = first
    while True:
        try:
            got = yield wanted
        except BaseException as error:  # noqa: BLE001 - handed on to where it belongs
            step: Callable[[], Any] = functools.partial(started.throw, error)
        else:
            step = functools.partial(started.send, got)
        try:
            wanted = step()
        except StopIteration:
            return


async def _rest(started: Coroutine[Any, Any, None], first: Any) -> None:
    await _rest_of(started, first)
