"""Sealing again what is sealed with another key than the active one, or not sealed: in pages, while workers run.

- A value is replaced only if it is still the very bytes that were read: whatever a worker writes meanwhile stays.
- Finished steps of a running attempt are left alone, because a step that is sent again is recognised by its bytes; they
  are counted as left.
- Nothing is noted of how far it is: what is sealed with the active key is passed over, so that after a kill the next
  run goes on with the rest.
- Only values are read that have to be sealed again; of all others the first bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from semel.core.record import UNREADABLE, Failure, is_tombstone
from semel.core.sealing.values import (
    ERROR,
    EVENT_ATTRIBUTES,
    EVENT_DATA,
    ITEM_DATA,
    ITEM_OUTCOME,
    LETTER_CONTENT,
    LETTER_ERROR,
    OUTCOME,
    PARKED_ERROR,
    SEALED,
    Sealer,
    event_subject,
    is_sealed,
    item_subject,
    key_id_of,
    open_failure,
    seal_failure,
    sealed_text,
    step_field,
)
from semel.core.store import Capability, Store
from semel.errors import RecordUnreadable
from semel.stores.admin import SealedRows, admin_of

PLAIN: Final = ""
"""Stands for a key where something is not sealed at all."""
_START: Final = 100
_NOTHING: Final = b"null"
"""The data of an item that was erased."""
_OF_SEMEL: Final = "semel."
Row = Sequence[Any]


class ResealReport(msgspec.Struct, frozen=True):
    """What a run did, and what is left.

    Attributes:
        resealed: how many values are sealed with the active key now that were not.
        left: how many values are sealed with each other key; under the empty text those that are not sealed. A key that
            is not among them may go.
        unreadable: how many of those could not be opened.
    """

    resealed: int
    left: Mapping[str, int]
    unreadable: int


class _Column(NamedTuple):
    """A column with sealed values: where, what names a row, and what its values are bound to.

    `named` are the columns from which `place` makes subject and field; an error has its type in a column beside it.
    `is_busy` says in SQL which rows are left alone for now.
    """

    table: str
    column: str
    named: tuple[str, ...]
    place: Callable[..., tuple[bytes, bytes]]
    is_busy: str = "1 = 0"

    @property
    def is_error(self) -> bool:
        return self.column == "error_message"


def _in_record(field: bytes) -> Callable[[bytes], tuple[bytes, bytes]]:
    return lambda digest: (bytes(digest), field)


def _in_step(digest: bytes, position: int) -> tuple[bytes, bytes]:
    return bytes(digest), step_field(position)


def _in_event(field: bytes) -> Callable[..., tuple[bytes, bytes]]:
    return lambda *texts: (event_subject(*texts), field)


def _in_item(field: bytes) -> Callable[[int, int], tuple[bytes, bytes]]:
    return lambda number, position: (item_subject(number, position), field)


_EVENT: Final = ("stream", "id", "source", "type", "scope")
_IS_RUNNING: Final = "EXISTS (SELECT 1 FROM {record_table} AS r WHERE r.digest = t.digest AND r.status = 'running')"
_COLUMNS: Final = (
    _Column("record", "outcome", ("digest",), _in_record(OUTCOME)),
    _Column("record", "error_message", ("digest",), _in_record(ERROR)),
    _Column("step", "outcome", ("digest", "position"), _in_step, _IS_RUNNING),
    _Column("history", "error_message", ("digest",), _in_record(ERROR)),
    _Column("letter", "content", ("id",), _in_record(LETTER_CONTENT)),
    _Column("letter", "error_message", ("id",), _in_record(LETTER_ERROR)),
    _Column("outbox", "data", _EVENT, _in_event(EVENT_DATA)),
    _Column("outbox", "attributes", _EVENT, _in_event(EVENT_ATTRIBUTES)),
    _Column("parked", "data", _EVENT, _in_event(EVENT_DATA)),
    _Column("parked", "attributes", _EVENT, _in_event(EVENT_ATTRIBUTES)),
    _Column("parked", "error_message", _EVENT, _in_event(PARKED_ERROR)),
    _Column("item", "data", ("batch", "position"), _in_item(ITEM_DATA)),
    _Column("item", "outcome", ("batch", "position"), _in_item(ITEM_OUTCOME)),
)
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "record": ("digest",),
    "history": ("digest", "life", "position"),
    "letter": ("id",),
    "outbox": ("position",),
    "parked": ("stream", "position"),
    "item": ("batch", "position"),
}
"""What rows are told apart by; those of steps differ from store to store."""


def reseal_store(
    store: Store,
    sealer: Sealer,
    *,
    page: int = 500,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ResealReport:
    """Seal with the active key what a store has under others, or unsealed; answers what was done and what is left.

    Args:
        store: the store itself, without a cache or a seal in front of it.
        sealer: has the keys that open, and seals with the active one.
        page: how many rows are looked at together.
        dry_run: only count.
        progress: told how many rows were looked at, and how many there are.

    Raises:
        UsageError: this store cannot be sealed again in place.
        StoreUnavailable: it did not answer; what was sealed again stays so.
    """
    with admin_of(store, Capability.RESEAL).sealed_rows() as rows:
        run = _Run(rows, sealer, page, dry_run=dry_run)
        total = sum(run.count(column) for column in _COLUMNS) if progress is not None else 0
        seen = 0
        for column in _COLUMNS:
            for looked_at in run.reseal(column):
                seen += looked_at
                if progress is not None:
                    progress(min(seen, total), total)
        return ResealReport(run.resealed, dict(sorted(run.left.items())), run.unreadable)


class _Run:
    """One run over all tables."""

    def __init__(self, rows: SealedRows, sealer: Sealer, page: int, *, dry_run: bool) -> None:
        self._rows = rows
        self._sealer = sealer
        self._page = page
        self._dry_run = dry_run
        self.resealed = 0
        self.unreadable = 0
        self.left: Counter[str] = Counter()

    def count(self, column: _Column) -> int:
        """How many values there are to look at."""
        text = f"SELECT count(*) FROM {self._table(column)} AS t WHERE t.{column.column} IS NOT NULL"  # noqa: S608 - names of ours
        return int(self._rows.execute(text)[0][0])

    def reseal(self, column: _Column) -> Iterator[int]:
        """Go through one column, page by page; yields how many values were looked at."""
        after: Row | None = None
        while True:
            found = self._rows.execute(*self._page_of(column, after))
            with self._rows.transaction():
                for row in found:
                    self._look_at(column, row)
            yield len(found)
            if len(found) < self._page:
                return
            after = found[-1][: len(self._key(column))]

    def _page_of(self, column: _Column, after: Row | None) -> tuple[str, tuple[Any, ...]]:
        key = self._key(column)
        where, values = _behind(key, after)
        kind = ", t.error_type" if column.is_error else ""
        busy = f"CASE WHEN {self._rows.fill(column.is_busy)} THEN 1 ELSE 0 END"
        text = (
            f"SELECT {', '.join(f't.{name}' for name in (*key, *column.named))}, "  # noqa: S608 - names of ours
            f"substr(t.{column.column}, 1, {_START}), {busy}{kind} FROM {self._table(column)} AS t "
            f"WHERE t.{column.column} IS NOT NULL{where} ORDER BY {', '.join(f't.{name}' for name in key)} "
            f"LIMIT {self._page}"
        )
        return text, values

    def _look_at(self, column: _Column, row: Row) -> None:
        key = self._key(column)
        names, named = row[: len(key)], row[len(key) : len(key) + len(column.named)]
        start, is_busy, *kind = row[len(key) + len(column.named) :]
        key_id = _key_of(column, (kind[0], start) if column.is_error else (start,))
        if key_id is None or key_id == self._sealer.active:
            return
        if self._dry_run or is_busy:
            self.left[key_id] += 1
        else:
            self._reseal_row(column, names, column.place(*named))

    def _reseal_row(self, column: _Column, names: Row, place: tuple[bytes, bytes]) -> None:
        """Seal a value again, and count what is there then.

        Closes the race with workers: only the very value that was read is replaced. What one wrote in between stays,
        and is counted by its own key: it may be an older one, which the next run deals with.
        """
        seen = self._read(column, names)
        if seen is None:
            return  # gone meanwhile
        try:
            sealed = self._sealed_again(seen, *place)
        except RecordUnreadable:
            self.unreadable += 1
        else:
            columns = _columns_of(column)
            setting = ", ".join(f"{name} = ?" for name in columns)
            same = " AND ".join(f"{name} = ?" for name in (*self._key(column), *columns))
            text = f"UPDATE {self._table(column)} SET {setting} WHERE {same}"  # noqa: S608 - names of ours
            self._rows.execute(text, (*sealed, *names, *seen))
            seen = self._read(column, names)
        key_id = None if seen is None else _key_of(column, seen)
        if key_id == self._sealer.active:
            self.resealed += 1
        elif key_id is not None:
            self.left[key_id] += 1

    def _read(self, column: _Column, names: Row) -> tuple[Any, ...] | None:
        """The value of a row, with its type where it is an error; None: it is gone."""
        is_it = " AND ".join(f"{name} = ?" for name in self._key(column))
        text = f"SELECT {', '.join(_columns_of(column))} FROM {self._table(column)} WHERE {is_it}"  # noqa: S608 - names of ours
        found = self._rows.execute(text, tuple(names))
        return None if not found or found[0][0] is None else tuple(found[0])

    def _sealed_again(self, seen: tuple[Any, ...], subject: bytes, field: bytes) -> tuple[Any, ...]:
        sealer = self._sealer
        if len(seen) == 1:
            stored = bytes(seen[0])
            plain = sealer.open(subject, field, stored) if is_sealed(stored) else stored
            return (sealer.seal(subject, field, plain),)
        seen_failure = Failure(*seen)
        opened = open_failure(sealer, subject, field, seen_failure) if seen_failure.type == SEALED else seen_failure
        if opened.type == UNREADABLE:
            raise RecordUnreadable(opened.message)
        failure = seal_failure(sealer, subject, field, opened)
        return failure.type, failure.message

    def _key(self, column: _Column) -> tuple[str, ...]:
        return self._rows.step_key if column.table == "step" else _KEYS[column.table]

    def _table(self, column: _Column) -> str:
        return self._rows.fill(f"{{{column.table}_table}}")


def _behind(key: tuple[str, ...], after: Row | None) -> tuple[str, tuple[Any, ...]]:
    """The rows behind `after`, in words that every database answers by its index."""
    if after is None:
        return "", ()
    values: tuple[Any, ...] = (after[-1],)
    condition = f"t.{key[-1]} > ?"
    for name, value in zip(reversed(key[:-1]), reversed(after[:-1]), strict=True):
        condition, values = f"t.{name} > ? OR (t.{name} = ? AND ({condition}))", (value, value, *values)
    return f" AND t.{key[0]} >= ? AND ({condition})", (after[0], *values)


def _columns_of(column: _Column) -> tuple[str, ...]:
    return ("error_type", "error_message") if column.is_error else (column.column,)


def _key_of(column: _Column, seen: Row) -> str | None:
    """The key of a value, of which the beginning is enough; None where nobody has to seal it."""
    return _key_id(seen[1], seen[0]) if column.is_error else _plain_or_key_id(bytes(seen[0]))


def _plain_or_key_id(start: bytes) -> str | None:
    """The key of a value; None where it is what stores write by themselves, and nobody has to seal."""
    if is_sealed(start):
        return key_id_of(start)
    return None if is_tombstone(start) or start == _NOTHING else PLAIN


def _key_id(start: str, kind: str) -> str | None:
    if kind == SEALED:
        sealed = sealed_text(Failure(kind, start))
        return PLAIN if sealed is None else key_id_of(sealed)
    return None if kind.startswith(_OF_SEMEL) else PLAIN
