"""Finding records: which of them fit a query, in Python and in SQL, and the numbers that searched values are kept by.

- A value that a record is found by is kept beside it as a number, from its digest. It only leads to candidates: the
  texts in the record itself decide, and so does its scope, so that two values with one number show nobody anything.
- The conditions of a list query are composed of fixed texts, one per restriction; values are always bound.
- Pages follow the order of creation, then of digests, whichever way the records are found; or that order backwards.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from semel.core.claim_rules import is_stuck
from semel.core.key import is_internal
from semel.core.operations import Counts, Query, SkippedTo, SkipRecords
from semel.core.record import About, Count, Status, StoredRecord, Term
from semel.stores.rows import storable

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_TAGS: Final = msgspec.json.Encoder().encode


def term_number(term: Term) -> int:
    """The number that a searched value is kept by: 64 bits with a sign."""
    digest = hashlib.sha256(_ENCODE((term.kind, storable(term.name), storable(term.value)))).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def term_numbers(about: About) -> list[int]:
    """What a record of this kind is found by, each number once, in rising order."""
    return sorted({term_number(term) for term in about.terms()})


Cursor = tuple[int, bytes]
"""Where a record stands in the order of pages: its creation instant and its digest."""


def place_of(record: StoredRecord) -> Cursor:
    """Where a record stands in the order of pages."""
    return record.created_us, record.key.digest


def after(record: StoredRecord, cursor: Cursor | None, query: Query) -> bool:
    """Whether a record comes after a cursor, in the order of the query."""
    return cursor is None or is_after(place_of(record), cursor, query)


def is_after(place: Cursor, cursor: Cursor, query: Query) -> bool:
    """Whether one place comes after another, in the order of the query."""
    return place < cursor if query.newest_first else place > cursor


def first_page(records: Iterable[StoredRecord], query: Query, limit: int) -> tuple[list[StoredRecord], Cursor | None]:
    """The first so many of some records, in the order of the query, and the cursor behind them; None: those are all."""
    ordered = sorted(records, key=place_of, reverse=query.newest_first)
    page = ordered[:limit]
    return page, place_of(page[-1]) if len(ordered) > limit else None


def matches(record: StoredRecord, query: Query, now: int) -> bool:
    """Whether a record is among those asked for."""
    about = record.about
    tests: tuple[tuple[object, Callable[[], bool]], ...] = (
        (query.status, lambda: record.status is query.status),
        (query.operation, lambda: record.key.operation == query.operation),
        (query.scope, lambda: record.key.scope == query.scope),
        (query.before_us, lambda: record.created_us < (query.before_us or 0)),
        (query.after_us, lambda: record.created_us >= (query.after_us or 0)),
        (query.process_instance, lambda: about.process_instance == query.process_instance),
        (query.business_key, lambda: about.business_key == query.business_key),
        (query.subject, lambda: about.subject == query.subject),
        (query.requester, lambda: about.requester == query.requester),
        (query.tag, lambda: query.tag is not None and about.tags.get(query.tag[0]) == query.tag[1]),
        (query.reference, lambda: record.reference.startswith(query.reference or "")),
        (query.stuck or None, lambda: is_stuck(record, now)),
        (query.hides_internal or None, lambda: not is_internal(record.key.operation)),
        (query.hides_erased or None, lambda: not record.erased),
        (query.without_operation, lambda: record.key.operation != query.without_operation),
    )
    return all(wanted is None or holds() for wanted, holds in tests)


def count_records(records: Iterable[StoredRecord]) -> Counts:
    """How many there are of each operation and status."""
    found = Counter((record.key.operation, record.status.value) for record in records)
    return counts_of((operation, status, number) for (operation, status), number in found.items())


def counts_of(rows: Iterable[tuple[str, str, int]]) -> Counts:
    """The answer that rows of operation, status and number stand for."""
    return Counts(tuple(Count(operation, Status(status), number) for operation, status, number in sorted(rows)))


def skip_records(records: Iterable[StoredRecord], operation: SkipRecords) -> SkippedTo:
    """The instant so many places on, by what the records themselves say."""
    query = operation.query
    numbers = {term_number(term) for term in query.terms[:1]}
    instants = sorted(
        (
            record.created_us
            for record in records
            if (query.before_us is None or record.created_us < query.before_us)
            and (query.after_us is None or record.created_us >= query.after_us)
            and numbers.issubset(term_numbers(record.about))
            and (not numbers or query.scope in (None, record.key.scope))
        ),
        reverse=query.newest_first,
    )
    return SkippedTo(instants[operation.number] if operation.number < len(instants) else None)


Mark = Callable[[str, str], str]
"""What stands in the text for a value, by its name and its kind (text, number or digest)."""

_HEX: Final = re.compile(r"[0-9a-f]{0,64}")
_DIGITS: Final = 64
_TEXTS: Final = ("process_instance", "business_key", "subject", "requester")


@dataclass(frozen=True)
class Wording:
    """How a kind of database says what others say differently.

    Args:
        mark: what stands for a value.
        clock: the store's now.
        position: the function that tells where in a text another one begins, 0 where it does not.
    """

    mark: Mark
    clock: str
    position: str


@dataclass(frozen=True)
class Selection:
    """Which records a statement is about: its conditions, and their values by name in the order of the marks.

    `row` is the table that gives the order: `s`, the kept numbers of searched values, or `r`, the records.
    """

    row: str
    terms: list[str]
    values: dict[str, Any]
    direction: str = ""

    @property
    def order(self) -> str:
        """What pages are ordered by."""
        return f"{self.row}.created_us{self.direction}, {self.row}.digest{self.direction}"

    @property
    def order_by_time(self) -> str:
        """The same by time alone, which an index without the digest gives too."""
        return f"{self.row}.created_us{self.direction}"

    @property
    def text(self) -> str:
        """The conditions as one."""
        return " AND ".join(self.terms) or "TRUE"


def select_records(query: Query, cursor: tuple[int, bytes] | None, wording: Wording) -> Selection | None:
    """The conditions for records of `query` that follow `cursor`; None where nothing can match."""
    if query.reference is not None and not _HEX.fullmatch(query.reference):
        return None
    conditions = _Conditions("s" if query.terms else "r", wording)
    conditions.add_term(query)
    conditions.add_place(query, cursor)
    conditions.add_texts(query)
    direction = " DESC" if query.newest_first else ""
    return Selection(conditions.row, conditions.terms, conditions.values, direction)


def select_skipped(query: Query, wording: Wording, leading: Collection[str] = ()) -> Selection:
    """The conditions for what `SkipRecords` counts; `leading` names the columns that an index by time begins with."""
    conditions = _Conditions("s" if query.terms else "r", wording)
    conditions.add_term(query)
    conditions.add_times(query)
    if query.terms:
        conditions.add_row_scope(query)
    elif "status" in leading and query.status in (Status.FAILED, Status.CANCELLED):
        conditions.add_status(query)
    elif "operation" in leading:
        conditions.add_operation(query)
    return Selection(conditions.row, conditions.terms, conditions.values, " DESC" if query.newest_first else "")


class _Conditions:
    """Conditions while they are being collected."""

    def __init__(self, row: str, wording: Wording) -> None:
        self.row = row
        self.terms: list[str] = []
        self.values: dict[str, Any] = {}
        self._wording = wording

    def _add(self, term: str, name: str, kind: str, value: object) -> None:
        self.terms.append(term.format(self._wording.mark(name, kind)))
        self.values[name] = value

    def add_term(self, query: Query) -> None:
        """The number of one searched value, which leads to the records; the first belongs to fewest, as a rule."""
        for term in query.terms[:1]:
            self._add("s.term = {}", "term", "number", term_number(term))

    def add_place(self, query: Query, cursor: tuple[int, bytes] | None) -> None:
        """Scope, time and digest: what is kept beside the number of a searched value too, and lies in its indexes."""
        row, mark = self.row, self._wording.mark
        self.add_row_scope(query)
        if query.scope is not None and row != "r":
            self._add("r.scope = {}", "owner", "text", query.scope)
        self.add_times(query)
        if query.reference is not None:
            lowest, highest = mark("lowest", "digest"), mark("highest", "digest")
            self.terms.append(f"{row}.digest BETWEEN {lowest} AND {highest}")
            self.values["lowest"] = bytes.fromhex(query.reference.ljust(_DIGITS, "0"))
            self.values["highest"] = bytes.fromhex(query.reference.ljust(_DIGITS, "f"))
        if cursor is not None:
            us, digest = mark("cursor_us", "number"), mark("cursor_digest", "digest")
            after = "<" if query.newest_first else ">"
            self.terms.append(f"({row}.created_us, {row}.digest) {after} ({us}, {digest})")
            self.values["cursor_us"], self.values["cursor_digest"] = cursor

    def add_row_scope(self, query: Query) -> None:
        """The scope, as the row has it that gives the order."""
        if query.scope is not None:
            self._add(f"{self.row}.scope = {{}}", "scope", "text", query.scope)

    def add_times(self, query: Query) -> None:
        """When it was created."""
        if query.before_us is not None:
            self._add(f"{self.row}.created_us < {{}}", "before_us", "number", query.before_us)
        if query.after_us is not None:
            self._add(f"{self.row}.created_us >= {{}}", "after_us", "number", query.after_us)

    def add_operation(self, query: Query) -> None:
        """What the key is for."""
        if query.operation is not None:
            self._add("r.operation = {}", "operation", "text", storable(query.operation))

    def add_status(self, query: Query) -> None:
        """Where it is in its life."""
        if query.status is None:
            return
        self._add("r.status = {}", "status", "text", query.status.value)
        if query.status is not Status.COMPLETED:
            self.terms.append("r.status <> 'completed'")  # literally the WHERE of a partial index

    def add_texts(self, query: Query) -> None:
        """What only the record tells."""
        self.add_operation(query)
        for name in _TEXTS:
            wanted = getattr(query, name)
            if wanted is not None:
                self._add(f"r.{name} = {{}}", name, "text", storable(wanted))
        self.add_status(query)
        if query.tag is not None:
            self._add(f"{self._wording.position}(r.tags, {{}}) > 0", "tag", "text", _tag_text(query.tag))
        if query.hides_internal:
            self.terms.append("NOT (r.operation >= 'semel:' AND r.operation < 'semel;')")
        if query.hides_erased:
            self.terms.append("length(r.value) > 0")  # to `<>` a key of blanks is empty where texts are padded
        if query.without_operation is not None:
            self._add("r.operation <> {}", "without_operation", "text", storable(query.without_operation))
        if query.stuck:
            # All three words for the sake of partial indexes, which cover either what is open or what is not completed.
            self.terms.append("r.status IN ('running', 'in_doubt')")
            self.terms.append(f"(r.status = 'in_doubt' OR r.lease_us <= {self._wording.clock})")


def _tag_text(tag: tuple[str, str]) -> str:
    """A tag as it stands in the JSON of all tags, in which quotation marks only ever begin and end a text."""
    name, value = (storable(text) or "" for text in tag)
    return _TAGS({name: value}).decode()[1:-1]
