"""What the models share of a server: committed rows, open transactions, and who may see, lock and write what.

What always holds: what becomes of a record is decided by the memory store's table, asked about the one version that
the statement may write. The model decides only which version that is, and whether it may be written now.
"""

from __future__ import annotations

from collections.abc import Hashable

from semel.core.operations import Answer, Operation
from semel.core.record import MOST_ENTRIES, Entry, StoredRecord, changes_of, erase_entries
from semel.errors import StoreUnavailable, TransactionAborted
from semel.stores.memory import Table
from semel_lab.simulate.models.transaction import Begin, Commit, Isolation, Rollback, Row, Rows, Session, Transaction

Act = Operation | Begin | Commit | Rollback
Told = Answer | Exception | None


class Waits(Exception):
    """The statement waits for a row that another transaction has locked, until it loses patience."""


class Conflict(Exception):
    """The row has changed since the snapshot was taken, and no statement of this transaction may write it."""


def entries_after(before: Row | None, record: StoredRecord, erased_us: int | None = None) -> tuple[Entry, ...]:
    """The history of a row that is written over another version of it."""
    same_life = before is not None and before.record.created_us == record.created_us
    known = before.entries if before is not None and same_life else ()
    if erased_us is not None:
        return erase_entries(record, known, erased_us)
    return (*known, *changes_of(before.record if before is not None else None, record, known))[-MOST_ENTRIES:]


class Database:
    """The committed rows and the open transactions."""

    def __init__(self) -> None:
        self.committed: Rows = {}
        self.effects: list[Hashable] = []
        self.waited = ""
        self.open: list[Transaction] = []
        self._stamps = 0

    def apply(self, session: Session, act: Act, now: int) -> Told:
        """Carry out `act` on this connection at the instant `now`. Errors are answers."""
        match act:
            case Begin():
                self.begin(session)
                return None
            case Commit():
                self.end(session, keep=True)
                return None
            case Rollback():
                self.end(session, keep=False)
                return None
        return self._joined(session, act, now) if session.joined else self._alone(act, now)

    def begin(self, session: Session) -> Transaction:
        """The open transaction of a caller, or a new one."""
        if session.transaction is None:
            assert session.isolation is not None
            session.begun += 1
            session.transaction = Transaction(f"{session.name}.{session.begun}", session.isolation)
            self.open.append(session.transaction)
        return session.transaction

    def end(self, session: Session, *, keep: bool) -> None:
        """Commit or roll back; an aborted one is rolled back either way."""
        transaction, session.transaction = session.transaction, None
        if transaction is None:
            return
        self.open.remove(transaction)
        if keep and not transaction.aborted:
            self._publish(transaction)

    def effect(self, session: Session, row: Hashable) -> None:
        """A row of the caller's own: it commits with the rest of its transaction."""
        transaction = self.begin(session)
        if not transaction.aborted:
            transaction.effects.append(row)

    def _publish(self, transaction: Transaction) -> None:
        self.effects += transaction.effects
        for digest, row in transaction.written.items():
            if row is None:
                self.committed.pop(digest, None)
            else:
                self.committed[digest] = row

    def _alone(self, operation: Operation, now: int) -> Told:
        """On a lane every statement is a transaction of its own."""
        transaction = Transaction("", Isolation.READ_COMMITTED)
        try:
            answer = self.perform(transaction, operation, now, joined=False)
        except Waits:
            self.waited = type(operation).__name__
            return StoreUnavailable("The row stayed locked.")
        self._publish(transaction)
        return answer

    def _joined(self, session: Session, operation: Operation, now: int) -> Told:
        transaction = self.begin(session)
        if transaction.aborted:
            return TransactionAborted("The transaction is aborted.")
        try:
            return self.perform(transaction, operation, now, joined=True)
        except (Waits, Conflict) as trouble:
            if isinstance(trouble, Waits):
                self.waited = type(operation).__name__
            return self.gave_up(transaction, trouble)

    def gave_up(self, transaction: Transaction, trouble: Waits | Conflict) -> Told:
        """What becomes of a caller's transaction in which a statement failed."""
        del trouble
        transaction.abort()
        return TransactionAborted("The transaction is aborted.")

    def rows(self, transaction: Transaction) -> Rows:
        """The rows that a plain reading of it finds."""
        seen = dict(self.committed if transaction.snapshot is None else transaction.snapshot)
        for digest, row in transaction.written.items():
            if row is None:
                seen.pop(digest, None)
            else:
                seen[digest] = row
        return seen

    def newest(self, transaction: Transaction, digest: bytes) -> Row | None:
        """The row as a write of it would find it: the last committed version, or its own."""
        return transaction.written[digest] if digest in transaction.written else self.committed.get(digest)

    def locked(self, transaction: Transaction, digest: bytes) -> bool:
        """Whether somebody else has locked the row."""
        return any(other.claims(digest) for other in self.open if other is not transaction)

    def hold(self, transaction: Transaction, digest: bytes) -> bool:
        """Take the key, if nobody else holds it."""
        if any(digest in other.held for other in self.open if other is not transaction):
            return False
        transaction.held.add(digest)
        return True

    def check(self, transaction: Transaction, digest: bytes) -> None:
        """Refuse to write what has changed since the snapshot.

        Raises:
            Conflict: it has.
        """

    def lock_or_wait(self, transaction: Transaction, digest: bytes) -> None:
        """Lock a row as a plain UPDATE does."""
        self.check(transaction, digest)
        if self.locked(transaction, digest):
            raise Waits
        transaction.locked.add(digest)

    def write(
        self,
        transaction: Transaction,
        digest: bytes,
        record: StoredRecord | None,
        *,
        wanted: bool = False,
        erased_us: int | None = None,
    ) -> None:
        """Write a version of a row, and with it what it leaves in the history."""
        before = self.newest(transaction, digest)
        self._stamps += 1
        row = None if record is None else Row(record, self._stamps, wanted, entries_after(before, record, erased_us))
        transaction.written[digest] = row

    def judged(self, row: Row | None, operation: Operation, now: int) -> tuple[Answer, StoredRecord | None]:
        """What the table makes of this version: its answer, and the record as it is then."""
        table = Table()
        if row is not None:
            table.records[row.record.key.digest] = row.record
        answer = table.apply(operation, now)
        return answer, next(iter(table.records.values()), None)

    def perform(self, transaction: Transaction, operation: Operation, now: int, *, joined: bool) -> Told:
        """Carry out one operation.

        Raises:
            Waits: a row is locked.
            Conflict: a row has changed since the snapshot.
        """
        raise NotImplementedError
