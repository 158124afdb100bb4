"""Drives the real lanes of both colours, `AsyncLane` and `CombiningLane`: who leads, what goes out, who is gone.

The guard in front of the store is real as well, and watched: nobody is refused whom it has to let through.

What always holds: a round is out as soon as the store has seen it, and comes back later; in between a caller may be
cancelled, and so it may be in the very turn in which its answer is there. Whoever waits in a lane is a coroutine or a
flow of the lane's own: it is resumed where it waits, or what struck it is raised there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from semel.core.breaker import Breaker
from semel.core.flow import run
from semel.core.guard import Change, Guard
from semel.core.operations import Checkpoint, Claim, Complete, Fail, Operation, Read, Renew, Scan
from semel.core.store import Answers, Driver, Store
from semel.engine.aio_lane import AsyncLane
from semel.engine.lane import Lane, Round, Ticket
from semel.engine.sync_lane import SEND, CombiningLane
from semel.errors import StoreUnavailable
from semel.testing.simulate.driving import GONE, Gone
from semel.testing.simulate.violation import Violation

if TYPE_CHECKING:
    from semel.testing.simulate.exchange import Exchange
    from semel.testing.simulate.process import Worker

IDLE, READY, OUT = 0, 1, 2
FIRST_OF_PROCESS = 1000
"""The actors of callers have smaller numbers."""

_REST, _LONGEST_REST = 0.1, 0.4
_OF_A_RUN = (Complete, Fail, Renew, Checkpoint)


class Asker(Protocol):
    """Who waits for something in a lane."""

    @property
    def actor(self) -> int:
        """Its number."""

    def woken(self) -> None:
        """It may go on with its visit."""


class Visit:
    """Somebody in a lane, or the task that leads it (`asker` is None). When it is over it has a value or an error."""

    __slots__ = ("asker", "error", "flow", "is_over", "seat", "tickets", "value")

    def __init__(self, asker: Asker | None) -> None:
        self.asker = asker
        self.flow: Any = None
        self.seat: Seat | None = None  # what it waits for
        self.tickets: list[Ticket] = []
        self.is_over = False
        self.value: Any = None
        self.error: Exception | None = None


class Seat:
    """What a thread or a task waits on: the lock of one, the future of the other."""

    __slots__ = ("_runner", "is_given", "visit")

    def __init__(self, runner: LaneRunner) -> None:
        self._runner = runner
        self.is_given = False
        self.visit: Visit | None = None

    def done(self) -> bool:
        """Whether nobody has to give it any more."""
        return self.is_given

    def set_result(self, _none: None) -> None:
        """The answer is there."""
        self._give()

    def release(self) -> None:
        """The answer is there, or the lead."""
        self._give()

    def _give(self) -> None:
        self.is_given = True
        if self.visit is not None and self.visit.seat is self:
            self._runner.wake(self.visit)

    def __await__(self) -> Generator[Seat, None, None]:
        if not self.is_given:
            yield self


class _Out:
    """A round of tasks on its way; its replies are what it is awaited for."""

    __slots__ = ("plans",)

    def __init__(self, plans: Sequence[Any]) -> None:
        self.plans = plans

    def __await__(self) -> Generator[_Out, Any, Any]:
        return (yield self)


class _TaskDriver:
    """Carries rounds out when the simulation says so."""

    async def perform(self, plans: Sequence[Any]) -> Any:
        return await _Out(plans)

    async def close(self) -> None:
        """Nothing to let go of."""


class _Loop:
    """What a lane needs of an event loop."""

    __slots__ = ("_runner",)

    def __init__(self, runner: LaneRunner) -> None:
        self._runner = runner

    def create_future(self) -> Seat:
        return Seat(self._runner)

    def create_task(self, coroutine: Coroutine[Any, Any, None], /) -> None:
        self._runner.begin_leading(coroutine)

    def call_soon(self, function: Any, /) -> None:
        raise AssertionError(function)  # only eager drivers need it


class _SeenLane(Lane):
    """The real state machine, seen: what it is given, what it refuses, to whom it hands the lead."""

    def __init__(self, runner: LaneRunner, store: Store, guard: Guard | None) -> None:
        super().__init__(store, guard)
        self._runner = runner

    def submit(self, ticket: Ticket) -> bool:
        self._runner.entered(ticket)
        leads = super().submit(ticket)
        if ticket.answer is not None:
            self._runner.refused(ticket, "refused at once")
        return leads

    def take(self) -> Round:
        round_ = super().take()
        self._runner.taken(round_)
        return round_

    def settle(
        self, round_: Round, replies: Sequence[Answers | Exception] | None, struck: Exception | None = None
    ) -> list[Ticket]:
        if replies:
            self._runner.silent = all(isinstance(reply, Exception) for reply in replies)
        answered = super().settle(round_, replies, struck)
        for ticket in answered:
            if isinstance(ticket.answer, StoreUnavailable) and not ticket.answer.asked:
                self._runner.refused(ticket, "sent away")
        return answered

    def hand_over(self) -> Ticket | None:
        heir = super().hand_over()
        if heir is not None:
            self._runner.handed_over(heir)
        return heir


class LaneRunner:
    """One lane of a process, of the colour of its world."""

    __slots__ = (
        "_combining",
        "_entering",
        "_loop_lane",
        "_plans",
        "_resuming",
        "_violation",
        "_visits",
        "actor",
        "breaker",
        "due_us",
        "exchange",
        "lane",
        "leader",
        "open",
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
        # The store is asked for plans and the size of a batch, no more.
        self.lane = _SeenLane(self, cast("Store", worker.sim.store), guard)
        self.threads = worker.sim.world.colour == "threads"
        self._combining: CombiningLane | None = None
        self._loop_lane: AsyncLane | None = None
        if self.threads:
            self._combining = CombiningLane(self.lane, cast("Driver", None), self._told, lambda: Seat(self))
        else:
            self._loop_lane = AsyncLane(self.lane, _TaskDriver(), self._told, _Loop(self))
        self.silent = False  # whether the last round stayed without any answer
        self.state = IDLE
        self.leader: Visit | None = None
        self.open: set[Visit] = set()
        self._visits: dict[Ticket, Visit] = {}
        self._entering: Visit | None = None
        self._violation: Violation | None = None
        self._resuming: Visit | None = None
        self._plans: list[Any] | None = None  # of a round that was taken and is not out yet
        self.round: Round = []
        self.replies: list[Answers | Exception] = []
        self.due_us: int | None = None
        self.exchange: Exchange | None = None  # a round that is made of several requests, on its way

    def ask(self, asker: Asker, operation: Operation) -> Visit:
        """Have one operation performed."""
        if self._combining is not None:
            return self._enter(asker, self._combining.asking(Ticket(operation)))
        assert self._loop_lane is not None
        return self._enter(asker, self._loop_lane.perform(operation))

    def ask_all(self, asker: Asker, operations: list[Operation]) -> Visit:
        """Have a list performed; errors come back as values."""
        if self._combining is not None:
            return self._enter(asker, self._combining.asking_all([Ticket(operation) for operation in operations]))
        assert self._loop_lane is not None
        return self._enter(asker, self._loop_lane.perform_all(operations))

    def _enter(self, asker: Asker, flow: Any) -> Visit:
        visit = Visit(asker)
        visit.flow = flow
        self.open.add(visit)
        self._go_on(visit)
        return visit

    def entered(self, ticket: Ticket) -> None:
        """A ticket of the visit that is going on."""
        visit = self._entering
        assert visit is not None
        visit.tickets.append(ticket)
        self._visits[ticket] = visit

    def begin_leading(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """A task of its own leads from now on; it has not begun."""
        visit = self.leader = Visit(None)
        visit.flow = coroutine
        self.open.add(visit)
        self.state = READY

    def resume(self, visit: Visit) -> None:
        """Let a visit go on that was woken."""
        if self.threads and visit.seat is not None:
            visit.seat.is_given = False  # a lock is given once, a future for good
        self._resuming = visit
        self._go_on(visit)
        self._resuming = None

    def cancel(self, visit: Visit) -> None:
        """Its caller is cancelled, or struck by a signal, where it stands."""
        if visit is self.leader:
            if self.state == OUT:
                self.worker.sim.seen["leader interrupted"] += 1
                self.worker.sim.faults.unanswered(self, [unanswered()] * len(self.round))
            self._at_home()
        elif self.threads and any(ticket.leads and ticket.answer is None for ticket in visit.tickets):
            self.worker.sim.seen["heir interrupted"] += 1
        self._resuming = visit
        self._go_on(visit, error=GONE if self.threads else asyncio.CancelledError())
        self._resuming = None

    def wake(self, visit: Visit) -> None:
        """What a visit waits for is there."""
        if visit.asker is not None and not visit.is_over:
            visit.asker.woken()

    def _go_on(self, visit: Visit, value: Any = None, error: BaseException | None = None) -> None:
        self._entering, outer = visit, self._entering
        if visit.seat is not None:
            visit.seat.visit = None
            visit.seat = None
        try:
            wanted = visit.flow.send(value) if error is None else visit.flow.throw(error)
        except StopIteration as end:
            self._end(visit, end.value, None)
        except (Gone, asyncio.CancelledError) as gone:
            gone.__traceback__ = None  # it would hold on to all of this
            self._end(visit, None, None)
        except AssertionError:
            raise  # a lane that lets somebody go who has no answer
        except Exception as problem:  # noqa: BLE001 - it is the answer
            self._end(visit, None, problem.with_traceback(None))
        else:
            self._stand(visit, wanted)
        self._entering = outer
        if self._violation is not None:  # seen inside the lane, which would take it for an interrupt
            raise self._violation

    def _stand(self, visit: Visit, wanted: Any) -> None:
        if wanted is SEND:
            self.leader, self.state = visit, READY
        elif isinstance(wanted, _Out):
            self.leader, self.state, self._plans = visit, READY, list(wanted.plans)
        elif wanted.is_given:
            wanted.is_given = False
            self._go_on(visit)
        else:
            visit.seat, wanted.visit = wanted, visit

    def _end(self, visit: Visit, value: Any, error: Exception | None) -> None:
        visit.is_over, visit.value, visit.error = True, value, error
        self.open.discard(visit)
        for ticket in visit.tickets:
            self._visits.pop(ticket, None)
        if visit.asker is not None and visit is not self._resuming:
            visit.asker.woken()

    def go(self) -> None:
        """Its move: send what waits."""
        self.worker.sim.faults.at_round(self)

    def next_tickets(self) -> list[Ticket]:
        """What goes out next."""
        if self._plans is not None:
            return [ticket for list_ in self.round for ticket in list_]
        return list(self.lane._waiting)

    def only_reads(self) -> bool:
        """Whether the next round cannot change anything."""
        return all(isinstance(ticket.operation, (Read, Scan)) for ticket in self.next_tickets())

    def callers_of(self, tickets: list[Ticket]) -> list[Any]:
        """The callers who wait for these; watches are none, nor is anybody who is gone."""
        visits = [self._visits.get(ticket) for ticket in tickets if not ticket.abandoned]
        askers = [visit.asker for visit in visits if visit is not None]
        return [asker for asker in askers if asker is not None and asker.actor < FIRST_OF_PROCESS]

    def take(self) -> list[Any]:
        """Take the next round, unless that was done; the plans of it. Afterwards the lane may have nothing to send."""
        if self._combining is not None:
            return self._combining.take()
        if self._plans is None:
            assert self.leader is not None
            leader, self.state = self.leader, IDLE
            self._go_on(leader)
        plans, self._plans = self._plans or [], None
        return plans

    def taken(self, round_: Round) -> None:
        """A round was taken."""
        self.round = round_
        if len(round_) > 1 or (round_ and len(round_[0]) > 1):
            self._count()

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
        if self.state == IDLE:
            return
        self.state, self.exchange = OUT, exchange
        exchange.begin()

    def step(self) -> None:
        """The replies come back."""
        if self.state != OUT:
            return  # interrupted meanwhile
        if self.worker.sim.faults.while_out(self):
            return
        self.settle(self.replies)

    def settle(self, replies: list[Answers | Exception]) -> None:
        """Hand the replies to whoever leads."""
        if self.state == IDLE:
            return  # there was nothing to send
        leader = self.leader
        assert leader is not None
        self._at_home()
        self._go_on(leader, replies)

    def _at_home(self) -> None:
        """No round is on its way, and whoever led says what comes next."""
        self.state, self.leader, self._plans = IDLE, None, None
        self.round, self.replies, self.due_us = [], [], None

    def refused(self, ticket: Ticket, how: str) -> None:
        """An operation was refused without asking the store."""
        what = type(ticket.operation).__name__
        if isinstance(ticket.operation, _OF_A_RUN):
            self._violation = Violation("guard", f"{what} of an attempt that runs was refused")
        elif not self.silent:
            self._violation = Violation("guard", f"{what} was refused although the store answers")
        self.worker.sim.seen[how] += 1

    def handed_over(self, heir: Ticket) -> None:
        """Somebody else leads, or whoever led goes on for those who are gone."""
        if heir.abandoned:
            self.worker.sim.seen["led on for the gone"] += 1
        elif self.threads:
            self.worker.sim.seen["lead handed over"] += 1

    def _told(self, change: Change) -> None:
        self.worker.sim.seen["left alone" if change == "store_open" else "found again"] += 1

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
        queue = tuple([self._mark(ticket) for ticket in self.lane._waiting])
        if self.breaker._failed:
            queue = (*queue, self._trouble())
        answered = [(self._seat(one), type(one.answer)) for one in self._visits if one.answer is not None]
        out = tuple([self._mark(ticket) for list_ in self.round for ticket in list_])
        leader = -1 if self.leader is None or self.leader.asker is None else self.leader.asker.actor
        if self.state != OUT:
            return self.state, queue, tuple(answered), leader, out, self._plans is None
        answers = [reply if isinstance(reply, list) else type(reply) for reply in self.replies]
        way = None if self.exchange is None else self.exchange.mark()
        return queue, tuple(answered), out, leader, self.due_us, repr(answers), way

    def _trouble(self) -> tuple[object, ...]:
        breaker = self.breaker
        return breaker._failed, breaker._tries, breaker._again_at, breaker._trying_since, self.silent

    def _seat(self, ticket: Ticket) -> int:
        visit = self._visits.get(ticket)
        return -1 if visit is None or visit.asker is None else visit.asker.actor

    def _mark(self, ticket: Ticket) -> tuple[object, ...]:
        return self._seat(ticket), type(ticket.operation), ticket.abandoned, ticket.leads, ticket.again

    def untie(self) -> None:
        """Drop whoever is still in the lane, and let go of the knot of objects."""
        for visit in list(self.open):
            visit.flow.close()
            visit.tickets.clear()
            visit.seat = visit.asker = None
        self.open.clear()
        self._visits.clear()
        del self._combining, self._loop_lane, self.lane, self.leader, self.round, self.replies, self.exchange


def unanswered() -> StoreUnavailable:
    """What a driver says of a round that the store did not answer."""
    return StoreUnavailable("the simulated store did not answer")
