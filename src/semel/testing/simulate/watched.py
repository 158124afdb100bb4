"""The store model under watch: the real table, and beside it a checker that looks at every change of a record.

What always holds: after a claim only the highest owner writes, under its own lease, to a record that is running; what
is completed stays; only what is settled and expired is deleted. The checker changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from semel.core import codec
from semel.core.operations import (
    Claim,
    Complete,
    Confirm,
    Erase,
    Fail,
    Invalidate,
    Lapse,
    Lost,
    Operation,
    Pending,
    Purge,
    Read,
    Renew,
    Resolve,
    Scan,
    Tally,
)
from semel.core.record import Record, Status
from semel.core.store import Answers, Plan
from semel.stores.memory.table import Table
from semel.testing.simulate.claims import Claims, is_over
from semel.testing.simulate.trace import told
from semel.testing.simulate.violation import Violation
from semel.testing.simulate.world import SHAPE

if TYPE_CHECKING:
    from semel.testing.simulate.simulation import Simulation

_RUNNING, _COMPLETED, _FAILED, _IN_DOUBT = Status.RUNNING, Status.COMPLETED, Status.FAILED, Status.IN_DOUBT
_HARMLESS = frozenset({Read, Scan, Tally, Invalidate, Pending, Confirm})  # no record is decided by these
_SHUT = ("status", "fence", "nonce", "lease_us", "expires_us")


class WatchedStore:
    """What lanes of the simulation send to."""

    __slots__ = ("batch", "claims", "name", "sim", "table")

    def __init__(self, sim: Simulation, batch: int) -> None:
        self.name = "simulated://"
        self.batch = batch
        self.sim = sim
        self.table = Table()
        self.claims = Claims(sim)

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """One command: the operations themselves."""
        del joined  # nothing can be joined here
        answers: Answers = yield operations
        return answers

    def apply_all(self, operations: Sequence[Operation]) -> Answers:
        """Carry out a list."""
        return [self.apply(operation) for operation in operations]

    def apply(self, operation: Any) -> Any:
        """Carry out one operation, and look at what it changed."""
        kind, now = type(operation), self.sim.store_now()
        if kind in _HARMLESS:
            return self.perform(operation, now)
        if kind is Purge or kind is Lapse:
            return self._swept(operation, now)
        by_digest = kind is Resolve or kind is Erase
        digest = operation.digest if by_digest else (operation if kind is Claim else operation.lease).key.digest
        records = self.table.records
        before = records.get(digest)
        answer = self.perform(operation, now)
        self.judge(operation, before, records.get(digest), now, answer)
        if self.sim.trace is not None:
            self.sim.note("store", f"{told(operation)} -> {told(answer)}")
        return answer

    def perform(self, operation: Any, now: int) -> Any:
        """What the model makes of it."""
        return self.table.apply(operation, now)

    def judge(self, operation: Any, before: Record | None, after: Record | None, now: int, answer: Any) -> None:
        """Look at what an operation on one record has changed, and at its answer."""
        kind = type(operation)
        if kind is Claim:
            self.claims.answered(operation, before, after, now, answer)
        elif kind is Resolve:
            self._resolved(operation, before, after, now)
        elif kind is Erase:
            self._erased(before, after)
        else:
            self._written(operation, before, after, now, answer)

    def mark(self) -> tuple[object, ...]:
        """What the model knows beside the records, for telling states apart."""
        return ()

    def _written(self, operation: Any, before: Record | None, after: Record | None, now: int, answer: Any) -> None:
        kind = type(operation)
        if after is before:
            if type(answer) is Lost:
                self.sim.seen["refused: " + kind.__name__] += 1
            elif before is None or before.nonce != operation.lease.nonce or before.fence != operation.lease.fence:
                raise Violation("I4", f"{kind.__name__} under another's lease was answered {told(answer)}")
            elif kind is Complete:
                self.sim.seen["completed again"] += 1
            return
        lease = operation.lease
        if before is None or after is None or before.nonce != lease.nonce or before.fence != lease.fence:
            raise Violation("I4", f"{kind.__name__} was accepted under a lease that is not the current one")
        if before.status is not _RUNNING:
            raise Violation("I7", f"{kind.__name__} changed a record that is {before.status}")
        if after.nonce != before.nonce or after.fence != before.fence or after.fingerprint != before.fingerprint:
            raise Violation("I4", f"{kind.__name__} changed whose record it is")
        if kind is Renew:
            self.sim.witness.renewed(lease, now)
        elif kind is Complete:
            self._completed(after)
        elif kind is Fail:
            self._failed(operation, before, after)

    def _completed(self, after: Record) -> None:
        life = self.claims.lives[after.key.digest]
        if life is not self.claims.life_of.get(after.nonce) or after.fence != life.fence:
            raise Violation("I4", "somebody else than the highest owner completed")
        if after.outcome is None:
            raise Violation("I3", "a record was completed without an outcome")
        if life.outcome is not None:
            raise Violation("I7", "a generation was completed twice")
        life.outcome = after.outcome
        life.value = codec.decode(after.outcome, SHAPE)
        self.sim.seen["completed"] += 1

    def _failed(self, fail: Fail, before: Record, after: Record) -> None:
        if after.status is _FAILED and after.retryable and (before.doubtful and fail.doubtful):
            raise Violation("I7", "a doubt became a record that expires")
        if after.final:
            self.claims.lives[after.key.digest].failed = True
        self.sim.seen[f"failed: {fail.ending}{'' if fail.started else ', never called'}"] += 1
        if fail.error.type == "semel.CallerGone":
            self.sim.seen["given back"] += 1

    def _resolved(self, resolve: Resolve, before: Record | None, after: Record | None, now: int) -> None:
        if after is before or after is None or before is None:
            return
        lapsed = before.status is _RUNNING and before.lease_us <= now
        if resolve.corrects is not None:
            self._corrected(resolve, before, after)
        elif not lapsed and before.status is not _IN_DOUBT:
            raise Violation("I4", f"a record that is {before.status} was resolved")
        else:
            self.sim.witness.superseded(before)
        if after.fence <= before.fence or after.nonce != resolve.nonce:
            raise Violation("I4", "resolving did not raise the fence under a nonce of its own")
        if (after.status, after.outcome, after.fingerprint) != (resolve.status, resolve.outcome, before.fingerprint):
            raise Violation("stated", "what is recorded is not what was stated")
        self.claims.lead(resolve.nonce, after)
        if after.status is _COMPLETED:
            self._completed(after)
            life = self.claims.lives[after.key.digest]
            life.stated[resolve.nonce] = life.value
        self.sim.seen["resolved" if resolve.corrects is None else "corrected"] += 1

    def _corrected(self, resolve: Resolve, before: Record, after: Record) -> None:
        """The outcome of a completed record is replaced: only one that was stated, and that its operator saw."""
        if not before.settled:
            raise Violation("I4", f"a correction settled a record that is {before.status}")
        life = self.claims.lives[before.key.digest]
        if before.status is not _COMPLETED or before.erased or after.status is not _COMPLETED:
            raise Violation("stated", f"a correction turned {before.status} into {after.status}")
        if before.nonce != resolve.corrects:
            raise Violation("stated", "a correction replaced what its operator did not look at")
        if before.nonce not in life.stated:
            raise Violation("stated", "a correction replaced what a handler gave")
        life.outcome = life.value = None  # stated anew at once

    def _erased(self, before: Record | None, after: Record | None) -> None:
        if after is before or after is None or before is None:
            return
        if not before.settled:
            raise Violation("I7", f"a record that is {before.status} was erased")
        if not after.final or any(getattr(after, name) != getattr(before, name) for name in _SHUT):
            raise Violation("I7", "erasing opened a key that was shut")
        life = self.claims.lives[after.key.digest]
        left = after.key.value or after.steps or (life.outcome is not None and after.outcome == life.outcome)
        if after.fingerprint or left:
            raise Violation("erased", "erasing left what was asked for, or what came of it")
        life.erased = True
        life.failed |= after.status is _FAILED  # it may have been one that could be tried again
        self.sim.seen["erased"] += 1

    def _swept(self, operation: Purge | Lapse, now: int) -> Any:
        before = dict(self.table.records)
        answer = self.perform(operation, now)
        for digest, record in before.items():
            self.judge_swept(record, self.table.records.get(digest), now)
        return answer

    def judge_swept(self, record: Record, after: Record | None, now: int) -> None:
        """Look at what a sweep has made of one record."""
        if after is record:
            return
        if after is None:
            self.deleted(record, now)
            self.sim.seen["purged"] += 1
        elif record.status is not _RUNNING or record.lease_us > now or after.status is not _IN_DOUBT:
            raise Violation("I4", f"sweeping turned {record.status} into {after.status}")
        else:
            self.sim.seen["lapsed"] += 1

    def deleted(self, record: Record, now: int) -> None:
        """A record is gone, as those may be that have expired."""
        if not is_over(record, now):
            raise Violation("I7", f"a record that is {record.status} was deleted before its time")
        self.claims.lives[record.key.digest].ended = "expired"
