"""Every operation, as far as the servers agree on it.

What always holds: a claim takes its key before it writes, and a write under a lease leaves out what others have locked.

Writes under a lease, as the models see them.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from semel.core.claim_rules import MayWrite, judge
from semel.core.operations import (
    AddReplays,
    Answer,
    Checkpoint,
    Claim,
    Complete,
    CountFailure,
    CountRecords,
    Erase,
    Erased,
    Fail,
    Found,
    Granted,
    HistoryFound,
    InDoubtAnswer,
    JoinTransaction,
    LapsedRecords,
    Lost,
    MarkLapsed,
    Operation,
    Purge,
    Read,
    ReadHistory,
    Recorded,
    Renew,
    Reopen,
    Reopened,
    Replay,
    Resolve,
    Resolved,
    Reused,
    Running,
    Scan,
    SkipRecords,
    StateMismatch,
    SweepCount,
    TransactionJoined,
)
from semel.core.record import Lease, Status, StoredRecord
from semel.errors import StoreUnavailable
from semel.stores.memory import Table
from semel.stores.sql.errors import RowLocked, ended
from semel_lab.simulate.models.database import Database, Told, Waits
from semel_lab.simulate.models.transaction import Row, Rows, Transaction

Write = Renew | Complete | Fail | Checkpoint
Decision = Resolve | Reopen


def shows(lease: Lease, record: StoredRecord) -> bool:
    """Whether `lease` is the current one of this version."""
    return record.nonce == lease.nonce and record.fence == lease.fence


def decided(decision: Decision, found: StoredRecord | None) -> Answer:
    """What whoever decides is told where nothing was changed: the same as the first time, or what is there instead."""
    if found is None or found.nonce != decision.nonce:
        return StateMismatch(found)
    return Resolved(found) if isinstance(decision, Resolve) else Reopened(found)


HELD: Final = Running(50_000)


class Server(Database):
    """A server with the tables of a store."""

    def perform(self, transaction: Transaction, operation: Operation, now: int, *, joined: bool) -> Told:
        """Carry out one operation.

        Raises:
            Waits: a row is locked.
            Conflict: a row has changed since the snapshot.
        """
        match operation:
            case Claim():
                return self.claim(transaction, operation, now, joined=joined)
            case JoinTransaction():
                return self.enter(transaction, operation) if joined else Lost()
            case Read():
                return self.read(transaction, operation, now)
            case Resolve() | Reopen():
                return self.decide(transaction, operation, now)
            case CountFailure():
                return self.count(transaction, operation, now)
            case Erase():
                return self.erase(transaction, operation, now)
            case Purge() | MarkLapsed():
                return self.sweep(transaction, operation, now)
            case AddReplays():
                return self.tally(transaction, operation, now)
            case ReadHistory():
                return self.history(transaction, operation, now)
            case Scan() | CountRecords() | SkipRecords():
                return self.find(transaction, operation, now)
            case Renew() | Complete() | Fail() | Checkpoint():
                return self.settle(transaction, operation, now, joined=joined)
            case _:
                message = f"a model answers no {type(operation).__name__}: no record is decided by it"
                raise NotImplementedError(message)

    def claim(self, transaction: Transaction, claim: Claim, now: int, *, joined: bool) -> Told:
        """The arbiter."""
        if joined:
            claim = replace(claim, terms=replace(claim.terms, lease_us=0))
        met = self.rows(transaction).get(claim.key.digest)
        verdict = judge(None if met is None else met.record, claim, now)
        if not isinstance(verdict, MayWrite):
            return self.met(transaction, claim, verdict, joined=joined)
        if not self.hold(transaction, claim.key.digest):
            return HELD
        newest = self.newest(transaction, claim.key.digest)
        if newest is not None:
            self.check(transaction, claim.key.digest)
        if self.locked(transaction, claim.key.digest):
            raise Waits  # not the key, only the row: by a decision or a sweep in an open transaction
        answer, record = self.judged(newest, claim, now)
        self.write(transaction, claim.key.digest, record)
        return self.named(transaction, answer) if joined else answer

    def met(self, transaction: Transaction, claim: Claim, verdict: Answer, *, joined: bool) -> Answer:
        """What a claim is told that could not win. Finished steps are read only for whoever goes on with them."""
        del transaction
        match verdict:
            case Granted():
                return replace(verdict, transaction=f"semel_{claim.nonce.hex()}") if joined else verdict
            case Replay(record) | Reused(record) | InDoubtAnswer(record):
                return replace(verdict, record=replace(record, steps=()))
        return verdict

    def named(self, transaction: Transaction, answer: Answer) -> Answer:
        """A grant, with the name of the transaction it was written in."""
        return replace(answer, transaction=transaction.name) if isinstance(answer, Granted) else answer

    def demand(self, transaction: Transaction, name: str) -> bool:
        """Whether the transaction that is open is the one of the claim."""
        return transaction.name == name

    def settle(self, transaction: Transaction, operation: Write, now: int, *, joined: bool) -> Told:
        """A write under a lease. A row that somebody else has locked is left out, not waited for."""
        lease = operation.lease
        if joined and lease.transaction and not self.demand(transaction, lease.transaction):
            return ended()
        digest = lease.key.digest
        row = self.owned_row(transaction, digest)
        if row is None or not shows(lease, row.record):
            return Lost()
        if row.record.status is not Status.RUNNING:
            return self.judged(row, operation, now)[0]  # perhaps the same end again
        self.check(transaction, digest)
        if self.locked(transaction, digest):
            return RowLocked(lease.key.reference)
        transaction.locked.add(digest)
        answer, record = self.judged(row, operation, now)
        if record != row.record or not isinstance(operation, Checkpoint):
            # A statement writes a new version even where nothing in it is new; a step that is there is not written.
            self.write(transaction, digest, record, wanted=row.wanted)
        return answer

    def owned_row(self, transaction: Transaction, digest: bytes) -> Row | None:
        """The row that a write under a lease is compared with."""
        return self.rows(transaction).get(digest)

    def enter(self, transaction: Transaction, operation: JoinTransaction) -> Told:
        """A step in the caller's transaction locks its record, and holds its key."""
        lease = operation.lease
        digest = lease.key.digest
        row = self.owned_row(transaction, digest)
        if row is None or not shows(lease, row.record) or row.record.status is not Status.RUNNING:
            return Lost()
        self.check(transaction, digest)
        if self.locked(transaction, digest):
            return RowLocked(lease.key.reference)
        transaction.locked.add(digest)
        if not self.hold(transaction, digest):
            return RowLocked(lease.key.reference)
        return TransactionJoined(transaction.name)

    def read(self, transaction: Transaction, operation: Read, now: int) -> Told:
        """Look a record up."""
        row = self.rows(transaction).get(operation.digest)
        return Found(None if row is None else row.record, now)

    def history(self, transaction: Transaction, operation: ReadHistory, now: int) -> Told:
        """A record with its entries; only ever on a lane."""
        row = self.rows(transaction).get(operation.digest)
        return HistoryFound(None, (), (), now) if row is None else HistoryFound(row.record, row.entries, (), now)

    def decide(self, transaction: Transaction, operation: Decision, now: int) -> Told:
        """A decision."""
        row = self.owned_row(transaction, operation.digest)
        answer, record = self.judged(row, operation, now)
        if row is not None and record != row.record:
            self.lock_or_wait(transaction, operation.digest)
            self.write(transaction, operation.digest, record, wanted=row.wanted)
            return answer
        found = self.rows(transaction).get(operation.digest)
        return decided(operation, None if found is None else found.record)

    def count(self, transaction: Transaction, operation: CountFailure, now: int) -> Told:
        """A failure that left nothing behind. Only ever on a lane, and never for a key that somebody holds."""
        digest = operation.key.digest
        held = any(digest in other.held for other in self.open)
        row = self.committed.get(digest)
        if row is None and held:
            return StateMismatch(None)
        if row is not None and not held and any(digest in other.written for other in self.open):
            raise Waits  # the insert waits to see whether the row stays
        answer, record = self.judged(row, operation, now)
        if row is not None and record == row.record:
            return answer
        if row is not None and held:
            over = row.record.settled and row.record.expires_us <= now
            return StoreUnavailable("The record is held.") if over else StateMismatch(row.record)
        if self.locked(transaction, digest):
            raise Waits
        self.write(transaction, digest, record)
        return answer

    def erase(self, transaction: Transaction, operation: Erase, now: int) -> Told:
        """Erasing writes a new version even where nothing is left to erase."""
        row = self.owned_row(transaction, operation.digest)
        answer, record = self.judged(row, operation, now)
        if row is not None and isinstance(answer, Erased):
            self.lock_or_wait(transaction, operation.digest)
            self.write(transaction, operation.digest, record, wanted=row.wanted, erased_us=now)
        return answer

    def sweep(self, transaction: Transaction, operation: Purge | MarkLapsed, now: int) -> SweepCount | LapsedRecords:
        """Delete or mark what nobody has locked."""
        table = Table()
        rows = self.swept_rows(transaction, operation, now)
        for digest, row in rows.items():
            if not self.is_swept(row, operation, now):
                continue
            self.check(transaction, digest)
            if not self.locked(transaction, digest):
                table.records[digest] = row.record
        before = dict(table.records)
        answer = table.apply(operation, now)
        for digest, record in before.items():
            if table.records.get(digest) is not record:
                self.write(transaction, digest, table.records.get(digest), wanted=rows[digest].wanted)
        assert isinstance(answer, (SweepCount, LapsedRecords))
        return answer

    def is_swept(self, row: Row, operation: Purge | MarkLapsed, now: int) -> bool:
        """Whether this row is one of those that are deleted or marked."""
        return self.judged(row, operation, now)[0] not in (SweepCount(0), LapsedRecords(()))

    def swept_rows(self, transaction: Transaction, operation: Purge | MarkLapsed, now: int) -> Rows:
        """The rows that a sweep looks at."""
        del operation, now
        return self.rows(transaction)

    def tally(self, transaction: Transaction, operation: AddReplays, now: int) -> Recorded:
        """Count replays."""
        row = self.owned_row(transaction, operation.digest)
        if row is not None:
            self.lock_or_wait(transaction, operation.digest)
            _, record = self.judged(row, operation, now)
            self.write(transaction, operation.digest, record, wanted=row.wanted)
        return Recorded(now)
