"""The outbox on SQLite, from `outbox.sql`: read by position, the order of commits where one writes at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from semel.core.events.outbox import (
    Cursor,
    CursorLost,
    CursorSaved,
    EraseEvents,
    EventBatch,
    EventsErased,
    EventsPurged,
    LagMeasured,
    MeasureLag,
    OpenCursor,
    OutboxEvent,
    ParkedEvent,
    PeekEvents,
    PurgeEvents,
    ReleaseParked,
    SaveCursor,
    ScanParked,
    SettleReleased,
    StreamPart,
)
from semel.stores.events.outbox import (
    EVENT_COLUMNS,
    event_row,
    furthest_by_shard,
    lags_of,
    latest_of,
    parked_row,
    stored_event,
)
from semel.stores.rows import load_statements, stored_failure
from semel.stores.sql.dialect import Asking, Row, Values
from semel.stores.sqlite.commands import Kind, SqliteCommand, blob

_SQL: Final = load_statements(
    "semel.stores.sqlite",
    "outbox.sql",
    {
        "events": ", ".join(EVENT_COLUMNS),
        "e_events": ", ".join(f"e.{name}" for name in EVENT_COLUMNS),
        "values": ", ".join(f":{name}{{n}}" for name in EVENT_COLUMNS),
        "n": "{n}",
    },
)
_PARKED: Final = ("position", *EVENT_COLUMNS, "error_type", "error_message", "attempts")
Completing = Callable[[Values, tuple[str, ...], dict[str, Any]], SqliteCommand]
"""Makes the command that completes a record, with statements that follow it and their values."""


@cache
def _numbered(name: str, place: int) -> str:
    """A statement for one of several events that travel together."""
    return _SQL[name].replace("{n}", f"_{place}")


def _many(name: str, columns: Sequence[str], rows: Sequence[Values]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """A statement for each row, and the values of all of them."""
    texts = tuple(_numbered(name, place) for place in range(len(rows)))
    values = {
        f"{column}_{place}": value for place, row in enumerate(rows) for column, value in zip(columns, row, strict=True)
    }
    return texts, values


def _place(part: StreamPart) -> dict[str, Any]:
    return {"stream": part.stream, "part": part.number, "parts": part.parts}


class SqliteOutbox:
    """The statements. `completing` makes the command of a completion."""

    def __init__(self, completing: Completing) -> None:
        self._completing = completing

    def add(self, events: Sequence[OutboxEvent], *, joined: bool) -> SqliteCommand:
        """Events, in the caller's transaction or in one of their own."""
        texts, values = _many("add", EVENT_COLUMNS, [event_row(event) for event in events])
        first = _numbered("add_joined", 0) if joined else texts[0]
        kind = Kind.ENTER if joined else Kind.WRITE
        return SqliteCommand(first, kind=kind, named=values, follow=texts[1:], to_rows=_instant)

    def complete(self, row: Values, transaction: str | None, events: Sequence[OutboxEvent]) -> Asking[list[Row]]:
        """A completion, and the events in the same transaction."""
        del transaction  # it was demanded by its savepoint
        texts, values = _many("add", EVENT_COLUMNS, [event_row(event) for event in events])
        return (yield self._completing(row, texts, values))

    def open(self, operation: OpenCursor) -> Asking[Cursor]:
        """Take a part over."""
        part = operation.part
        rows = yield SqliteCommand(_SQL["cursors"], kind=Kind.WRITE, named={"stream": part.stream})
        known = [(StreamPart(part.stream, number, parts), (saved, at)) for number, parts, saved, at in rows]
        latest = latest_of(part, known, lambda one: one[1])
        number = next((saved for other, (saved, _) in known if other == part), 0)
        cursor = Cursor(part=part, number=number + 1, token=operation.token, at=0 if latest is None else latest[1])
        yield SqliteCommand(_SQL["open"], named=_cursor_values(cursor))
        return cursor

    def read(self, cursor: Cursor, limit: int) -> Asking[EventBatch]:
        """The next events."""
        named = {**_place(cursor.part), "at": cursor.at, "token": blob(cursor.token), "limit": limit}
        rows = yield SqliteCommand(_SQL["batch"], kind=Kind.SCAN, named=named)
        if not rows[0][1]:
            return EventBatch((), cursor, is_last=True)  # as it was: nothing of this is published, nor to be deleted
        events = tuple(stored_event(row[2], row[3:]) for row in rows if row[2] is not None)
        is_full = len(events) == limit
        behind = replace(cursor, at=events[-1].position if is_full else max(rows[0][0], cursor.at))
        return EventBatch(events, behind, is_last=not is_full, may_read_on=is_full)

    def save(self, operation: SaveCursor) -> Asking[CursorSaved | CursorLost]:
        """Move a cursor; what is parked is part of its transaction."""
        cursor = operation.cursor
        texts, values = _many("park", _PARKED, [parked_row(one) for one in operation.parked])
        named = {**_cursor_values(cursor), **values}
        following = CursorSaved(replace(cursor, number=cursor.number + 1))
        told = yield SqliteCommand(
            _SQL["save"], named=named, follow=texts, otherwise=_SQL["saved"], to_rows=_whether_changed
        )
        return following if told else CursorLost()

    def purge(self, operation: PurgeEvents) -> Asking[EventsPurged]:
        """Delete events that were published."""
        cursor = operation.cursor
        named = {**_place(cursor.part), "at": cursor.at, "after": operation.after, "keep_us": operation.keep_us}
        ((found, last),) = yield SqliteCommand(_SQL["lot"], kind=Kind.SCAN, named={**named, "limit": operation.limit})
        count, parked = 0, 0
        if found:
            ((count,),) = yield SqliteCommand(_SQL["purge"], named={**named, "last": last}, to_rows=_changes)
        if operation.keep_parked_us is not None:
            keep = {**_place(cursor.part), "keep_parked_us": operation.keep_parked_us}
            ((parked,),) = yield SqliteCommand(_SQL["purge_parked"], named=keep, to_rows=_changes)
        return EventsPurged(count, last or operation.after, parked)

    def erase(self, operation: EraseEvents) -> Asking[EventsErased]:
        """Delete what is of a scope or a subject, and at the end what is parked of it."""
        asked = {"scope": operation.scope, "of_stream": operation.stream, "subject": operation.subject}
        page = {"after": operation.after, "limit": operation.limit}
        ((found, last),) = yield SqliteCommand(_SQL["page"], kind=Kind.SCAN, named=page)
        named, after = {**asked, "after": operation.after, "last": last}, last if found == operation.limit else None
        if operation.published_only or operation.dry_run:
            return (yield from self._erase_some(operation, named, after))
        count, parked = 0, 0
        if found:
            ((count,),) = yield SqliteCommand(_SQL["erase"], named=named, to_rows=_changes)
        if after is None:
            ((parked,),) = yield SqliteCommand(_SQL["erase_parked"], named=asked, to_rows=_changes)
        return EventsErased(count + parked, after)

    def _erase_some(self, operation: EraseEvents, named: dict[str, Any], after: int | None) -> Asking[EventsErased]:
        """The same for what is published, or for nothing at all: what is concerned is looked at before."""
        known = yield SqliteCommand(_SQL["progress"], kind=Kind.SCAN, named={"stream": operation.stream})
        ends = {stream: _ends(stream, known) for stream in {row[1] for row in known} - {None}}
        concerned = yield SqliteCommand(_SQL["concerned_events"], kind=Kind.SCAN, named=named)
        gone, waiting = [], 0
        for position, stream, shard, is_parked in concerned:
            waits = position > ends[stream][shard]
            waiting += waits
            if not (operation.published_only and (waits or is_parked)):
                gone.append(position)
        if gone and not operation.dry_run:
            positions = {"positions": msgspec.json.encode(gone).decode()}
            yield SqliteCommand(_SQL["erase_positions"], named=positions, to_rows=_changes)
        parked = 0
        if after is None:
            ((parked,),) = yield SqliteCommand(_SQL["concerned_parked"], kind=Kind.SCAN, named=named)
        if operation.published_only:
            return EventsErased(len(gone), after, waiting, parked)
        return EventsErased(len(gone) + parked, after)

    def held(self, part: StreamPart) -> SqliteCommand:
        """The keys of what is parked."""
        return SqliteCommand(_SQL["held"], kind=Kind.SCAN, named=_place(part))

    def released(self, part: StreamPart, limit: int) -> SqliteCommand:
        """What may be published again."""
        return SqliteCommand(_SQL["released"], kind=Kind.SCAN, named={**_place(part), "limit": limit})

    def settle(self, operation: SettleReleased) -> Asking[None]:
        """What came of it."""
        for position in operation.published:
            yield SqliteCommand(_SQL["drop_released"], named=_at(operation.part, position))
        for one in operation.failed:
            yield SqliteCommand(_SQL["keep_failed"], named={**_at(operation.part, one.stored.position), **_cause(one)})

    def parked(self, operation: ScanParked) -> SqliteCommand:
        """One page of what is parked."""
        named = {"stream": operation.stream, "after": operation.after, "limit": operation.limit + 1}
        return SqliteCommand(_SQL["parked"], kind=Kind.SCAN, named=named)

    def release(self, operation: ReleaseParked) -> SqliteCommand:
        """Let parked events be published again, or delete them."""
        named = {"stream": operation.stream, "position": operation.position}
        return SqliteCommand(_SQL["discard" if operation.discard else "release"], named=named, to_rows=_changes)

    def measure(self, operation: MeasureLag) -> Asking[LagMeasured]:
        """How much waits."""
        named = {"stream": operation.stream}
        known = yield SqliteCommand(_SQL["progress"], kind=Kind.SCAN, named=named)
        parked = yield SqliteCommand(_SQL["parked_counts"], kind=Kind.SCAN, named=named)
        waiting: dict[str, tuple[int, int | None]] = {}
        for stream in {row[1] for row in known} - {None}:
            limits = _waiting_values(stream, known, operation.most)
            ((count, oldest_us),) = yield SqliteCommand(_SQL["lag"], kind=Kind.SCAN, named=limits)
            waiting[stream] = count, oldest_us
        parts = [(StreamPart(row[1], row[2], row[3]), row[5]) for row in known if row[2] is not None]
        return lags_of(waiting, {stream: (count, failed) for stream, count, failed in parked}, parts, known[0][0])

    def peek(self, operation: PeekEvents) -> Asking[list[Row]]:
        """Events that wait."""
        known = yield SqliteCommand(_SQL["progress"], kind=Kind.SCAN, named={"stream": operation.stream})
        named = _waiting_values(operation.stream, known, operation.limit)
        return (yield SqliteCommand(_SQL["peek"], kind=Kind.SCAN, named=named))


