"""MariaDB and MySQL (InnoDB) with the statements of `stores/mysql`: a key is held by gates, a row by its lock.

What always holds: whatever locks sees the newest version, so nothing conflicts with a snapshot; only plain readings of
a repeatable reader look into the past. A statement that would wait is given up alone, and its transaction lives on.
Marks are savepoints: recording an outcome uses its mark up.
"""

from __future__ import annotations

from itertools import count

from msgspec.structs import replace

from semel.core.claim_rules import MayWrite, judge
from semel.core.operations import (
    AddReplays,
    Answer,
    Claim,
    CountFailure,
    Erase,
    Granted,
    JoinTransaction,
    LapsedRecords,
    Lost,
    MarkLapsed,
    Purge,
    Read,
    Recorded,
    StateMismatch,
    SweepCount,
    TransactionJoined,
)
from semel.core.record import Status, StoredRecord
from semel.errors import TransactionAborted
from semel.stores.mysql.dialect import gates_of
from semel.stores.sql.errors import RowLocked, ended
from semel_lab.simulate.models.database import Conflict, Told, Waits
from semel_lab.simulate.models.server import HELD, Decision, Server, Write, decided, shows
from semel_lab.simulate.models.transaction import Isolation, Transaction


class MysqlModel(Server):
    """A MariaDB server."""

    def gave_up(self, transaction: Transaction, trouble: Waits | Conflict) -> Told:
        """Only the statement is undone; but nobody goes on with a transaction that missed one."""
        del transaction, trouble
        return TransactionAborted("A row stayed locked.")

    def look(self, transaction: Transaction) -> None:
        """The first plain reading of a repeatable reader takes its snapshot; what locks does not."""
        if transaction.isolation is Isolation.REPEATABLE_READ and transaction.snapshot is None:
            self.take_snapshot(transaction)

    def lock(self, transaction: Transaction, digest: bytes) -> None:
        """Lock a row, or wait for it; where there is none, a repeatable reader locks the gap."""
        if self.locked(transaction, digest):
            raise Waits
        if self.newest(transaction, digest) is not None:
            transaction.locked.add(digest)
        elif transaction.isolation is Isolation.REPEATABLE_READ:
            transaction.gaps.add(digest)

    def hold(self, transaction: Transaction, digest: bytes) -> bool:
        """Take gates, turn by turn, until one gives all of its gates; the key is another's where a turn gives none."""
        for turn in count():
            gates = gates_of(digest, turn)
            others = [other for other in self.open if other is not transaction]
            free = [gate for gate in gates if not any(gate in other.held for other in others)]
            for gate in free:
                transaction.held.add(gate)
            if len(free) == len(gates):
                return True
            if not free:
                return False
        raise AssertionError("gates never end")

    def gap_locked(self, transaction: Transaction, digest: bytes) -> bool:
        """Whether somebody else keeps a row from being inserted."""
        return any(digest in other.gaps for other in self.open if other is not transaction)

    def claim(self, transaction: Transaction, claim: Claim, now: int, *, joined: bool) -> Told:
        """On a lane a look comes first, which spares the lock; in a transaction the gates do."""
        return self._claim_here(transaction, claim, now) if joined else self._claim_alone(transaction, claim, now)

    def _claim_alone(self, transaction: Transaction, claim: Claim, now: int) -> Told:
        met = self.rows(transaction).get(claim.key.digest)
        verdict = judge(None if met is None else met.record, claim, now)
        if not isinstance(verdict, MayWrite):
            return self.met(transaction, claim, verdict, joined=False)
        try:
            return self._arbitrated(transaction, claim, now)
        except Waits:
            return HELD

    def _claim_here(self, transaction: Transaction, claim: Claim, now: int) -> Told:
        claim = replace(claim, terms=replace(claim.terms, lease_us=0))
        if not self.hold(transaction, claim.key.digest):
            self.look(transaction)
            return HELD
        answer = self._arbitrated(transaction, claim, now)
        self.look(transaction)
        if not isinstance(answer, Granted):
            return self.met(transaction, claim, answer, joined=True)
        name = f"semel_{claim.nonce.hex()}"
        transaction.marks.add(name)
        return replace(answer, transaction=name)

    def _arbitrated(self, transaction: Transaction, claim: Claim, now: int) -> Answer:
        """The arbiter locks the row even where nothing is won."""
        digest = claim.key.digest
        row = self.newest(transaction, digest)
        if self.locked(transaction, digest) or (row is None and self.gap_locked(transaction, digest)):
            raise Waits
        answer, record = self.judged(row, claim, now)
        transaction.locked.add(digest)
        if row is None or record != row.record:
            self.write(transaction, digest, record)
        return answer

    def keep_terms(self, transaction: Transaction, digest: bytes, record: StoredRecord | None) -> None:
        """What was said before is looked up by a plain reading: a repeatable reader leaves what it cannot see."""
        super().keep_terms(transaction, digest, record)
        if record is None or transaction.snapshot is None or digest in transaction.snapshot_search:
            return
        kept = transaction.written_search[digest]
        numbers = {row.term for row in kept}
        unseen = {row for row in self.search.get(digest, ()) if row.term not in numbers}
        transaction.written_search[digest] = kept | unseen

    def demand(self, transaction: Transaction, name: str) -> bool:
        """Whether the mark is still there; demanding it uses it up."""
        if name not in transaction.marks:
            return False
        transaction.marks.discard(name)
        return True

    def settle(self, transaction: Transaction, operation: Write, now: int, *, joined: bool) -> Told:
        """A write under a lease, on the newest version."""
        lease = operation.lease
        if joined and lease.transaction and not self.demand(transaction, lease.transaction):
            return ended()
        digest = lease.key.digest
        try:
            self.lock(transaction, digest)
        except Waits:
            if joined:
                raise
            return RowLocked(lease.key.reference)
        row = self.newest(transaction, digest)
        if row is None or not shows(lease, row.record):
            return Lost()
        answer, record = self.judged(row, operation, now)
        if record != row.record:
            self.write(transaction, digest, record)
        return answer

    def enter(self, transaction: Transaction, operation: JoinTransaction) -> Told:
        """The gates first, then the record."""
        lease = operation.lease
        digest = lease.key.digest
        if not self.hold(transaction, digest):
            self.look(transaction)
            return RowLocked(lease.key.reference)
        if self.locked(transaction, digest):
            self.look(transaction)
            return RowLocked(lease.key.reference)
        self.lock(transaction, digest)
        self.look(transaction)
        row = self.newest(transaction, digest)
        if row is None or not shows(lease, row.record) or row.record.status is not Status.RUNNING:
            return Lost()
        name = f"semel_step_{lease.nonce.hex()}"
        transaction.marks.add(name)
        return TransactionJoined(name)

    def read(self, transaction: Transaction, operation: Read, now: int) -> Told:
        """A plain reading."""
        self.look(transaction)
        return super().read(transaction, operation, now)

    def decide(self, transaction: Transaction, operation: Decision, now: int) -> Told:
        """A decision on the newest version; what it could not change is read plainly."""
        digest = operation.digest
        row = self.newest(transaction, digest)
        self.lock(transaction, digest)
        _, record = self.judged(row, operation, now)
        if row is not None and record != row.record:
            self.write(transaction, digest, record)
        self.look(transaction)
        seen = self.rows(transaction).get(digest)
        return decided(operation, None if seen is None else seen.record)

    def count(self, transaction: Transaction, operation: CountFailure, now: int) -> Told:
        """Whoever holds the row, or the gap, is not waited for for long: the key is its business now."""
        digest = operation.key.digest
        row = self.newest(transaction, digest)
        if self.locked(transaction, digest) or (row is None and self.gap_locked(transaction, digest)):
            return StateMismatch(None)
        answer, record = self.judged(row, operation, now)
        if row is None or record != row.record:
            self.write(transaction, digest, record)
        return answer

    def erase(self, transaction: Transaction, operation: Erase, now: int) -> Told:
        """Even a row that nobody can see yet is waited for; what became of it is read plainly."""
        digest = operation.digest
        self.lock(transaction, digest)
        row = self.newest(transaction, digest)
        _, record = self.judged(row, operation, now)
        if row is not None and record != row.record:
            self.write(transaction, digest, record, erased_us=now)
        self.look(transaction)
        seen = self.rows(transaction).get(digest)
        return StateMismatch(None) if seen is None else self.judged(seen, operation, now)[0]

    def tally(self, transaction: Transaction, operation: AddReplays, now: int) -> Recorded:
        """Even a row that nobody can see yet is waited for."""
        self.lock(transaction, operation.digest)
        return super().tally(transaction, operation, now)

    def sweep(self, transaction: Transaction, operation: Purge | MarkLapsed, now: int) -> SweepCount | LapsedRecords:
        """Only ever on a lane: a sweep begins and commits transactions of its own."""
        self.look(transaction)
        return super().sweep(transaction, operation, now)
