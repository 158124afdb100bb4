"""Transactions of a world of batches: what an item or a page wrote is there after the commit, and nothing before.

What always holds: the record of a page is held by the transaction that has entered it, and nobody else is granted it.
"""

from __future__ import annotations

from semel.core.batch.operations import CommitPage, FinishPage, ItemsSettled
from semel.core.operations import Answer, Complete, JoinTransaction, Lost, Operation, Recorded, TransactionJoined
from semel.core.record import Lease
from semel_lab.simulate.events.database import Database, Session

NAME = "simulated"


class Commit:
    """What a process wants at the end of its transaction."""

    __slots__ = ("session",)

    def __init__(self, session: Session) -> None:
        self.session = session


class BatchDatabase(Database):
    """Records, batches and effects, with transactions that may commit a page."""

    def __init__(self) -> None:
        super().__init__()
        self._pages: dict[Session, CommitPage] = {}

    def apply_in(self, session: Session, operation: Operation) -> Answer:
        """Carry out one operation in a transaction."""
        if isinstance(operation, JoinTransaction):
            return self._enter(session, operation.lease)
        if isinstance(operation, CommitPage):
            answer = super().apply_in(session, Complete(operation.lease, operation.outcome))
            if isinstance(answer, Recorded):
                self._pages[session] = operation
            return ItemsSettled((answer,))
        return super().apply_in(session, operation)

    def _enter(self, session: Session, lease: Lease) -> TransactionJoined | Lost:
        record = self.table.records.get(lease.key.digest)
        is_own = record is not None and (record.nonce, record.fence) == (lease.nonce, lease.fence)
        if not is_own or self._is_held(lease.key.digest, session):
            return Lost()
        session.keys.add(lease.key.digest)
        return TransactionJoined(NAME)

    def commit(self, session: Session) -> None:
        """Let everybody see what a transaction wrote; rows and counts of its page with it."""
        page = self._pages.pop(session, None)
        super().commit(session)
        if page is not None:
            self.table.batches.settle(page.number, page.page.page, page.ends, self.now_us)
            self.table.apply(FinishPage(page.number, page.page.page, page.page.round), self.now_us)

    def roll_back(self, session: Session) -> None:
        """End a transaction, and let go of its keys."""
        self._pages.pop(session, None)
        super().roll_back(session)