def _waiting_values(stream: str, known: Sequence[Row], limit: int) -> dict[str, Any]:
    """Where what waits of a stream begins in each shard."""
    ends = _ends(stream, known)
    return {"stream": stream, "floor": min(ends), "ends": "".join(f"{end:020}" for end in ends), "limit": limit}


def _ends(stream: str, known: Sequence[Row]) -> list[int]:
    """The position up to which each shard of a stream is published or parked."""
    reached = [(StreamPart(row[1], row[2], row[3]), row[4]) for row in known if row[1] == stream and row[2] is not None]
    return [end or 0 for end in furthest_by_shard(reached, lambda at: at)]


def _cursor_values(cursor: Cursor) -> dict[str, Any]:
    return {**_place(cursor.part), "number": cursor.number, "at": cursor.at, "token": blob(cursor.token)}


def _at(part: StreamPart, position: int) -> dict[str, Any]:
    return {"stream": part.stream, "position": position}


def _cause(parked: ParkedEvent) -> dict[str, Any]:
    error = None if parked.error is None else stored_failure(parked.error)
    return {
        "error_type": None if error is None else error.type,
        "error_message": None if error is None else error.message,
        "attempts": parked.attempts,
    }


def _instant(_rows: list[Row], changed: int, now: int) -> list[Row]:
    return [(now,)] if changed > 0 else []


def _changes(_rows: list[Row], changed: int, _now: int) -> list[Row]:
    return [(changed,)]


def _whether_changed(rows: list[Row], changed: int, _now: int) -> list[Row]:
    return [(True,)] if changed > 0 or rows else []
