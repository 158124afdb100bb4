"""Mistakes one could make where callers bring transactions of their own, each as a switch that puts it in.

A mutant names the invariants that may give it away; it is looked for in every world of its server.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from semel.core.claim_rules import count_failure
from semel.core.operations import Checkpoint, Claim, Complete, CountFailure, Granted, JoinTransaction, TransactionJoined
from semel.core.record import StoredRecord
from semel.engine.call_flow import CallFlow
from semel.errors import StoreUnavailable
from semel.stores import memory
from semel.stores.mysql.dialect import gates_of
from semel_lab.simulate.models import MysqlModel, PostgresModel, Server, Session
from semel_lab.simulate.models.database import Database, Waits
from semel_lab.simulate.models.transaction import Rows, Transaction

Switch = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class WithinMutant:
    """A mistake, and the invariants it breaks."""

    name: str
    switch: Switch
    breaks: frozenset[str]
    servers: tuple[str, ...] = ("mysql", "postgresql")

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


WITHIN_MUTANTS: list[WithinMutant] = []


def mutant(name: str, *breaks: str, servers: tuple[str, ...] = ("mysql", "postgresql")) -> Callable[[Switch], Switch]:
    def add(switch: Switch) -> Switch:
        WITHIN_MUTANTS.append(WithinMutant(name, switch, frozenset(breaks), servers))
        return switch

    return add


def swapped(**changes: Callable[[Any], Any]) -> AbstractContextManager[Any]:
    """Methods of the models put in the place of the right ones, wherever they are written; each is given that one."""
    switches = ExitStack()
    for name, change in changes.items():
        for kind in (Database, Server, PostgresModel, MysqlModel):
            if name in vars(kind):
                switches.enter_context(patch.object(kind, name, change(vars(kind)[name])))
    return switches


def always(value: object) -> Callable[[Any], Any]:
    return lambda _right: lambda *_args: value


@mutant("a claim does not ask whether an open transaction holds the key", "W5", "broke")
def _() -> AbstractContextManager[Any]:
    return swapped(hold=always(True))


@mutant("a completion does not demand the transaction of the claim", "W2")
def _() -> AbstractContextManager[Any]:
    return swapped(demand=always(True))


@mutant("the arbiter does nothing where there is a row", "W4", "W5", "broke")
def _() -> AbstractContextManager[Any]:
    def change(right: Any) -> Any:
        def claim(self: Server, transaction: Transaction, claim: Claim, now: int, *, joined: bool) -> Any:
            before = dict(transaction.written)
            there = self.newest(transaction, claim.key.digest)
            answer = right(self, transaction, claim, now, joined=joined)
            if there is None or not isinstance(answer, Granted) or there.record.nonce == claim.nonce:
                return answer
            transaction.written = before
            return StoreUnavailable("no row came back")

        return claim

    return swapped(claim=change)


@mutant("the arbiter decides on the row it saw first", "W1", "W2")
def _() -> AbstractContextManager[Any]:
    def newest(_right: Any) -> Any:
        return lambda self, transaction, digest: self.rows(transaction).get(digest)

    return swapped(newest=newest, check=always(None))


@mutant("an entry is written outside the transaction of its record", "history")
def _() -> AbstractContextManager[Any]:
    def change(right: Any) -> Any:
        def write(self: Server, transaction: Transaction, digest: bytes, *args: Any, **settings: Any) -> None:
            right(self, transaction, digest, *args, **settings)
            row, there = transaction.written[digest], self.committed.get(digest)
            if row is not None and there is not None:
                self.committed[digest] = replace(there, entries=row.entries)

        return write

    return swapped(write=change)


@mutant("what is not committed is seen", "W1", "W2", "W3", "W4")
def _() -> AbstractContextManager[Any]:
    def change(right: Any) -> Any:
        def rows(self: Server, transaction: Transaction) -> Rows:
            dirty = {d: row for other in self.open for d, row in other.written.items() if row is not None}
            return {**right(self, transaction), **dirty}

        return rows

    return swapped(rows=change)


@mutant("the record is written beside the caller's transaction", "W2", "W3")
def _() -> AbstractContextManager[Any]:
    def change(right: Any) -> Any:
        def apply(self: Server, session: Session, act: Any, now: int) -> Any:
            if not session.joined or not isinstance(act, (Claim, Complete)):
                return right(self, session, act, now)
            if isinstance(act, Complete):
                act = replace(act, lease=replace(act.lease, transaction=""))
            return right(self, Session("beside"), act, now)

        return apply

    return swapped(apply=change)


@mutant("the completion is written beside the caller's transaction", "W2", "W3", "W5", "broke")
def _() -> AbstractContextManager[Any]:
    def change(right: Any) -> Any:
        def settle(self: Server, transaction: Transaction, operation: Any, now: int, *, joined: bool) -> Any:
            answer = right(self, transaction, operation, now, joined=joined)
            row = transaction.written.get(operation.lease.key.digest)
            if joined and isinstance(operation, Complete) and row is not None:
                self.committed[operation.lease.key.digest] = row
            return answer

        return settle

    return swapped(settle=change)


@mutant("a step locks its record and does not hold its key", "W5")
def _() -> AbstractContextManager[Any]:
    def change(right: Any) -> Any:
        def enter(self: Server, transaction: Transaction, operation: JoinTransaction) -> Any:
            transaction.held = _Nothing()
            return right(self, transaction, operation)

        return enter

    return swapped(enter=change)


class _Nothing(set[Hashable]):
    """A set that nothing stays in."""

    def add(self, element: Hashable) -> None:
        del element


@mutant("a step does not demand the lease", "W1", "W5")
def _() -> AbstractContextManager[Any]:
    def enter(_right: Any) -> Any:
        return lambda _self, transaction, _operation: TransactionJoined(transaction.name)

    def change(right: Any) -> Any:
        def settle(self: Server, transaction: Transaction, operation: Any, now: int, *, joined: bool) -> Any:
            row = self.newest(transaction, operation.lease.key.digest)
            if isinstance(operation, Checkpoint) and row is not None:
                operation = replace(operation, lease=row.record.lease)
            return right(self, transaction, operation, now, joined=joined)

        return settle

    return swapped(enter=enter, settle=change)


@mutant("a locked row is waited for", "W5", "broke")
def _() -> AbstractContextManager[Any]:
    def change(right: Any) -> Any:
        def locked(self: Server, transaction: Transaction, digest: bytes) -> bool:
            if right(self, transaction, digest):
                raise Waits
            return False

        return locked

    return swapped(locked=change, hold=always(True))


@mutant("a rollback keeps the record", "W2", "W3", "W4")
def _() -> AbstractContextManager[Any]:
    def change(right: Any) -> Any:
        def end(self: Server, session: Session, *, keep: bool) -> None:
            if session.transaction is not None and not keep:
                session.transaction.effects.clear()
            right(self, session, keep=True)

        return end

    return swapped(end=change)


@mutant("a failure is counted though an open transaction holds its key", "W6")
def _() -> AbstractContextManager[Any]:
    def change(_right: Any) -> Any:
        def count(self: Server, transaction: Transaction, operation: CountFailure, now: int) -> Any:
            answer, record = self.judged(self.committed.get(operation.key.digest), operation, now)
            self.write(transaction, operation.key.digest, record)
            return answer

        return count

    return swapped(count=change)


@mutant("a failure is counted by two", "W6")
def _() -> AbstractContextManager[Any]:
    def twice(record: StoredRecord | None, operation: CountFailure, now: int) -> StoredRecord | None:
        counted = count_failure(record, operation, now)
        return counted and replace(counted, attempts=counted.attempts + 1)

    return patch.object(memory, "count_failure", twice)


@mutant("a failure inside a transaction is not written down", "W4")
def _() -> AbstractContextManager[Any]:
    def failed(_self: CallFlow, _error: Exception) -> Generator[Any, Any, None]:
        return None
        yield

    return patch.object(CallFlow, "_failed", failed)


def _through_gates(partly: Callable[[MysqlModel, Transaction, bytes], bool]) -> AbstractContextManager[Any]:
    """Another answer where some gates of the first turn are free, and some are not."""

    def change(right: Any) -> Any:
        def hold(self: MysqlModel, transaction: Transaction, digest: bytes) -> bool:
            others = {gate for other in self.open if other is not transaction for gate in other.held}
            gates = set(gates_of(digest, 0))
            transaction.held |= gates - others
            met = gates & others
            return partly(self, transaction, digest) if met and met != gates else right(self, transaction, digest)

        return hold

    return patch.object(MysqlModel, "hold", change(MysqlModel.hold))


@mutant("a gate that another key holds is taken for the key", "W7", servers=("mysql",))
def _() -> AbstractContextManager[Any]:
    return _through_gates(lambda _self, _transaction, _digest: False)


@mutant("whoever gets one gate goes on without those of the next turn", "W5", servers=("mysql",))
def _() -> AbstractContextManager[Any]:
    return _through_gates(lambda _self, _transaction, _digest: True)


@mutant("gates of the next turn are looked at and not held", "W5", servers=("mysql",))
def _() -> AbstractContextManager[Any]:
    def partly(self: MysqlModel, transaction: Transaction, digest: bytes) -> bool:
        others = {gate for other in self.open if other is not transaction for gate in other.held}
        return not others & set(gates_of(digest, 1))

    return _through_gates(partly)
