"""Mistakes one could make where records are searched and counted, as switches.

Those of the rows beside a record are put into the models of the servers, with callers in transactions of their own;
those of the records themselves into the memory store, with sweeps, erasures and counted failures.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace as with_changes
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from semel.core.claim_rules import count_failure
from semel.core.operations import Claim, CountFailure, CountRecords, Query, Scan, SkipRecords
from semel.core.record import StoredRecord, erase_record
from semel.stores import memory
from semel.stores.dynamodb import items
from semel.stores.dynamodb.items import search_attribute
from semel.stores.memory import Table
from semel.stores.search import count_records, matches
from semel_lab.simulate import SERVER_WORLDS, SMALL, World
from semel_lab.simulate.models import Server
from semel_lab.simulate.models.database import search_rows_of
from semel_lab.simulate.models.transaction import Transaction
from tests.simulate.mutants import Mutant
from tests.simulate.within_mutants import WithinMutant, swapped

SEARCH_ROW_MUTANTS: list[WithinMutant] = []
Switch = Callable[[], AbstractContextManager[Any]]
Keep = Callable[[Server, Transaction, bytes, StoredRecord | None], None]
BOTH = ("mysql", "postgresql")
BY_NAME = {world.name: world for world in (*SMALL, *SERVER_WORLDS)}


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


@mutant("how far records reach is told of all scopes", "reach")
def _() -> AbstractContextManager[Any]:
    def change(_self: Server, operation: Any) -> Query:
        found: Query = operation.query
        return replace(found, scope=None) if isinstance(operation, SkipRecords) else found

    return finding(change)


SEARCH_MUTANTS: list[Mutant] = []


def record_mutant(name: str, worlds: str | World, *breaks: str) -> Callable[[Switch], Switch]:
    def add(switch: Switch) -> Switch:
        chosen = (worlds,) if isinstance(worlds, World) else tuple(BY_NAME[world] for world in worlds.split("; "))
        SEARCH_MUTANTS.append(Mutant(name, switch, chosen, frozenset(breaks)))
        return switch

    return add


@record_mutant("a take-over keeps what the claim before said", "searched", "search")
def _() -> AbstractContextManager[Any]:
    right = Table._again

    def again(self: Table, claim: Claim, now: int, seen: StoredRecord | None) -> StoredRecord:
        record = right(self, claim, now, seen)
        return record if seen is None else replace(record, about=seen.about)

    return patch.object(Table, "_again", again)


@record_mutant("a next life keeps what was said in the one before", "searched and purged", "search")
def _() -> AbstractContextManager[Any]:
    right = Table._fresh

    def fresh(self: Table, claim: Claim, now: int, expired: StoredRecord | None) -> StoredRecord:
        record = right(self, claim, now, expired)
        return record if expired is None else replace(record, about=expired.about)

    return patch.object(Table, "_fresh", fresh)


@record_mutant("erasing leaves what a record is about", "searched and erased", "search")
def _() -> AbstractContextManager[Any]:
    return patch.object(
        memory, "erase_record", lambda record, note: replace(erase_record(record, note), about=record.about)
    )


@record_mutant("erasing leaves the scope that a record is searched in", "searched and erased", "search", "count")
def _() -> AbstractContextManager[Any]:
    def erase(record: StoredRecord, note: str) -> StoredRecord:
        left = erase_record(record, note)
        shown = replace(left.key, scope=record.key.scope)
        return replace(left, key=shown, about=record.about)

    return patch.object(memory, "erase_record", erase)


@record_mutant("a counted failure says anew what its record is about", "searched and counted", "search")
def _() -> AbstractContextManager[Any]:
    def count(record: StoredRecord | None, operation: CountFailure, now: int) -> StoredRecord | None:
        counted = count_failure(record, operation, now)
        return None if counted is None else replace(counted, about=operation.about)

    return patch.object(memory, "count_failure", count)


@record_mutant("records of another scope are found", "searched in two scopes", "search", "count")
def _() -> AbstractContextManager[Any]:
    return patch.object(memory, "matches", lambda record, query, now: matches(record, replace(query, scope=None), now))


@record_mutant("what was erased is found where it is to be left out", "searched and erased", "search", "count")
def _() -> AbstractContextManager[Any]:
    return patch.object(
        memory, "matches", lambda record, query, now: matches(record, replace(query, hides_erased=False), now)
    )


@record_mutant("an operation is found that is to be left out", "searched", "search", "count")
def _() -> AbstractContextManager[Any]:
    return patch.object(
        memory, "matches", lambda record, query, now: matches(record, replace(query, without_operation=None), now)
    )


@record_mutant("what is not searched by is found as well", "searched", "search")
def _() -> AbstractContextManager[Any]:
    return patch.object(
        memory, "matches", lambda record, query, now: matches(record, replace(query, subject=None), now)
    )


STALLING = with_changes(BY_NAME["searched and purged"], faults=("stall",), budget=1, stall=1.2)


@record_mutant("how far records reach counts one too many", "searched", "reach")
def _() -> AbstractContextManager[Any]:
    right = Table.look

    def look(self: Table, operation: Any, now: int) -> Any:
        if isinstance(operation, SkipRecords):
            operation = SkipRecords(operation.query, operation.number + 1)
        return right(self, operation, now)

    return patch.object(Table, "look", look)


@record_mutant("a count leaves out what has expired and is still there", STALLING, "count")
def _() -> AbstractContextManager[Any]:
    def look(self: Table, operation: Any, now: int) -> Any:
        answer = right(self, operation, now)
        if not isinstance(operation, CountRecords):
            return answer
        there = (record for record in self.records.values() if not record.settled or record.expires_us > now)
        return count_records(record for record in there if matches(record, operation.query, now))

    right = Table.look
    return patch.object(Table, "look", look)


@record_mutant("a count counts what was swept", "searched and purged", "count")
def _() -> AbstractContextManager[Any]:
    right_purge, right_look, gone = Table.purge, Table.look, "swept"

    def purge(self: Table, limit: int, now: int) -> Any:
        before = dict(self.records)
        answer = right_purge(self, limit, now)
        self.__dict__[gone] = [record for digest, record in before.items() if digest not in self.records]
        return answer

    def look(self: Table, operation: Any, now: int) -> Any:
        if not isinstance(operation, CountRecords):
            return right_look(self, operation, now)
        every = [*self.records.values(), *self.__dict__.get(gone, ())]
        return count_records(record for record in every if matches(record, operation.query, now))

    switches = ExitStack()
    switches.enter_context(patch.object(Table, "purge", purge))
    switches.enter_context(patch.object(Table, "look", look))
    return switches


@record_mutant("dynamodb: an item keeps the numbers of what was said before", "dynamodb, searched", "search")
def _() -> AbstractContextManager[Any]:
    return patch.object(
        items, "_search_values", lambda about: {search_attribute("subject"): 7} if about.subject else {}
    )
