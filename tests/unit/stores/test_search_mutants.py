"""Mistakes one could make in searching, each put in and noticed: by what a search shows, or by the rows it goes by.

Random operations on the SQLite store are compared with the memory table, which searches the records themselves. One
mistake that nobody notices means that the comparison proves less than it claims.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from semel.core.operations import Claim, CountRecords, Purge, Query, Scan, SkipRecords
from semel.core.record import About, Status
from semel.stores import search
from semel.stores.memory import Table
from semel.stores.search import term_numbers
from semel.stores.sqlite import dialect, plan
from tests.unit.stores.kit import Asker, opened
from tests.unit.stores.operations import ABOUTS, SECOND, START, Sequences

SEEDS: Final = range(12)
ROWS: Final = "SELECT digest, term, created_us, scope FROM semel_search ORDER BY digest, term"
QUERIES: Final = (
    *(Query(subject=about.subject) for about in ABOUTS if about.subject),
    *(
        Query(requester=about.requester, scope=scope)
        for about in ABOUTS
        if about.requester
        for scope in ("tenant-0", "")
    ),
    *(Query(tag=tag) for about in ABOUTS for tag in about.tags.items()),
    Query(process_instance="p-2", scope="tenant-1"),
    Query(business_key="b-1", status=Status.COMPLETED),
    Query(stuck=True),
    Query(subject="ann", stuck=True),
    Query(hides_erased=True),
    Query(scope="", hides_erased=True),
    Query(without_operation="charge"),
)
Switch = Callable[[], AbstractContextManager[Any]]


def is_different(path: Path) -> bool:
    """Whether a search, a count, or the rows differ from what the records say, after any of many operations."""
    with opened(path) as asker:
        return any(_differs(asker, seed) for seed in SEEDS)


def _differs(asker: Asker, seed: int) -> bool:
    for name in ("semel_record", "semel_step", "semel_search"):
        asker.writer().execute(f"DELETE FROM {name}")  # noqa: S608 - the names above
    asker.clock.now = START
    table, sequences, dice = Table(), Sequences(seed), random.Random(seed)
    for passing, operation in chain(sequences.steps(40), [(10_000, Purge(100))]):
        asker.clock.now += int(passing * SECOND)
        sequences.learn(table.apply(operation, asker.clock.now))
        asker.all([operation])
        query = dice.choice(QUERIES)
        searches: tuple[Scan | CountRecords | SkipRecords, ...] = (
            Scan(query, None, 10),
            CountRecords(query),
            *_reaches(query),
        )
        for asked in searches:
            if asker.all([asked]) != [table.apply(asked, asker.clock.now)]:
                return True
        if asker.writer().execute(ROWS).fetchall() != _rows(table):
            return True
    return False


def _reaches(query: Query) -> tuple[SkipRecords, ...]:
    return SkipRecords(query, 1), SkipRecords(replace(query, newest_first=True), 1)


def _rows(table: Table) -> list[tuple[bytes, int, int, str]]:
    return sorted(
        (record.key.digest, number, record.created_us, record.key.scope)
        for record in table.records.values()
        for number in term_numbers(record.about)
    )


def statement(name: str, old: str, new: str) -> Switch:
    """Another text for one statement."""
    assert old in dialect.SQL[name], f"{name} does not say {old}"
    return lambda: patch.dict(dialect.SQL, {name: dialect.SQL[name].replace(old, new)})


def _without_first_value() -> AbstractContextManager[Any]:
    def numbers(about: About) -> list[int]:
        return term_numbers(about)[1:]

    both = ExitStack()
    both.enter_context(patch.object(plan, "term_numbers", numbers))
    both.enter_context(patch.object(dialect, "term_numbers", numbers))
    return both


def _with_what_was_said_before() -> AbstractContextManager[Any]:
    keep = plan.keep_terms

    def never_drop(claim: Claim, *, drops: bool = False) -> Any:
        del drops
        return keep(claim)

    return patch.object(plan, "keep_terms", never_drop)


def _without_the_scope() -> AbstractContextManager[Any]:
    place = search._Conditions.add_place

    def anywhere(self: Any, query: Query, cursor: Any) -> None:
        place(self, Query() if query.scope is None else _nowhere(query), cursor)

    return patch.object(search._Conditions, "add_place", anywhere)


def _nowhere(query: Query) -> Query:
    return Query(before_us=query.before_us, after_us=query.after_us, reference=query.reference)


def _add_no_term(_self: Any, _query: Query) -> None:
    """A search that is led by nothing."""


def _by_number_alone() -> AbstractContextManager[Any]:
    """Many values have one number, and the texts are not compared."""
    one = ExitStack()
    one.enter_context(patch.object(search._Conditions, "add_texts", lambda self, query: None))
    return one


def _asking_otherwise(**changes: Any) -> Switch:
    """Some of what is asked for is forgotten."""
    select = search.select_records

    def forget(query: Query, cursor: Any, wording: Any) -> Any:
        return select(replace(query, **changes), cursor, wording)

    return lambda: patch.object(dialect, "select_records", forget)


MUTANTS: Final[dict[str, Switch]] = {
    "a value is not kept": _without_first_value,
    "rows are left after a sweep": statement("purge", " IS NOT NULL", " IS NULL"),
    "rows are left after erasing": lambda: patch.object(dialect, "_FORGET", dialect._FORGET[:1]),
    "rows are left after a new claim": _with_what_was_said_before,
    "the scope is not compared": _without_the_scope,
    "the texts are not compared": _by_number_alone,
    "rows of a counted failure are not kept": lambda: patch.object(dialect, "term_numbers", lambda about: []),
    "a live lease is stuck": lambda: patch.object(
        dialect, "_WORDING", search.Wording(dialect._WORDING.mark, "(:now + 10000000000)", "instr")
    ),
    "what was erased is not left out": _asking_otherwise(hides_erased=False),
    "an operation is not left out": _asking_otherwise(without_operation=None),
    "a reach counts from one": statement("skip_s", "OFFSET :number", "OFFSET :number - 1"),
    "a reach is told from the other end": lambda: patch.object(
        search.Selection, "order_by_time", property(lambda self: f"{self.row}.created_us")
    ),
    "a reach counts other values": lambda: patch.object(search._Conditions, "add_term", _add_no_term),
    "a reach counts other scopes": _without_the_scope,
    "every count is one": statement("count_records", "count(*)", "1"),
}


def test_without_a_mistake_nothing_differs(path: Path) -> None:
    assert not is_different(path)


@pytest.mark.parametrize("switch", MUTANTS.values(), ids=MUTANTS)
def test_a_mistake_is_noticed(path: Path, switch: Switch) -> None:
    with switch():
        assert is_different(path)
