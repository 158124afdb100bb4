"""One caller of the simulation: a real `CallFlow`, or a decorated function, driven step by step, and its handler.

What always holds: what the calls do around a flow is done here in the same order. A caller stops at every point where
a thread or task could lose its turn; the points others can see (a start, an effect, a look at the ledger) are moves.

An operator of the simulation: ends a doubt by stating what came of it, and then corrects what was stated; ends a live
lease by force; or lets a key run again. A consumer: counts attempts that were rolled back with its own transaction.

What always holds: an operator looks at a record, and sends its decision about that record later; anything may happen in
between. Every statement has a value that no handler and no other statement has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

from semel.core import codec
from semel.core.flow import Flow, ask
from semel.core.operations import Counted, CountFailure, Found, Read, Reopen, Resolve, StateMismatch
from semel.core.record import (
    Cancelled,
    DidNotHappen,
    Failed,
    Failure,
    Happened,
    Resolution,
    StoredRecord,
    Unknown,
)
from semel.engine import admin
from semel.engine.background import HeldLease, Waiter
from semel.engine.call_flow import AskReconcileHook, CallFlow, Pause, Request, RunCall, RunHandler, RunStep, Wait, step
from semel.engine.context import AttemptState
from semel.errors import LeaseLost, NotResolvable, StoreUnavailable
from semel_lab.simulate.checks.violation import Violation
from semel_lab.simulate.decorated_caller import CallStep, DecoratedCall, call_decorated
from semel_lab.simulate.loop import EFFECT, GONE, LOOK, START, Gone, Point, driven
from semel_lab.simulate.process import READY
from semel_lab.simulate.world import (
    KEYS,
    SECOND,
    SHAPE,
    STEP_POLICY,
    Asker,
    Broken,
    Declined,
    NothingHappened,
    request_of,
)

if TYPE_CHECKING:
    from semel_lab.simulate.process import Visit, Worker
    from semel_lab.simulate.simulation import Simulation


_FIRST_STATED: Final = 1_000_000_000  # above every value of a handler
_ROLLED_BACK: Final = Failure("shop.RolledBack", "nothing of it is left")
_FORCED: Final[tuple[Resolution, ...]] = (Cancelled(), DidNotHappen(), Failed("it was stopped"))


class Operator:
    """What one operator does, and what it has seen."""

    __slots__ = ("_caller", "_seen")

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._seen: StoredRecord | None = None

    def flow(self) -> Flow[StoredRecord]:
        """State a value where something is in doubt, and correct what is stated, by whomever."""
        try:
            yield from self._state(correct=False)
        except NotResolvable:
            self._caller.sim.seen["nothing to resolve"] += 1
        return (yield from self._state(correct=True))

    def _state(self, *, correct: bool) -> Flow[StoredRecord]:
        caller = self._caller
        nonce = caller.new_nonce()
        value = _FIRST_STATED + caller.actor * 1_000 + caller.nonces
        flow = admin.resolve(
            KEYS[caller.asker.key],
            Happened(value),
            reason="the ledger says so",
            by="",
            nonce=nonce,
            known=None,
            correct=correct,
        )
        record: StoredRecord = yield from driven(flow, {Read: self._look, Resolve: self._send})
        if record.nonce != nonce or record.outcome is None or codec.decode(record.outcome, SHAPE) != value:
            raise Violation("stated", "an operator was told that another value is recorded than was stated")
        return record

    def force(self) -> Flow[StoredRecord]:
        """End whatever is not settled, a live lease too: cancelled, claimable again, or failed."""
        caller = self._caller
        choice = caller.sim.choices.fault(len(_FORCED))
        caller.inputs.append((caller.sim.now_us, choice, None))
        nonce = caller.new_nonce()
        flow = admin.resolve(
            KEYS[caller.asker.key],
            _FORCED[choice],
            reason="its process is gone",
            by="",
            nonce=nonce,
            known=None,
            force=True,
        )
        record = yield from flow
        if record.nonce != nonce:
            raise Violation("stated", "an operator was told that a lease was ended by force, and it was not")
        return record

    def reopen(self) -> Flow[StoredRecord]:
        """Let a key run again whose record is final."""
        caller = self._caller
        nonce = caller.new_nonce()
        flow = admin.reopen(KEYS[caller.asker.key], reason="it was our fault", by="", nonce=nonce)
        record: StoredRecord = yield from driven(flow, {Read: self._look, Reopen: self._send_reopening})
        if record.nonce != nonce:
            raise Violation("reopened", "an operator was told that a record was reopened that was not")
        return record

    def _send_reopening(self, reopen: Reopen) -> Generator[Any, Any, Any]:
        if self._seen is None or reopen.seen != self._seen.nonce:
            raise Violation("reopened", "a reopening is of another record than its operator looked at")
        return (yield reopen)

    def _look(self, read: Read) -> Generator[Any, Any, Found]:
        found: Found = yield read
        self._seen = found.record
        return found

    def _send(self, resolve: Resolve) -> Generator[Any, Any, Any]:
        if resolve.corrects != (self._seen and self._seen.nonce):
            raise Violation("stated", "a correction is of another record than its operator looked at")
        return (yield resolve)


def count_failures(caller: Caller) -> Flow[int]:
    """What a consumer does whose attempts are rolled back one after the other: how many of them were counted."""
    sim, asker = caller.sim, caller.asker
    most = sim.world.max_attempts
    request = request_of(sim.setting.policies[asker.in_doubt or sim.world.in_doubt], asker)
    for number in range(most or 2):
        nonce = caller.new_nonce()
        count = CountFailure(request.key, request.fingerprint, nonce, _ROLLED_BACK, request.terms, request.about, most)
        try:
            answer = yield from ask(count)
        except StoreUnavailable:
            answer = yield from ask(count)  # whether it was counted is not known: the same again
        if isinstance(answer, StateMismatch):
            return number
        assert isinstance(answer, Counted)
        found = answer.record  # erased in the meantime, perhaps: its error is gone then, and it is still counted
        if found.nonce != nonce or (found.error != _ROLLED_BACK and not found.erased):
            raise Violation("counted", "a consumer was told that an attempt is counted that is not")
        if not found.retryable:
            return number + 1
    return most or 2


class Caller:
    """A thread or task that wants something to happen once."""

    __slots__ = (
        "actor",
        "alone",
        "answer",
        "asker",
        "body",
        "cancelled",
        "effects",
        "ended",
        "ending",
        "error",
        "heir",
        "held",
        "history",
        "inputs",
        "missed",
        "nonces",
        "once",
        "point",
        "request",
        "sim",
        "twin",
        "until_us",
        "value",
        "visit",
        "waiter",
        "waits",
        "worker",
    )  # fmt: skip

    def __init__(self, sim: Simulation, worker: Worker, asker: Asker, request: Request | None, actor: int) -> None:
        self.sim = sim
        self.worker = worker
        self.asker = asker
        self.request = request
        self.actor = actor
        self.point: Point | None = START
        self.once: CallFlow | None = None
        self.body: Flow[Any] | DecoratedCall | None = None
        self.visit: Visit | None = None  # in the lane
        self.waits: Waiter | None = None  # not yet answered
        self.waiter: Waiter | None = None  # the last one that was
        self.held: HeldLease | None = None
        self.until_us: int | None = None
        self.value: Any = None
        self.error: BaseException | None = None
        self.answer: Any = None
        self.ended = False
        self.cancelled = False
        self.heir = False
        self.missed = False
        self.nonces = 0
        self.effects = 0
        self.ending: str | None = None
        self.inputs: list[Any] = []
        self.history = 0
        self.twin: int | None = None
        self.alone = False

    def go(self) -> None:
        """Its move: past the point where it stands."""
        if self.point is START:
            self.point = None
            self.body = self._asking()
            self._resume()
            if self.alone and self.worker.lane.state == READY:
                self.worker.lane.go()  # nobody can tell a start from the first round
        elif not self.sim.faults.at_point(self):
            self.point = None
            self._resume()

    def step(self) -> None:
        """Go on with what was waited for."""
        if self.ended or self.sim.faults.before_turn(self):
            return
        visit = self.visit
        if visit is not None:
            if not visit.is_over:
                self.worker.lane.resume(visit)
            if not visit.is_over:
                return  # a thread that leads now
            if self.error is None:  # else it was cancelled meanwhile, and that is what it hears
                self.value, self.error = visit.value, visit.error
        self._resume()

    def _resume(self) -> None:
        if self.waits is not None:
            self.waiter, self.waits = self.waits, None
        self.visit = None
        value, error = self.value, self.error
        self.value = self.error = None
        self.inputs.append((self.sim.now_us, value, error))
        assert self.body is not None
        try:
            wanted = self.body.send(value) if error is None else self.body.throw(error)
        except StopIteration as stop:
            self._end(stop.value, None)
        except (Gone, asyncio.CancelledError):  # a decorated function that was cancelled, and has cleaned up
            self._end(None, None)
        except Exception as problem:  # noqa: BLE001 - judged by the checker
            self._end(None, problem)
        else:
            self._want(wanted)

    def _want(self, wanted: Any) -> None:
        kind = type(wanted)
        if kind is Pause:
            self.until_us = self.sim.now_us + round(wanted.seconds * SECOND)
        elif kind is float:
            self.until_us = self.sim.now_us + round(wanted * SECOND)
        elif kind is Wait:
            self._wait(wanted.digest, wanted.until)
        elif kind is Point:
            self.point = wanted
        else:
            self.visit = self.worker.lane.ask(self, wanted)

    def _wait(self, digest: bytes, until: float) -> None:
        keeper = self.worker.keeper
        if self.heir:
            self.heir = False
            self.sim.seen["promoted, too late"] += 1
        waiting = keeper.keeper.waiting
        self.waits = waiting.join(digest, until, self.worker.clock.monotonic(), self, self.waiter)
        keeper.wake_by(min(until, waiting.due() or until))

    def woken(self) -> None:
        """It may go on with what it does in the lane, or that is over."""
        self.sim.ready.append(self)

    def news(self, waiter: Waiter) -> None:
        """The keeper has news for the waiter."""
        self.value = waiter.news
        self.sim.witness.news(self, waiter)
        self.sim.ready.append(self)

    def on_time(self) -> None:
        """Time has passed."""
        if self.until_us is not None and self.until_us <= self.sim.now_us:
            self.until_us = None
            self.sim.ready.append(self)

    def new_nonce(self) -> bytes:
        """Never the same twice, and the same in every schedule."""
        self.nonces += 1
        nonce = b"%d.%d" % (self.actor, self.nonces)
        self.sim.witness.owners[nonce] = self
        return nonce

    def _asking(self) -> Flow[Any] | DecoratedCall:
        clock = self.worker.clock
        if self.asker.erases:
            return admin.erase(KEYS[self.asker.key], reason="somebody asked for it", by="")
        if self.asker.resolves:
            return Operator(self).flow()
        if self.asker.forces:
            return Operator(self).force()
        if self.asker.reopens:
            return Operator(self).reopen()
        if self.asker.counts:
            return count_failures(self)
        if self.request is None:
            sweep = admin.sweep(self.sim.setting.known, clock, lambda _: None)
            return driven(sweep, {RunCall: self._run_call})
        if self.sim.world.calls == "decorated":
            return call_decorated(self, self.request)
        self.once = CallFlow(self.request, clock, self.new_nonce, self.worker.retry_budget)
        return driven(self.once.flow(), {RunHandler: self._call, AskReconcileHook: self._ask})

    def _run_call(self, wanted: RunCall) -> Generator[Any, Any, Any]:
        clock, retry_budget = self.worker.clock, self.worker.retry_budget
        self.once = CallFlow(wanted.request, clock, self.new_nonce, retry_budget, only_reconcile=True)
        try:
            result = yield from driven(self.once.flow(), {AskReconcileHook: self._ask})
        except Exception:
            self._done()
            raise
        self._done()
        return result

    def _done(self) -> None:
        """The call is over: stop renewing, and let waiters of this process look."""
        if self.once is not None and (self.held or self.waiter):
            self.worker.finish(self.held, self.once.request.key.digest, self.waiter)
        if self.request is None:
            self.once = self.held = self.waiter = None

    def _hold(self, state: AttemptState) -> None:
        if self.once is not None and (state.beat is None or state.beat is not self.held):
            if self.held is not None:
                self.worker.renewals.release(self.held)
            self.worker.keep_lease(self.once)
            self.held = state.beat

    def _call(self, call: RunHandler) -> Generator[Any, Any, Any]:
        state = call.attempt
        assert state is not None
        self._hold(state)
        if state.beat is not None and state.beat.over(self.worker.clock.monotonic()) is not None:
            raise Violation("told", "a handler began although its lease was over")
        state.active = True
        try:
            return (yield from self.handler(state))
        finally:
            state.active = False

    def handler(self, state: AttemptState) -> Generator[Any, Any, Any]:
        """What the operation does: at most one effect, and an end that may be chosen."""
        sim, world = self.sim, self.sim.world
        before, after = world.work if state.number == 1 else (0.0, 0.0)
        ending = sim.faults.ending(self)
        self.inputs.append((sim.now_us, ending, None))
        for index in range(world.steps):
            name = f"step {index}"
            if isinstance(self.body, DecoratedCall):
                yield CallStep(name, self._step(state, index))
                continue
            flow = step(state, name, SHAPE, STEP_POLICY, joined=False, retry_budget=self.worker.retry_budget)
            yield from driven(flow, {RunStep: lambda _: self._step(state, index)})  # noqa: B023 - used at once
        if before:
            yield before
        if ending == "retry":
            raise NothingHappened
        yield EFFECT
        if world.touches:
            self._touch(state)
        value = sim.ledger.effect(self, state)
        if after:
            yield after
        if ending == "doubt":
            raise Broken
        if ending == "final":
            raise Declined
        return value

    def _touch(self, state: AttemptState) -> None:
        try:
            state.check()
        except LeaseLost:
            self.sim.seen["told in time"] += 1
            raise

    def _step(self, state: AttemptState, index: int) -> Generator[Any, Any, Any]:
        yield EFFECT
        return self.sim.ledger.step(state, index)

    def _ask(self, ask: AskReconcileHook) -> Generator[Any, Any, Any]:
        self._hold(ask.attempt)
        return (yield from self.look(ask.attempt))

    def look(self, state: AttemptState) -> Generator[Any, Any, Any]:
        """What the reconcile hook says of an attempt that is in doubt."""
        yield LOOK
        if self.sim.faults.unsure(self):
            self.inputs.append((self.sim.now_us, "unsure", None))
            return Unknown()
        found = self.sim.ledger.look(state)
        return DidNotHappen() if found is None else Happened(found)

    @property
    def is_in_call(self) -> bool:
        """Whether it has begun a call, which can be cancelled."""
        return self.once is not None or isinstance(self.body, DecoratedCall)

    def cancel(self) -> None:
        """The caller is cancelled, or interrupted: as the shells do it, up to the flow that cleans up."""
        sim = self.sim
        self.cancelled = True
        visit, waits = self.visit, self.waits
        self.visit = self.waits = self.point = self.until_us = None
        unheard = None
        if visit is not None:
            sim.witness.cancelled_with(self, visit)
            if visit.is_over:
                unheard = visit.value
            else:
                self.worker.lane.cancel(visit)
        if waits is not None:
            self.worker.keeper.keeper.waiting.leave(waits)
            self.worker.finish(None, waits.digest, waits)
        self.value = self.error = None
        self.heir = False
        if isinstance(self.body, DecoratedCall):
            self.error = self.body.cancel(unheard)
        else:
            assert self.body is not None
            self.body.close()
            assert self.once is not None
            self.body = self.once.abandoned(GONE, unheard)
        if visit is None or visit.is_over:
            sim.ready.append(self)
        else:
            self.visit = visit  # a thread that leads on for others; it cleans up when that is done

    def _end(self, result: Any, error: Exception | None) -> None:
        self.ended = True
        self.sim.open -= 1
        self.visit = None
        self.heir = False
        self._done()
        self.answer = error if result is None else result
        if self.cancelled:
            self.sim.witness.cleaned_up(self, error)
        elif self.request is not None:
            self.sim.answers.ended(self, result, error)
            if result is not None and result.replayed and self.once is not None:  # a decorated function counts it
                keeper = self.worker.keeper
                if keeper.keeper.count_replay(self.request.key.digest):
                    keeper.wake_by(keeper.keeper.due())
        elif self.asker.erases:
            self.sim.answers.erased(error)
        elif self.asker.resolves:
            self.sim.answers.resolved(error)
        elif self.asker.forces:
            self.sim.answers.decided("forcing", error)
        elif self.asker.reopens:
            self.sim.answers.decided("reopening", error)
        elif self.asker.counts:
            self.sim.answers.decided("counting", error)
        else:
            self.sim.answers.swept(result, error)
