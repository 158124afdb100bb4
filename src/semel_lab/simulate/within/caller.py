"""One caller: a real `CallFlow`, driven in the caller's transaction, on a lane, or with a step in a transaction.

What always holds: what the shells do around a flow is done here in the same order. A caller stops before everything
that others can see: a statement, an effect, a commit. An effect in a transaction is a row of that transaction.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from semel.core.operations import (
    Checkpoint,
    Claim,
    Complete,
    CountFailure,
    Erase,
    Erased,
    Fail,
    JoinTransaction,
    Operation,
    Read,
    Recorded,
    Running,
)
from semel.core.record import NOTHING, Failure
from semel.engine import call_errors
from semel.engine.background import Promoted, TimedOut
from semel.engine.call_flow import CallFlow, Pause, Result, RunHandler, RunStep, Wait, step
from semel.engine.clock import Clock, RetryBudget
from semel.engine.context import AttemptState
from semel.errors import StoreUnavailable, TransactionAborted
from semel.stores.sql.errors import RowLocked
from semel_lab.simulate.loop import Gone, driven
from semel_lab.simulate.models import Begin, Commit, Isolation, Rollback, Session
from semel_lab.simulate.process import whole
from semel_lab.simulate.within.world import NEIGHBOUR, Kind, level_of, request_of
from semel_lab.simulate.world import KEYS, SECOND, SHAPE, STEP_POLICY, Broken, NothingHappened

if TYPE_CHECKING:
    from semel_lab.simulate.within.simulation import WithinSimulation

Body = Generator[Any, Any, Any]
LANE: Final = Session("lane")
_POLL: Final = 0.05
_TURNS: Final = 2
_ROLLED_BACK: Final = Failure("shop.RolledBack", "nothing of it is left")
_JOINED: Final = (Claim, Complete, Fail, Read, JoinTransaction, Checkpoint)


class Effect(NamedTuple):
    """A row of a caller's own: by which claim, whether as a step, and whether the handler was told of a doubt."""

    nonce: bytes
    step: bool
    told: bool
    value: str


