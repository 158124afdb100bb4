"""What must hold of searching and counting: exactly the records are found whose last claim said what is asked for.

What is expected is told from the claims that were sent, not from the records, nor from the rows that lead to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from semel.core.operations import CountRecords, Query, Scan, SkipRecords
from semel.core.record import About, Count, StoredRecord
from semel_lab.simulate.checks.violation import Violation

SEARCHED_SCOPES: Final = (None, "a", "b")
SHARED_SCOPE: Final = ""
_PAGE: Final = 10


class Known(NamedTuple):
    """A record that is there, in which scope it was claimed, and what its last claim said."""

    record: StoredRecord
    scope: str
    about: About


def check_search(
    known: Iterable[Known], said: Iterable[About], ask: Callable[[Any], Any], *, skips: bool = True
) -> None:
    """Search by everything that anybody has said, in every scope, and count; `ask` has the store answer.

    `skips`: the store can also tell how far so many records reach.
    """
    there = sorted(known, key=lambda one: (one.record.created_us, one.record.key.digest))
    for query in (*_queries(said), *_leaving_out(there)):
        expected = tuple(one.record for one in there if _fits(one, query))
        found = ask(Scan(query, None, _PAGE)).records
        if [one.nonce for one in found] != [one.nonce for one in expected]:
            raise Violation("search", f"{_told(query)} finds {len(found)} records, and should find {len(expected)}")
        backwards = ask(Scan(replace(query, newest_first=True), None, _PAGE)).records
        if [one.nonce for one in backwards] != [one.nonce for one in reversed(expected)]:
            raise Violation("search", f"{_told(query)} finds other records, or in another order, newest first")
        _check_count(query, expected, ask)
        if skips and query.subject is not None:
            _check_reach(query, [one.created_us for one in expected], ask)
    if skips:
        _check_reach(Query(scan=True), [one.record.created_us for one in there], ask)
    _check_count(Query(scan=True), tuple(one.record for one in there), ask)


def _check_count(query: Query, expected: tuple[StoredRecord, ...], ask: Callable[[Any], Any]) -> None:
    numbers = Counter((record.key.operation, record.status) for record in expected)
    counts = {Count(operation, status, number) for (operation, status), number in numbers.items()}
    found = ask(CountRecords(query)).counts
    if set(found) != counts or len(found) != len(counts):
        raise Violation("count", f"{_told(query)} counts {found}, and should count {tuple(counts)}")


def _check_reach(query: Query, instants: list[int], ask: Callable[[Any], Any]) -> None:
    """How far so many records reach, from either end, and that there are not more of them."""
    for number in (0, max(len(instants) - 1, 0), len(instants)):
        for newest_first in (False, True):
            there = instants[::-1] if newest_first else instants
            expected = there[number] if number < len(there) else None
            found = ask(SkipRecords(replace(query, newest_first=newest_first), number)).created_us
            if found != expected:
                raise Violation("reach", f"{_told(query)} reaches {found} with {number}, and should reach {expected}")


def _queries(said: Iterable[About]) -> Iterator[Query]:
    subjects = sorted({about.subject for about in said if about.subject is not None})
    tags = sorted({tag for about in said for tag in about.tags.items()})
    for scope in SEARCHED_SCOPES:
        for subject in subjects:
            yield Query(subject=subject, scope=scope)
        for tag in tags:
            yield Query(tag=tag, scope=scope, scan=True)


def _leaving_out(there: Iterable[Known]) -> Iterator[Query]:
    """Everything but what was erased, also where that is found now, and everything but one operation."""
    for scope in (None, SHARED_SCOPE):
        yield Query(hides_erased=True, scope=scope, scan=True)
    for operation in sorted({one.record.key.operation for one in there})[:1]:
        yield Query(without_operation=operation, scan=True)


def _fits(one: Known, query: Query) -> bool:
    if query.scope not in (None, one.scope) or (query.hides_erased and one.record.erased):
        return False
    if one.record.key.operation == query.without_operation:
        return False
    if query.subject is not None:
        return one.about.subject == query.subject
    return query.tag is None or one.about.tags.get(query.tag[0]) == query.tag[1]


def _told(query: Query) -> str:
    return f"a search for {query.subject or query.tag or 'anything'} in the scope {query.scope or 'of anybody'}"
