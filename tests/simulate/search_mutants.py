"""Mistakes one could make where records are searched and counted, as switches.

Those of the rows beside a record are put into the models of the servers, with callers in transactions of their own;
those of the records themselves into the memory store, with sweeps, erasures and counted failures.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from semel.core.operations import CountRecords, Query, Scan
from semel.core.record import StoredRecord
from semel_lab.simulate.models import Server
from semel_lab.simulate.models.database import search_rows_of
from semel_lab.simulate.models.transaction import Transaction
from tests.simulate.within_mutants import WithinMutant, swapped

SEARCH_ROW_MUTANTS: list[WithinMutant] = []
Switch = Callable[[], AbstractContextManager[Any]]
Keep = Callable[[Server, Transaction, bytes, StoredRecord | None], None]
BOTH = ("mysql", "postgresql")


def mutant(name: str, *breaks: str, servers: tuple[str, ...] = BOTH) -> Callable[[Switch], Switch]:
    def add(switch: Switch) -> Switch:
        SEARCH_ROW_MUTANTS.append(WithinMutant(name, switch, frozenset(breaks), servers))
        return switch

    return add


def keeping(change: Callable[[Keep], Keep]) -> AbstractContextManager[Any]:
    """Rows that are kept otherwise than they should be."""
    return swapped(keep_terms=change)


def keeping_unless(is_left_out: Callable[[Server, bytes, StoredRecord | None], bool]) -> AbstractContextManager[Any]:
    """Rows that stay as they are where they should be written."""

    def change(right: Keep) -> Keep:
        def keep(self: Server, transaction: Transaction, digest: bytes, record: StoredRecord | None) -> None:
            if not is_left_out(self, digest, record):
                right(self, transaction, digest, record)

        return keep

    return keeping(change)


@mutant("rows of searched values are written outside the transaction of the claim", "search")
def _() -> AbstractContextManager[Any]:
    def change(_right: Keep) -> Keep:
        def keep(self: Server, _transaction: Transaction, digest: bytes, record: StoredRecord | None) -> None:
            self.search[digest] = search_rows_of(record)

        return keep

    return keeping(change)


@mutant("rows of searched values are left when their record is deleted", "search")
def _() -> AbstractContextManager[Any]:
    return keeping_unless(lambda _self, _digest, record: record is None)


@mutant("rows of searched values are left when their record is erased", "search", servers=("postgresql",))
def _() -> AbstractContextManager[Any]:
    return keeping_unless(lambda _self, _digest, record: record is not None and record.erased)


@mutant("a record that is claimed again has the rows of the claim before", "search")
def _() -> AbstractContextManager[Any]:
    return keeping_unless(lambda self, digest, record: record is not None and digest in self.search)


@mutant("a counted failure has no rows of searched values", "search")
def _() -> AbstractContextManager[Any]:
    return keeping_unless(lambda _self, _digest, record: record is not None and record.settled)


def keeping_other_rows(change: Callable[[Any], Any]) -> AbstractContextManager[Any]:
    def changed(right: Keep) -> Keep:
        def keep(self: Server, transaction: Transaction, digest: bytes, record: StoredRecord | None) -> None:
            right(self, transaction, digest, record)
            transaction.written_search[digest] = frozenset(change(sorted(transaction.written_search[digest])))

        return keep

    return keeping(changed)


@mutant("one searched value of several is not kept", "search")
def _() -> AbstractContextManager[Any]:
    return keeping_other_rows(lambda rows: rows[1:])


@mutant("rows of searched values are of another scope", "search")
def _() -> AbstractContextManager[Any]:
    return keeping_other_rows(lambda rows: [row._replace(scope="b") for row in rows])


@mutant("rows of searched values are of a life before", "search")
def _() -> AbstractContextManager[Any]:
    return keeping_other_rows(lambda rows: [row._replace(created_us=row.created_us - 1) for row in rows])


def finding(change: Callable[[Server, Any], Any]) -> AbstractContextManager[Any]:
    """A search for something else than what was asked for."""

    def changed(right: Any) -> Any:
        def find(self: Server, transaction: Transaction, operation: Any, now: int) -> Any:
            return right(self, transaction, replace(operation, query=change(self, operation)), now)

        return find

    return swapped(find=changed)


@mutant("a search does not compare the scope", "search", "count")
def _() -> AbstractContextManager[Any]:
    return finding(lambda _self, operation: replace(operation.query, scope=None))


@mutant("a count does not compare what is searched for", "count")
def _() -> AbstractContextManager[Any]:
    def change(_self: Server, operation: Scan | CountRecords) -> Query:
        return Query() if isinstance(operation, CountRecords) else operation.query

    return finding(change)


@mutant("a count counts what is not committed", "count")
def _() -> AbstractContextManager[Any]:
    def change(right: Any) -> Any:
        def find(self: Server, transaction: Transaction, operation: Any, now: int) -> Any:
            if isinstance(operation, CountRecords) and self.open:
                transaction = self.open[0]
            return right(self, transaction, operation, now)

        return find

    return swapped(find=change)
