"""One worker process of the simulation: its callers share its lane and its keeper, and die with it.

Lanes and watches are the real ones of both kinds, and so is the guard in front of the store. What calls and runtimes do
around them is done here in the same order, with a turn of the scheduler wherever a thread or task could lose its own.

- A round is out as soon as the store has seen it, and comes back later; in between a caller may be cancelled, and so it
  may be in the very turn in which its answer is there. A caller that waits in a lane is a coroutine or a flow of the
  lane's own: it is resumed where it waits, or what struck it is raised there.
- The guard is watched: nobody is refused whom it has to let through.
- A watch, over waiters or over leases, is awake when it said it would be, or earlier; it is never asked to do two
  things at once.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Coroutine, Generator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol, cast

from semel.core.circuit import Breaker, Change, Guard
from semel.core.flow import Flow, run
from semel.core.operations import (
    Checkpoint,
    Claim,
    Complete,
    CountRecords,
    Fail,
    Lost,
    Operation,
    Read,
    Renew,
    Scan,
    SkipRecords,
)
from semel.core.store import Answers, Driver, Store
from semel.engine.background import (
    DOZE,
    Background,
    HeldLease,
    Renewals,
    Renewer,
    SleepUntil,
    Stalled,
    Waiter,
    Waiting,
    Watched,
    watching,
)
from semel.engine.call_flow import CallFlow
from semel.engine.clock import RetryBudget
from semel.engine.lane import SEND, AsyncLane, Flight, Lane, PendingOperation, ThreadLane
from semel.errors import StoreUnavailable
from semel_lab.simulate.checks.violation import Violation
from semel_lab.simulate.loop import GONE, Gone

if TYPE_CHECKING:
    from semel_lab.simulate.simulation import Simulation


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

    def wake_by(self, at: float | None) -> None:
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
        while isinstance(wanted, (SleepUntil, Stalled)):
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
        for pending in visit.queued:
            if type(pending.answer) is Lost and type(pending.operation) is Renew:
                self.worker.sim.witness.refused.add(pending.operation.lease.nonce)
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
        self.keeper = Background(worker.clock, Waiting(_no_jitter), _wake_up)
        super().__init__(worker, lane, self.keeper, 2000 + worker.index)

    def mark(self) -> tuple[object, ...]:
        """All of it, for telling states apart."""
        waiting = self.keeper.waiting
        waiters = [(waiter.event.actor, waiter.until) for waiters in waiting._keys.values() for waiter in waiters]
        heirs = [waiter.event.actor for waiter in waiting._heirs.values()]
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
    waiter.event.news(waiter)


if TYPE_CHECKING:
    from semel_lab.simulate.dynamodb_requests import Exchange


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

    __slots__ = ("asker", "error", "event", "flow", "is_over", "queued", "value")

    def __init__(self, asker: Asker | None) -> None:
        self.asker = asker
        self.flow: Any = None
        self.event: Seat | None = None  # what it waits for
        self.queued: list[PendingOperation] = []
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
        if self.visit is not None and self.visit.event is self:
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

    def submit(self, pending: PendingOperation) -> bool:
        self._runner.entered(pending)
        leads = super().submit(pending)
        if pending.answer is not None:
            self._runner.refused(pending, "refused at once")
        return leads

    def next_flight(self) -> Flight:
        flight = super().next_flight()
        self._runner.taken(flight)
        return flight

    def deliver(
        self, flight: Flight, replies: Sequence[Answers | Exception] | None, struck: Exception | None = None
    ) -> list[PendingOperation]:
        if replies:
            self._runner.silent = all(isinstance(reply, Exception) for reply in replies)
        answered = super().deliver(flight, replies, struck)
        for pending in answered:
            if isinstance(pending.answer, StoreUnavailable) and not pending.answer.asked:
                self._runner.refused(pending, "sent away")
        return answered

    def next_leader(self) -> PendingOperation | None:
        heir = super().next_leader()
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
        self._combining: ThreadLane | None = None
        self._loop_lane: AsyncLane | None = None
        if self.threads:
            self._combining = ThreadLane(self.lane, cast("Driver", None), self._told, lambda: Seat(self))
        else:
            self._loop_lane = AsyncLane(self.lane, _TaskDriver(), self._told, _Loop(self))
        self.silent = False  # whether the last round stayed without any answer
        self.state = IDLE
        self.leader: Visit | None = None
        self.open: set[Visit] = set()
        self._visits: dict[PendingOperation, Visit] = {}
        self._entering: Visit | None = None
        self._violation: Violation | None = None
        self._resuming: Visit | None = None
        self._plans: list[Any] | None = None  # of a round that was taken and is not out yet
        self.round: Flight = []
        self.replies: list[Answers | Exception] = []
        self.due_us: int | None = None
        self.exchange: Exchange | None = None  # a round that is made of several requests, on its way

    def ask(self, asker: Asker, operation: Operation) -> Visit:
        """Have one operation performed."""
        if self._combining is not None:
            return self._enter(asker, self._combining.perform_flow(PendingOperation(operation)))
        assert self._loop_lane is not None
        return self._enter(asker, self._loop_lane.perform(operation))

    def ask_all(self, asker: Asker, operations: list[Operation]) -> Visit:
        """Have a list performed; errors come back as values."""
        if self._combining is not None:
            return self._enter(
                asker, self._combining.perform_all_flow([PendingOperation(operation) for operation in operations])
            )
        assert self._loop_lane is not None
        return self._enter(asker, self._loop_lane.perform_all(operations))

    def _enter(self, asker: Asker, flow: Any) -> Visit:
        visit = Visit(asker)
        visit.flow = flow
        self.open.add(visit)
        self._go_on(visit)
        return visit

    def entered(self, pending: PendingOperation) -> None:
        """A ticket of the visit that is going on."""
        visit = self._entering
        assert visit is not None
        visit.queued.append(pending)
        self._visits[pending] = visit

    def begin_leading(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """A task of its own leads from now on; it has not begun."""
        visit = self.leader = Visit(None)
        visit.flow = coroutine
        self.open.add(visit)
        self.state = READY

    def resume(self, visit: Visit) -> None:
        """Let a visit go on that was woken."""
        if self.threads and visit.event is not None:
            visit.event.is_given = False  # a lock is given once, a future for good
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
        elif self.threads and any(pending.leads and pending.answer is None for pending in visit.queued):
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
        if visit.event is not None:
            visit.event.visit = None
            visit.event = None
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
            visit.event, wanted.visit = wanted, visit

    def _end(self, visit: Visit, value: Any, error: Exception | None) -> None:
        visit.is_over, visit.value, visit.error = True, value, error
        self.open.discard(visit)
        for pending in visit.queued:
            self._visits.pop(pending, None)
        if visit.asker is not None and visit is not self._resuming:
            visit.asker.woken()

    def go(self) -> None:
        """Its move: send what waits."""
        self.worker.sim.faults.at_round(self)

    def next_tickets(self) -> list[PendingOperation]:
        """What goes out next."""
        if self._plans is not None:
            return [pending for list_ in self.round for pending in list_]
        return list(self.lane._waiting)

    def only_reads(self) -> bool:
        """Whether the next round cannot change anything."""
        return all(
            isinstance(pending.operation, (Read, Scan, CountRecords, SkipRecords)) for pending in self.next_tickets()
        )

    def callers_of(self, queued: list[PendingOperation]) -> list[Any]:
        """The callers who wait for these; watches are none, nor is anybody who is gone."""
        visits = [self._visits.get(pending) for pending in queued if not pending.abandoned]
        askers = [visit.asker for visit in visits if visit is not None]
        return [asker for asker in askers if asker is not None and asker.actor < FIRST_OF_PROCESS]

    def take(self) -> list[Any]:
        """Take the next round, unless that was done; the plans of it. Afterwards the lane may have nothing to send."""
        if self._combining is not None:
            return self._combining.next_plans()
        if self._plans is None:
            assert self.leader is not None
            leader, self.state = self.leader, IDLE
            self._go_on(leader)
        plans, self._plans = self._plans or [], None
        return plans

    def taken(self, flight: Flight) -> None:
        """A round was taken."""
        self.round = flight
        if len(flight) > 1 or (flight and len(flight[0]) > 1):
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

    def refused(self, pending: PendingOperation, how: str) -> None:
        """An operation was refused without asking the store."""
        what = type(pending.operation).__name__
        if isinstance(pending.operation, _OF_A_RUN):
            self._violation = Violation("guard", f"{what} of an attempt that runs was refused")
        elif not self.silent:
            self._violation = Violation("guard", f"{what} was refused although the store answers")
        self.worker.sim.seen[how] += 1

    def handed_over(self, heir: PendingOperation) -> None:
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
                digests = {pending.operation.key.digest for pending in list_}  # type: ignore[union-attr]
                seen["duplicates in one batch" if len(digests) < len(list_) else "strangers in one batch"] += 1

    def mark(self) -> tuple[object, ...]:
        """All of it, for telling states apart."""
        queue = tuple([self._mark(pending) for pending in self.lane._waiting])
        if self.breaker._failed:
            queue = (*queue, self._trouble())
        answered = [(self._event(one), type(one.answer)) for one in self._visits if one.answer is not None]
        out = tuple([self._mark(pending) for list_ in self.round for pending in list_])
        leader = -1 if self.leader is None or self.leader.asker is None else self.leader.asker.actor
        if self.state != OUT:
            return self.state, queue, tuple(answered), leader, out, self._plans is None
        answers = [reply if isinstance(reply, list) else type(reply) for reply in self.replies]
        way = None if self.exchange is None else self.exchange.mark()
        return queue, tuple(answered), out, leader, self.due_us, repr(answers), way

    def _trouble(self) -> tuple[object, ...]:
        breaker = self.breaker
        return breaker._failed, breaker._tries, breaker._again_at, breaker._trying_since, self.silent

    def _event(self, pending: PendingOperation) -> int:
        visit = self._visits.get(pending)
        return -1 if visit is None or visit.asker is None else visit.asker.actor

    def _mark(self, pending: PendingOperation) -> tuple[object, ...]:
        return self._event(pending), type(pending.operation), pending.abandoned, pending.leads, pending.again

    def untie(self) -> None:
        """Drop whoever is still in the lane, and let go of the knot of objects."""
        for visit in list(self.open):
            visit.flow.close()
            visit.queued.clear()
            visit.event = visit.asker = None
        self.open.clear()
        self._visits.clear()
        del self._combining, self._loop_lane, self.lane, self.leader, self.round, self.replies, self.exchange


def unanswered() -> StoreUnavailable:
    """What a driver says of a round that the store did not answer."""
    return StoreUnavailable("the simulated store did not answer")


_BLUR = 1e-6


class ProcessClock:
    """The monotonic clock of one process: as fast as every other, and off by its skew."""

    __slots__ = ("_sim", "_skew_us")

    def __init__(self, sim: Simulation, skew: float) -> None:
        self._sim = sim
        self._skew_us = round(skew * 1_000_000) + 1_000_000_000

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return (self._sim.now_us + self._skew_us) / 1_000_000

    def until(self, at: float) -> float:
        """How long until `at`; what floating point may blur counts as nothing, because a round trip takes longer."""
        left = at - self.monotonic()
        return 0.0 if abs(left) < _BLUR else left

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


def whole() -> float:
    """Jitter that is none: every pause has its full length."""
    return 1.0


class Worker:
    """A process: callers live in it, share its lanes and its watches, and die with it."""

    __slots__ = (
        "alive",
        "clock",
        "index",
        "keeper",
        "lane",
        "lanes",
        "leases",
        "parked",
        "renewals",
        "retry_budget",
        "sim",
        "skew",
        "thaws_us",
        "up",
    )

    def __init__(self, sim: Simulation, index: int) -> None:
        skews = sim.world.skews
        self.sim = sim
        self.index = index
        self.skew = skews[index % len(skews)]
        self.clock = ProcessClock(sim, self.skew)
        self.alive = True
        self.up = True
        self.thaws_us: int | None = None
        self.parked: list[Any] = []
        # A budget that never changes is no state: what it does when it runs out is what it does when there is none.
        self.retry_budget = RetryBudget(whole, math.inf if sim.world.retry_budget else 0)
        self.lane = LaneRunner(self, 1000 + index)
        # Renewals go their own way, so that nothing callers ask for holds them up.
        apart = LaneRunner(self, 1500 + index, guarded=False)
        self.lanes = (self.lane, apart)
        self.keeper = KeeperRunner(self, self.lane)
        self.leases = RenewalRunner(self, apart)
        self.renewals = Renewals(self.leases.renewer, self.leases, self.clock)

    def keep_lease(self, call: CallFlow) -> None:
        """Keep the lease of a call's attempt alive."""
        self.renewals.hold(call)

    def finish(self, held: HeldLease | None, digest: bytes, waiter: Waiter | None) -> None:
        """A call is over, as the runtimes see it."""
        if held is not None:
            self.renewals.release(held)
        if self.keeper.keeper.waiting.done(digest, waiter):
            self.keeper.wake_by(None)

    def untie(self) -> None:
        """Let go of the knot of objects."""
        for lane in self.lanes:
            lane.untie()
        for watch in (self.keeper, self.leases):
            watch.visit = None
        del self.lane, self.lanes, self.keeper, self.leases, self.renewals, self.parked
