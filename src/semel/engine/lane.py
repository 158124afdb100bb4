"""The lane: what concurrent callers ask for while a flight is on its way goes together in the next one.

`Lane` is a pure state machine: operations come in, flights go out, replies come back. It has no timer and adds no delay
when alone. Invariants: at most one flight is on its way; an operation is answered exactly once or dropped because its
caller is gone; a claim granted to a caller who is gone is given back, so that no claim is without an owner, and where
its reply was lost it is asked once more, as long as the store is not left alone. Whoever leads keeps leading until
somebody who waits can take over, and a give-back never waits for a later visitor. What begins something or only looks
is refused at once where the guard says so or too many wait; a write of an attempt that runs never is.

`ThreadLane` is for threads: the first to arrive runs a flight for those who wait, then hands the lead on. A thread is
blocked only while somebody leads. If the leading thread is interrupted, its flight fails with "outcome unknown", so
that the others send again, and the lead passes on. A claim that was granted to a thread which is struck by a signal
before it could take the answer is given back; what a handler of signals raises in a flight is meant for the thread
that leads, and is no answer to anybody else. What a thread does is a flow: it asks to have a flight sent, or to wait
for its event.

`AsyncLane` is for one event loop: a task leads while there is something to send, so that a cancelled caller never
cuts a flight short. With an eager driver, which needs no task to itself, an answer that is at hand is given without a
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
from datetime import timedelta
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar

from semel.core.circuit import RUNNING, Change, Guard
from semel.core.operations import Answer, Claim, CountRecords, Operation, Read, Scan, SkipRecords, give_back
from semel.core.store import Answers, AsyncDriver, Batching, Capabilities, Capability, Driver, Plan
from semel.errors import SemelError, StoreUnavailable

_FULL_FOR = timedelta(seconds=1)
_WITHOUT_TRACE = (Claim, Read, Scan, CountRecords, SkipRecords)
_CUT_SHORT = "The request to the store was interrupted before the store answered; whether it took effect is not known."


class PendingOperation:
    """One operation in a lane. `event` is whatever the shell waits on; `again` says that it was sent before."""

    __slots__ = ("abandoned", "again", "answer", "event", "leads", "operation")

    def __init__(self, operation: Operation, event: Any = None) -> None:
        self.operation = operation
        self.event = event
        self.answer: Answer | Exception | None = None
        self.abandoned = False
        self.again = False
        self.leads = False

    def result(self) -> Answer:
        """The answer; raises the error that was the answer."""
        if isinstance(self.answer, Exception):
            raise self.answer
        assert self.answer is not None  # noqa: S101 - shells look only after the operation was answered
        return self.answer


_operation_of = attrgetter("operation")

Flight = list[list[PendingOperation]]
Tell = Callable[[Change], None]


class Lane:
    """Gathers operations into flights of at most `store.max_operations`, one list per kind of operation.

    Args:
        store: what makes plans.
        guard: what stands in front of the store; none where the store has its own.
        most_waiting: how many operations may wait.
    """

    def __init__(self, store: Batching, guard: Guard | None = None, most_waiting: int = 10_000) -> None:
        self._store = store
        self.guard = self._guard = guard
        self._most_waiting = most_waiting
        self._waiting: deque[PendingOperation] = deque()
        self._leading = False

    def submit(self, pending: PendingOperation) -> bool:
        """Queue an operation, or answer it with a refusal. True means that nobody leads: the submitter has to."""
        guard = self._guard
        if (guard is not None and not guard.closed) or len(self._waiting) >= self._most_waiting:
            pending.answer = self._refusal(pending.operation)
            if pending.answer is not None:
                return False
        self._waiting.append(pending)
        if self._leading:
            return False
        self._leading = pending.leads = True
        return True

    def _refusal(self, operation: Operation) -> StoreUnavailable | None:
        if len(self._waiting) >= self._most_waiting and not isinstance(operation, RUNNING):
            message = (
                f"{len(self._waiting)} operations of this process wait for {self._store.name} already, so it was not "
                f"asked; nothing ran. Ask again with the same key later, or raise max_queue= of Limits."
            )
            return StoreUnavailable(message, retry_after=_FULL_FOR, asked=False)
        return None if self._guard is None else self._guard.check(operation)

    def next_flight(self) -> Flight:
        """The next flight; empty when nothing is left to send."""
        kinds: dict[type, list[PendingOperation]] = {}
        room = self._store.max_operations
        while self._waiting and room:
            pending = self._waiting.popleft()
            if pending.abandoned and not pending.again and isinstance(pending.operation, _WITHOUT_TRACE):
                continue  # never sent, so nothing to undo
            kinds.setdefault(type(pending.operation), []).append(pending)
            room -= 1
        if kinds and self._guard is not None:
            self._guard.on_send()
        return list(kinds.values())

    def make_plans(self, flight: Flight) -> list[Plan]:
        """What a driver runs for a flight."""
        if len(flight) == 1:
            return [self._store.plan(list(map(_operation_of, flight[0])), joined=False)]
        return [self._store.plan(list(map(_operation_of, list_)), joined=False) for list_ in flight]

    def deliver(
        self, flight: Flight, replies: Sequence[Answers | Exception] | None, struck: Exception | None = None
    ) -> list[PendingOperation]:
        """Hand the replies of a flight to its operations; returns those that somebody still waits for.

        With a store that is left alone from now on, those who wait for the next flight are among them. None: the flight
        was cut short, so its fate is unknown, and it says nothing of the store. The same holds for those whose answer
        would be `struck`: that error interrupted the sender of the flight, and is no answer of the store.
        """
        told = () if replies is None else replies
        if replies is None:
            replies = [StoreUnavailable(_CUT_SHORT)] * len(flight)
        guard = self._guard
        if guard is None:
            return self._deliver(flight, replies, struck)
        guard.on_reply(told)
        answered = self._deliver(flight, replies, struck)
        return answered if guard.closed else answered + self._fail_queued()

    def _fail_queued(self) -> list[PendingOperation]:
        """Those who wait for a flight that must not be sent: nobody waits for a store that rests."""
        refused: list[PendingOperation] = []
        for pending in self._waiting:
            if not pending.abandoned:
                pending.answer = self._refusal(pending.operation)
                if pending.answer is not None:
                    refused.append(pending)
        if refused:
            self._waiting = deque(pending for pending in self._waiting if pending.answer is None)
        return refused

    def _deliver(
        self, flight: Flight, replies: Sequence[Answers | Exception], struck: Exception | None
    ) -> list[PendingOperation]:
        answered = []
        for list_, reply in zip(flight, replies, strict=True):
            answers = [reply] * len(list_) if isinstance(reply, Exception) else reply
            for pending, given in zip(list_, answers, strict=True):
                answer = given if struck is None or given is not struck else StoreUnavailable(_CUT_SHORT)
                pending.answer = answer
                if not pending.abandoned:
                    answered.append(pending)
                elif isinstance(pending.operation, Claim):
                    self._undo(pending, answer)
        return answered

    def abandon(self, pending: PendingOperation) -> None:
        """The caller is gone. What was granted to it, or will be, is given back: once, however often this is said."""
        if pending.abandoned:
            return
        already = pending.answer
        pending.abandoned = True
        if already is not None and isinstance(pending.operation, Claim):
            self._undo(pending, already)

    def _undo(self, claim: PendingOperation, answer: Answer | Exception) -> None:
        """A claim that may have been granted is asked again first: the same one says so, and is then given back."""
        undo = give_back(answer)
        if undo is None and not self._may_be_granted(claim, answer):
            return
        pending = PendingOperation(undo or claim.operation)
        pending.abandoned = True
        pending.again = undo is None
        self._waiting.append(pending)

    def _may_be_granted(self, claim: PendingOperation, answer: Answer | Exception) -> bool:
        lost = isinstance(answer, StoreUnavailable) and answer.asked and not answer.conflict
        return lost and not claim.again and (self._guard is None or self._guard.closed)

    def claim_lead(self) -> bool:
        """Whether there is something to send and nobody to send it: the asker then leads."""
        if self._leading or not self._waiting:
            return False
        self._leading = True
        return True

    def next_leader(self) -> PendingOperation | None:
        """Who leads next. None: the lane is empty and nobody leads; an operation without a caller: go on leading."""
        for pending in self._waiting:
            if not pending.abandoned:
                pending.leads = True
                return pending
        if self._waiting:
            return self._waiting[0]
        self._leading = False
        return None


T = TypeVar("T")
Replies = list[Answers | Exception]

SEND: Final = object()
"""What a thread that leads asks for: have the next flight sent. Everything else is an event to wait for."""

LaneFlow = Generator[Any, Any, T]
"""What one thread does in the lane."""


def locked_lock() -> threading.Lock:
    """An event: acquiring it waits until it is released."""
    event = threading.Lock()
    event.acquire()
    return event


class ThreadLane:
    """The lane of one process's threads.

    Args:
        lane: what waits, and in which order it goes.
        driver: carries flights out.
        tell: hears what becomes of the store, outside every lock.
        new_event: makes what a thread waits on.
    """

    def __init__(self, lane: Lane, driver: Driver, tell: Tell, new_event: Callable[[], Any] = locked_lock) -> None:
        self._lane = lane
        self._driver = driver
        self._tell = tell
        self._new_event = new_event
        self._lock = threading.Lock()
        self._flight: Flight = []  # on its way

    def perform(self, operation: Operation) -> Answer:
        """Have one operation performed, together with whatever else is asked meanwhile."""
        return self._run(self.perform_flow(PendingOperation(operation)))

    def perform_all(self, operations: Sequence[Operation]) -> list[Answer | Exception]:
        """Have a list performed; errors come back as values."""
        return self._run(self.perform_all_flow([PendingOperation(operation) for operation in operations]))

    def perform_flow(self, pending: PendingOperation) -> LaneFlow[Answer]:
        """One operation, from the queue to its answer."""
        try:
            self._submit((pending,))
            if pending.leads:
                yield from self._run_flights(pending)
            if pending.answer is None:
                yield from self._await(pending)
            answer = pending.answer
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[return-value]  # it is answered by now
        except GeneratorExit:
            raise  # dropped together with the lane
        except BaseException as error:
            if error is not pending.answer:  # else it is what the store said
                yield from self._leave(pending)
            raise

    def perform_all_flow(self, queued: Sequence[PendingOperation]) -> LaneFlow[list[Answer | Exception]]:
        """A list of operations, from the queue to their answers."""
        try:
            self._submit(queued)
            for pending in queued:
                yield from self._await(pending)
        except GeneratorExit:
            raise
        except BaseException:
            for pending in queued:  # one of them may have been handed the lead
                yield from self._leave(pending)
            raise
        return [pending.answer for pending in queued if pending.answer is not None]

    def _run(self, flow: LaneFlow[T]) -> T:
        """Do what a visit asks for. Whatever strikes on the way is raised in the visit, which cleans up."""
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                while True:
                    wanted = flow.send(answer) if error is None else flow.throw(error)
                    error = None
                    answer = self._send_flight() if wanted is SEND else wanted.acquire()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            except BaseException as problem:
                if inspect.getgeneratorstate(flow) == inspect.GEN_CLOSED:
                    raise
                error = problem

    def close(self) -> None:
        """Nothing to wait for: a flight on its way belongs to the thread that sends it."""

    def _submit(self, queued: Sequence[PendingOperation]) -> None:
        with self._lock:
            for pending in queued:
                if not self._lane.submit(pending):
                    pending.event = self._new_event()

    def _await(self, pending: PendingOperation) -> LaneFlow[None]:
        while pending.answer is None:
            if pending.leads:
                yield from self._run_flights(pending)
            else:
                yield pending.event

    def _leave(self, pending: PendingOperation) -> LaneFlow[None]:
        """The thread goes, whatever it was about to get; what it leads or was granted is not left behind."""
        with self._lock:
            self._lane.abandon(pending)
            led = pending.leads
            pending.leads = led or self._lane.claim_lead()
        if led:
            self._deliver(pending, None)
        yield from self._run_flights(pending)

    def _run_flights(self, own: PendingOperation) -> LaneFlow[None]:
        """Send flights until this thread's own operation is answered and the lead handed on."""
        while own.leads:
            try:
                replies = yield SEND
            except Exception as error:
                if _may_be_a_signals(error):
                    raise
                replies = [error] * len(self._flight)  # a failing driver fails its flight, not the lane
            struck = _own_signal_error(own, self._flight, replies)
            if struck is not None:
                own.abandoned = True
            self._deliver(own, replies, struck)
            if struck is not None:
                raise struck

    def _send_flight(self) -> Replies:
        """Send the next flight; the replies."""
        plans = self.next_plans()
        return self._driver.perform(plans) if plans else []

    def next_plans(self) -> list[Any]:
        """Take the next flight; its plans."""
        with self._lock:
            self._flight = self._lane.next_flight()
            return self._lane.make_plans(self._flight)

    def _deliver(self, own: PendingOperation, replies: Replies | None, struck: Exception | None = None) -> None:
        """Hand out the replies, and the lead on, unless this very thread has to go on leading."""
        heir = None
        with self._lock:
            flight, self._flight = self._flight, []
            answered = self._lane.deliver(flight, replies, struck)
            guard = self._lane.guard
            changes = guard.take_events() if guard is not None and guard.has_changed else ()
            if own.answer is not None or own.abandoned:
                heir = self._lane.next_leader()
                own.leads = heir is not None and heir.abandoned  # nobody who waits can take over
        for pending in answered:
            if pending is not own and pending.event is not None:
                pending.event.release()
        if heir is not None and not heir.abandoned:
            heir.event.release()
        for change in changes:
            self._tell(change)


