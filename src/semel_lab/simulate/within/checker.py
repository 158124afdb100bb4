"""What must hold where callers bring transactions of their own, looked at after every move.

What always holds: only what is committed counts. A repetition is excused only by a handler or a caller that committed
what it was told not to, or by work that had no transaction to be in; and whoever repeats it is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from semel.core.operations import Claim, CountFailure, Granted, Operation, Resolve, Resolved, StateMismatch
from semel.core.record import NOTHING, About, Status, StoredRecord
from semel.engine.call_flow import Result
from semel.errors import (
    FailedBefore,
    InDoubt,
    InProgress,
    LeaseLost,
    NotInTransaction,
    ResultNotKept,
    StoreUnavailable,
    TransactionAborted,
)
from semel.stores.search import term_numbers
from semel_lab.simulate.checks.history import check_committed
from semel_lab.simulate.checks.search import Known, check_search
from semel_lab.simulate.checks.violation import Violation
from semel_lab.simulate.models import Isolation, Session
from semel_lab.simulate.within.caller import LANE, Effect, WithinCaller
from semel_lab.simulate.within.world import SUBJECTS, about_of
from semel_lab.simulate.world import Broken, NothingHappened

if TYPE_CHECKING:
    from semel_lab.simulate.within.simulation import WithinSimulation

_EXPECTED: Final = (
    InProgress,
    InDoubt,
    FailedBefore,
    LeaseLost,
    NotInTransaction,
    ResultNotKept,
    TransactionAborted,
    Broken,
    NothingHappened,
)


class Checker:
    """Judges one schedule."""

    def __init__(self, sim: WithinSimulation) -> None:
        self.sim = sim
        self.completed: set[bytes] = set()
        self.excused: set[bytes] = set()
        self.early: set[bytes] = set()
        self.unreturned: set[bytes] = set()
        self._counted: set[bytes] = set()
        self._about: About = NOTHING
        self._searched: object = None

    def blame(self, caller: WithinCaller, fault: str) -> None:
        """Somebody is about to do what the docs say not to do."""
        if fault in ("commit early", "swallow"):
            self.excused.add(caller.nonce)
        if fault in ("commit early", "rollback early"):
            self.early.add(caller.nonce)

    def check(self) -> None:
        """After every move."""
        if self.sim.server.waited:
            raise Violation("W5", f"a statement waits for an open transaction: {self.sim.server.waited}")
        row = self.sim.server.committed.get(self.sim.key.digest)
        record = None if row is None else row.record
        if row is not None:
            check_committed(row.record, row.entries)
        if self.sim.world.searched:
            self.check_search()
        effects = self._effects()
        if record is not None and record.status is Status.COMPLETED:
            self.completed.add(record.nonce)
            own = sum(effect.nonce == record.nonce for effect in effects)
            if own != 1 and not self.sim.world.steps:
                raise Violation("W2", f"a completed record is committed, and {own} effects of its handler are")
        for number, effect in enumerate(effects):
            self._check_together(effect, record)
            for earlier in effects[:number]:
                self._check_repeated(earlier, effect)

    def check_search(self) -> None:
        """The record is found by what its last claim said that was committed, and by nothing else."""
        server = self.sim.server
        row = server.committed.get(self.sim.key.digest)
        state = (None if row is None else row.stamp, tuple(server.search.items()))
        if state == self._searched:
            return
        self._searched = state
        if server.search.keys() - server.committed.keys():
            raise Violation("search", "a row by which a record is found is there, and the record is not")
        self._about = NOTHING if row is None or row.record.erased else self._said(row.record)
        scope = "" if row is None or row.record.erased else self.sim.key.scope
        known = [] if row is None else [Known(row.record, scope, self._about)]
        kept = {one.term for one in server.search.get(self.sim.key.digest, ())}
        # On MySQL a repeatable reader leaves rows that it cannot see. They show nothing, and go with the record.
        if self.sim.world.server != "mysql" and kept != set(term_numbers(self._about)):
            raise Violation("search", "the rows by which a record is found are not those of its last claim")
        said = [about_of(self.sim.world, actor) for actor in range(len(SUBJECTS))]
        check_search(known, said, lambda asked: server.apply(LANE, asked, self.sim.now_us))

    def _said(self, record: StoredRecord) -> About:
        """What its last claim said; whoever decides, or counts what was rolled back, says nothing of a record."""
        actor = record.nonce.split(b".")[0]
        is_of_caller = actor.isdigit() and not (record.nonce in self._counted and record.attempts > 1)
        return about_of(self.sim.world, int(actor)) if is_of_caller else self._about

    def _check_together(self, effect: Effect, record: StoredRecord | None) -> None:
        if effect.step:
            if record is None or not record.steps:
                raise Violation("W2", "the effect of a step is committed, and the step is not")
        elif effect.nonce not in self.completed and not self._excuse(effect.nonce):
            raise Violation("W2", f"the effect {effect.value} is committed, and the completion of its record is not")

    def _check_repeated(self, earlier: Effect, effect: Effect) -> None:
        if earlier.step != effect.step:
            return
        if effect.step or self.sim.world.in_doubt == "hold" or not self._excuse(earlier.nonce):
            raise Violation("W1", f"the effects {earlier.value} and {effect.value} are both committed")
        if not effect.told:
            raise Violation("W1", f"the effect {effect.value} is a repetition, and its handler was not told of a doubt")
        self.sim.seen["within: effect repeated, told"] += 1

    def counted(self, count: CountFailure, answer: Any) -> None:
        """A failure that was rolled back is counted: for nobody else's key, and not more often than was tried."""
        if isinstance(answer, StateMismatch):
            self.sim.seen["within: not counted"] += 1
            return
        record = answer.record
        self._counted.add(count.nonce)
        if any(transaction.claims(count.key.digest) for transaction in self.sim.server.open):
            raise Violation("W6", "a failure was counted in a record that an open transaction is writing")
        if record.status is not Status.FAILED or record.nonce != count.nonce:
            raise Violation("W6", f"a failure was counted, and the record is {record.status}")
        tried = sum(caller.attempts for caller in self.sim.callers)
        final = count.max_attempts is not None and record.attempts >= count.max_attempts
        if record.attempts > tried or record.retryable is final:
            raise Violation("W6", f"{record.attempts} attempts are counted of {tried}, retryable is {record.retryable}")
        self.sim.seen["within: counted, final" if final else "within: counted"] += 1

    def held(self, session: Session, operation: Operation) -> None:
        """Somebody was told that an open transaction holds a key, or that its lease lasts for as long."""
        digest = operation.key.digest if isinstance(operation, Claim) else self.sim.key.digest
        server, own = self.sim.server, session.transaction
        row = (server.committed if own is None else server.rows(own)).get(digest)
        leased = row is not None and row.record.status is Status.RUNNING and row.record.lease_us > self.sim.now_us
        others = [other for other in server.open if other is not own]
        if not leased and not any(other.claims(digest) for other in others):
            raise Violation("W7", "a key is said to be in progress, and no open transaction is writing it")

    def granted_beside(self, answer: Any) -> None:
        """A key that nobody else asks for was claimed."""
        if not isinstance(answer, Granted):
            raise Violation("W7", f"a key that nobody else asks for was not granted: {answer!r}")

    def not_given_back(self, nonce: bytes) -> None:
        """A claim came too late, so nothing ran, and its record was held for as long as undoing it was tried."""
        if any(effect.nonce == nonce for effect in self._effects()):
            raise Violation("W2", "a claim that came too late was run")
        self.unreturned.add(nonce)
        self.sim.seen["within: late claim left behind"] += 1

    def answered(self, result: Result[Any]) -> None:
        """A call gave a value, inside a transaction perhaps: its caller acts on it from here on."""
        if result.replayed and result.value.encode() not in self.completed:
            raise Violation("W3", f"{result.value} was replayed, and its completion was never committed")

    def told(self, caller: WithinCaller, result: Result[Any] | None, error: Exception | None) -> None:
        """A caller knows how it ended."""
        caller.result, caller.error = result, error
        name = type(error).__name__ if result is None else "replay" if result.replayed else "first"
        self.sim.note(f"{caller.kind} {caller.actor}", f"is told: {name}")
        self.sim.seen[f"within: {name}"] += 1
        silent = isinstance(error, StoreUnavailable) and caller.level is None  # its record is held, and it gave up
        if error is not None and not isinstance(error, _EXPECTED) and not silent:
            raise Violation("broke", f"a call ended with {error!r}") from error
        if isinstance(error, TransactionAborted) and caller.level is Isolation.READ_COMMITTED:
            raise Violation("W5", f"a transaction at READ COMMITTED was broken by a call: {error.message}")
        if result is not None and not result.replayed and caller.nonce in self.early:
            raise Violation("W2", "a handler ended the transaction, and its outcome was recorded in another one")
        if isinstance(error, NotInTransaction) and caller.nonce not in self.early:
            raise Violation("broke", "a transaction was missed that nobody had ended")

    def check_last(self, last: WithinCaller) -> None:
        """Whoever comes last, alone, is given the outcome, runs, or is told of a doubt that can be ended."""
        if last.result is not None:
            word = "replayed" if last.result.replayed else "run"
            self.sim.seen[f"within: {word} in the end"] += 1
        elif isinstance(last.error, InDoubt) and self._doubt():
            decision = Resolve(self.sim.key.digest, b"decided", Status.CANCELLED, None, "looked")
            if not isinstance(self.sim.operate(LANE, decision), Resolved):
                raise Violation("W4", "a doubt is reported, and cannot be ended")
            self.sim.seen["within: resolved in the end"] += 1
        elif not isinstance(last.error, (FailedBefore, ResultNotKept)):
            raise Violation("W4", f"all transactions have ended, and the next caller gets {last.error!r}")

    def _doubt(self) -> bool:
        """Whether there is something that nobody but a person can tell."""
        unsure = any(effect.nonce not in self.completed for effect in self._effects())
        return (unsure or self._is_left_behind()) and self.sim.world.in_doubt == "hold"

    def _is_left_behind(self) -> bool:
        """Whether the doubt is about a claim that could not be given back, as one of a process that died with it."""
        row = self.sim.server.committed.get(self.sim.key.digest)
        return row is not None and row.record.nonce in self.unreturned

    def _effects(self) -> list[Effect]:
        return [effect for effect in self.sim.server.effects if isinstance(effect, Effect)]

    def _excuse(self, nonce: bytes) -> bool:
        return nonce in self.excused or self._kind(nonce) == "lane"

    def _kind(self, nonce: bytes) -> str:
        return self.sim.callers[int(nonce.split(b".")[0])].kind
