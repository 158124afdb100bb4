"""What the models share of a server: committed rows, open transactions, and who may see, lock and write what.

What always holds: what becomes of a record is decided by the memory store's table, asked about the one version that
the statement may write. The model decides only which version that is, and whether it may be written now.
"""

from __future__ import annotations

from collections.abc import Hashable

from semel.core.operations import Answer, CountRecords, Counts, Operation, Page, Query, Scan, SkippedTo, SkipRecords
from semel.core.record import MOST_ENTRIES, Entry, StoredRecord, changes_of, erase_entries
from semel.errors import StoreUnavailable, TransactionAborted
from semel.stores.memory import Table
from semel.stores.search import term_number, term_numbers
from semel_lab.simulate.models.transaction import (
    Begin,
    Commit,
    Isolation,
    Rollback,
    Row,
    Rows,
    SearchRow,
    SearchRows,
    Session,
    Transaction,
)

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


def search_rows_of(record: StoredRecord | None) -> frozenset[SearchRow]:
    """The rows by which a record is found: one for each value that its claim said it is about."""
    if record is None:
        return frozenset()
    place = record.created_us, record.key.scope
    return frozenset(SearchRow(number, *place) for number in term_numbers(record.about))


def _is_said_anew(before: StoredRecord | None, after: StoredRecord | None) -> bool:
    """Whether a write changes what a record is about, or in which life of its key that was said."""
    if before is None or after is None:
        return True
    return (before.about, before.created_us) != (after.about, after.created_us)


class Database:
    """The committed rows and the open transactions."""

    def __init__(self) -> None:
        self.committed: Rows = {}
        self.search: SearchRows = {}
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
        for digest, kept in transaction.written_search.items():
            if kept:
                self.search[digest] = kept
            else:
                self.search.pop(digest, None)

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

    def take_snapshot(self, transaction: Transaction) -> None:
        """What a repeatable reader sees from here on."""
        transaction.snapshot, transaction.snapshot_search = dict(self.committed), dict(self.search)

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
        if _is_said_anew(None if before is None else before.record, record):
            self.keep_terms(transaction, digest, record)

    def search_rows(self, transaction: Transaction, digest: bytes) -> frozenset[SearchRow]:
        """The rows beside a record that a write of them would find: the last committed ones, or its own."""
        own = transaction.written_search.get(digest)
        return self.search.get(digest, frozenset()) if own is None else own

    def keep_terms(self, transaction: Transaction, digest: bytes, record: StoredRecord | None) -> None:
        """Keep what a record is searched by in the same transaction, and nothing that was said of it before."""
        transaction.written_search[digest] = search_rows_of(record)

    def find(
        self, transaction: Transaction, operation: Scan | CountRecords | SkipRecords, now: int
    ) -> Page | Counts | SkippedTo:
        """Go by the rows of a searched value, where the query has one; what fits, the records themselves decide."""
        table = Table()
        for digest, row in self.rows(transaction).items():
            if self.leads_to(transaction, operation.query, row.record):
                table.records[digest] = row.record
        answer = table.apply(operation, now)
        assert isinstance(answer, (Page, Counts, SkippedTo))
        return answer

    def leads_to(self, transaction: Transaction, query: Query, record: StoredRecord) -> bool:
        """Whether a row of the first searched value, of this life and in the scope asked for, leads to a record."""
        if not query.terms:
            return True
        term, rows = term_number(query.terms[0]), self.search_rows(transaction, record.key.digest)
        return any(
            row.term == term
            and row.created_us == record.created_us
            and (query.scope is None or row.scope == query.scope)
            for row in rows
        )

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