class WithinCaller:
    """A thread or task with a connection."""

    def __init__(self, sim: WithinSimulation, kind: Kind, actor: int) -> None:
        self.sim = sim
        self.actor = actor
        self.kind = kind
        self.level = level_of(kind)
        self.session = Session(f"caller {actor}", self.level or Isolation.READ_COMMITTED)
        self.point = "start"
        self.until_us: int | None = None
        self.ended = False
        self.history = 0
        self.fault = ""
        self.result: Result[Any] | None = None
        self.error: Exception | None = None
        self._nonces = 0
        self._request = request_of(sim.world, actor)
        self._clock = cast("Clock", self)
        self._body = self._make_body()

    def _make_body(self) -> Body:
        if self.kind == "neighbour":
            return self._hold_another_key()
        if self.kind == "eraser":
            return self._erase()
        return self._transactions() if self.level is not None else self._call_alone()

    def monotonic(self) -> float:
        """The clock of this caller: `CallFlow` asks it for nothing else."""
        return self.sim.now_us / SECOND

    def go(self, fault: str = "") -> None:
        """Past the point where it stands, in which something may go wrong."""
        self.fault = fault
        self.heard((self.point, fault))
        if fault == "crash":
            self.gone()
            return
        self.until_us = None
        try:
            wanted = next(self._body)
        except StopIteration:
            self.ended = True
        except Gone:
            self.gone()
        else:
            if isinstance(wanted, float):
                self.until_us = self.sim.now_us + round(wanted * SECOND)
                self.point = ""
            else:
                self.point = wanted

    def gone(self) -> None:
        """To the server a caller that is gone has rolled back."""
        self.ended = True
        self.sim.server.apply(self.session, Rollback(), self.sim.now_us)
        self._body.close()

    def untie(self) -> None:
        """Let go of what points in circles."""
        self._body.close()
        del self.sim, self._body, self._clock

    def heard(self, what: Any) -> None:
        """Note what it knows by now: two callers who heard the same are in the same place."""
        self.history = hash((self.history, self.sim.now_us, what))

    def _hold_another_key(self) -> Body:
        """Claim a key that has nothing to do with that of the others, and let go of it at some time."""
        yield "begin"
        self.sim.server.apply(self.session, Begin(), self.sim.now_us)
        asked = self._request
        self.sim.checker.granted_beside(
            (
                yield from self._operate(
                    self.session, Claim(NEIGHBOUR, asked.fingerprint, b"beside", asked.terms, NOTHING)
                )
            )
        )
        yield "commit"
        self._end(Rollback())

    def _erase(self) -> Body:
        """Erase the record, if it is settled by then; whoever writes it is waited for, and here given up at once."""
        try:
            answer = yield from self._operate(LANE, Erase(self.sim.key.digest, "asked"))
        except StoreUnavailable:
            self.sim.server.waited, answer = "", None
        self.sim.seen["within: erased" if isinstance(answer, Erased) else "within: not erased"] += 1

    def _transactions(self) -> Body:
        """Begin, call, commit; and all of it again where the transaction is lost, as the docs tell callers to."""
        for turn in range(_TURNS):
            yield "begin"
            self.sim.server.apply(self.session, Begin(), self.sim.now_us)
            if self.sim.world.looks:
                self.sim.server.apply(self.session, Read(KEYS[1].digest), self.sim.now_us)
                yield "first statement"
            if (yield from self._transaction()) or turn == _TURNS - 1:
                return

    def _transaction(self) -> Generator[Any, Any, bool]:
        """Whether this was it."""
        result, error = yield from self._called(joined=True)
        yield "commit" if error is None else "give up"
        if error is not None and self.fault != "swallow":
            self._end(Rollback())
            self.sim.checker.told(self, None, error)
            if isinstance(error, (Broken, NothingHappened)):
                yield from self._count()
            return not isinstance(error, TransactionAborted)
        self._end(Rollback() if self.fault == "rollback" else Commit())
        if self.fault not in ("rollback", "crash after commit"):
            self.sim.checker.told(self, result, error)
        elif self.fault == "rollback" and result is not None and not result.replayed:
            yield from self._count()
        return True

    def _count(self) -> Body:
        """The attempt was rolled back with everything it wrote: it is counted on a connection of semel's own."""
        most = self.sim.world.counts
        if most is None:
            return
        asked = self._request
        count = CountFailure(asked.key, asked.fingerprint, self.nonce, _ROLLED_BACK, asked.terms, asked.about, most)
        self.sim.checker.counted(count, (yield from self._operate(LANE, count)))

    def _end(self, act: Commit | Rollback) -> None:
        self.sim.server.apply(self.session, act, self.sim.now_us)

    def _call_alone(self) -> Body:
        result, error = yield from self._called(joined=False)
        self.sim.checker.told(self, result, error)

    @property
    def attempts(self) -> int:
        """How many it has begun, as far as anybody could count."""
        return self._nonces

    @property
    def nonce(self) -> bytes:
        """The last one."""
        return b"%d.%d" % (self.actor, self._nonces)

    def new_nonce(self) -> bytes:
        """Never the same twice, and the same in every schedule."""
        self._nonces += 1
        return self.nonce

    def _called(self, *, joined: bool) -> Generator[Any, Any, tuple[Result[Any] | None, Exception | None]]:
        once = CallFlow(self._request, self._clock, self.new_nonce, RetryBudget(whole))
        ask = self._joined if joined else self._asked
        inline: dict[type, Any] = {**dict.fromkeys(_JOINED, ask), Wait: self._wait, Pause: self._pause}
        try:
            result = yield from driven(once.flow(), {**inline, RunHandler: self._call})
        except Exception as error:  # noqa: BLE001 - judged by the simulation
            if isinstance(error, StoreUnavailable) and isinstance(once.written, Fail) and not once.started:
                self.sim.checker.not_given_back(once.written.lease.nonce)
            return None, error
        self.sim.checker.answered(result)
        return result, None

    def _asked(self, operation: Operation) -> Body:
        return self._operate(LANE, operation)

    def _joined(self, operation: Operation) -> Body:
        try:
            return (yield from self._operate(self.session, operation))
        except Exception as error:
            problem = call_errors.joined_error(error)
            if problem is error:
                raise
            raise problem from error

    def _operate(self, session: Session, operation: Operation) -> Body:
        yield type(operation).__name__
        answer = self.sim.operate(session, operation)
        self.heard(_mark(answer))
        if answer == Running(50_000):
            self.sim.seen["within: held"] += 1
            self.sim.checker.held(session, operation)
        if isinstance(answer, RowLocked):
            self.sim.seen["within: row locked"] += 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _wait(self, wait: Wait) -> Body:
        if self.monotonic() >= wait.until:
            return TimedOut()
        yield _POLL
        return Promoted()

    def _pause(self, pause: Pause) -> Body:
        yield pause.seconds

    def _call(self, call: RunHandler) -> Body:
        state = call.attempt
        assert state is not None
        if self.sim.world.steps:
            yield from self._step(state)
            return state.lease.nonce.decode()
        yield "effect"
        if self.fault == "retry":
            raise NothingHappened
        effect = Effect(state.lease.nonce, step=False, told=state.in_doubt, value=state.lease.nonce.decode())
        if self.level is None:
            self.sim.server.effects.append(effect)
        else:
            self.sim.server.effect(self.session, effect)
        if self.fault in ("commit early", "rollback early"):
            self._end(Commit() if self.fault == "commit early" else Rollback())
        if self.fault == "doubt":
            raise Broken
        return effect.value

    def _step(self, state: AttemptState) -> Body:
        """The work is a step: in the caller's transaction, or in one that is open no longer than the step."""
        flow = step(state, "hold", SHAPE, STEP_POLICY, joined=True, retry_budget=RetryBudget(whole))
        inline: dict[type, Any] = {
            JoinTransaction: self._joined,
            Checkpoint: self._joined,
            RunStep: lambda _: self._step_effect(state),
        }
        if state.granted.record.steps:
            self.sim.seen["within: step done before"] += 1
        inline[Pause] = self._pause
        if self.level is not None:
            yield from driven(flow, inline)
            return
        try:
            yield from driven(flow, inline)
        except Exception:
            self._end(Rollback())
            raise
        yield "commit"
        self._end(Commit())
        if self.fault == "crash after commit":
            raise Gone

    def _step_effect(self, state: AttemptState) -> Body:
        yield "effect"
        nonce = state.lease.nonce
        self.sim.server.effect(self.session, Effect(nonce, step=True, told=state.in_doubt, value=nonce.decode()))


def _mark(answer: Any) -> Any:
    if isinstance(answer, Recorded):
        return "recorded"
    record = getattr(answer, "record", None)
    told = (record.nonce, record.fence, record.status, len(record.steps)) if record is not None else ()
    return type(answer).__name__, told, getattr(answer, "remaining_us", 0)