def _own_signal_error(own: PendingOperation, flight: Flight, replies: Replies) -> Exception | None:
    """The error that is the answer to this thread's own operation, where a signal's handler may have raised it.

    Drivers and plans catch what a handler raises like any other error, so it comes back as a reply.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    for list_, reply in zip(flight, replies, strict=True):
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
        driver: carries flights out.
        tell: hears what becomes of the store.
        loop: what runs it.
        can: what the store of `driver` declares: whether flights may be started outside a task.
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
        pending = PendingOperation(operation)
        if self._lane.submit(pending):
            try:
                self._start_leading()
            except BaseException:  # an eager flight runs in here, and was interrupted
                self._leave(pending)
                raise
        if pending.answer is None:
            pending.event = self._loop.create_future()
            try:
                await pending.event
            except asyncio.CancelledError:
                self._leave(pending)
                raise
        return pending.result()

    async def perform_all(self, operations: Sequence[Operation]) -> list[Answer | Exception]:
        """Have a list performed; errors come back as values."""
        queued = [PendingOperation(operation) for operation in operations]
        leads = False
        for pending in queued:
            leads = self._lane.submit(pending) or leads
        if leads:
            self._start_leading()
        for pending in queued:
            if pending.answer is None:
                pending.event = self._loop.create_future()
                try:
                    await pending.event
                except asyncio.CancelledError:
                    self._leave(pending)
                    raise
        return [pending.answer for pending in queued if pending.answer is not None]

    def _leave(self, pending: PendingOperation) -> None:
        """The caller was cancelled."""
        self._lane.abandon(pending)
        if self._lane.claim_lead():
            self._start_leading()

    def _start_leading(self) -> None:
        leading = self._run_flights()
        if not self._eager or (self._gathers and self._others_ask()):
            self._leader = self._loop.create_task(leading)
            return
        try:
            first = leading.send(None)
        except StopIteration:
            return
        self._leader = self._loop.create_task(_rest(leading, first))

    def _others_ask(self) -> bool:
        """Whether several tasks ask: two in one turn of the loop, and from then on until a flight was for one alone.

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

    async def _run_flights(self) -> None:
        while True:
            flight = self._lane.next_flight()
            self._crowded = sum(map(len, flight)) > 1
            replies: list[Answers | Exception] | None
            try:
                replies = await self._driver.perform(self._lane.make_plans(flight)) if flight else []
            except Exception as error:  # noqa: BLE001 - a failing driver fails its flight, not the lane
                replies = [error] * len(flight)
            except asyncio.CancelledError:
                # The loop is being shut down. Callers still have things to write down, so the lane must not die:
                # whether this flight took effect is not known, and what matters is sent again.
                replies = None
            except GeneratorExit:
                raise  # dropped together with its loop
            except BaseException:
                # An interrupt ends the loop's turn, not the lane: whoever runs the loop again, to clean up, needs it.
                if self._deliver(flight, None):
                    self._leader = self._loop.create_task(self._run_flights())
                raise
            if not self._deliver(flight, replies):
                return

    def _deliver(self, flight: Flight, replies: Sequence[Answers | Exception] | None) -> bool:
        """Hand out the replies; whether there is more to send."""
        for pending in self._lane.deliver(flight, replies):
            if pending.event is not None and not pending.event.done():
                pending.event.set_result(None)
        if (guard := self._lane.guard) is not None and guard.has_changed:
            for change in guard.take_events():
                self._tell(change)
        return self._lane.next_leader() is not None

    async def close(self) -> None:
        """Let the flight on its way come home."""
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
