"""PostgreSQL with the statements of `stores/postgresql`: a key is held by an advisory lock, a row by SKIP LOCKED.

What always holds: under REPEATABLE READ a row that was changed since the snapshot cannot be written (40001), and the
transaction that tried is aborted at once, with its locks; it stays unusable until it is rolled back.
"""

from __future__ import annotations

from semel.core.operations import MarkLapsed, Operation, Purge, Read
from semel.core.record import Status
from semel_lab.simulate.models.database import Conflict, Told
from semel_lab.simulate.models.server import Server
from semel_lab.simulate.models.transaction import Isolation, Rows, Transaction


class PostgresModel(Server):
    """A PostgreSQL server."""

    def perform(self, transaction: Transaction, operation: Operation, now: int, *, joined: bool) -> Told:
        """Carry out one operation; the first one of a repeatable reader takes its snapshot."""
        if transaction.isolation is Isolation.REPEATABLE_READ and transaction.snapshot is None:
            self.take_snapshot(transaction)
        return super().perform(transaction, operation, now, joined=joined)

    def check(self, transaction: Transaction, digest: bytes) -> None:
        """A version that the snapshot does not have cannot be written, not even by the arbiter."""
        if digest in transaction.written or transaction.snapshot is None:
            return
        newest, known = self.committed.get(digest), transaction.snapshot.get(digest)
        if newest != known:
            raise Conflict

    def read(self, transaction: Transaction, operation: Read, now: int) -> Told:
        """Look a record up; whoever waits for its end first says so in the row, if it is free."""
        row = self.rows(transaction).get(operation.digest)
        if operation.waits and row is not None and row.record.status is Status.RUNNING and not row.wanted:
            self.check(transaction, operation.digest)
            if not self.locked(transaction, operation.digest):
                self.write(transaction, operation.digest, row.record, wanted=True)
        return super().read(transaction, operation, now)

    def swept_rows(self, transaction: Transaction, operation: Purge | MarkLapsed, now: int) -> Rows:
        """What the snapshot shows, others have deleted and this transaction has written anew is there twice."""
        for digest, row in (transaction.snapshot or {}).items():
            hidden = digest in transaction.written and digest not in self.committed
            if hidden and self.is_swept(row, operation, now):
                raise Conflict
        return super().swept_rows(transaction, operation, now)
