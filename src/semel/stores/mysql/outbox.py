"""The outbox on MySQL and MariaDB, from `outbox.sql`: what is published is deleted.

- A relay reads whatever is committed and there, from the lowest position on, so that what commits late is not
  passed over.
- A part belongs to the relay whose token its row has; saving deletes by that token. The claim of the part keeps relays
  apart, so the events themselves are not marked: that would be a write more for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

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
    PeekEvents,
    PurgeEvents,
    ReleaseParked,
    SaveCursor,
    ScanParked,
    SettleReleased,
    StreamPart,
)
from semel.stores.events.outbox import EVENT_COLUMNS, event_row, lags_of, parked_row, stored_event
from semel.stores.rows import load_statements, stored_failure
from semel.stores.sql.dialect import Asking, Command, Known, Row, Values

_ADDED: Final = (*EVENT_COLUMNS, "place")
_PARKED: Final = ("position", *EVENT_COLUMNS, "error_type", "error_message", "attempts")
_MOST_AHEAD: Final = 20
"""After so many full batches in a row it is read from the lowest position again, where something may have committed."""
_NO_END: Final = 2**63 - 1
_OWN: Final = "AND m.value = ?"


class MysqlOutbox:
    """The statements for one place.

    Args:
        names: of the tables, as parts of statements.
        clock: the store's now, as part of statements.
    """

    def __init__(self, names: dict[str, str], clock: str) -> None:
        later = {name: f"{{{name}}}" for name in ("input", "condition", "positions")}
        parts = {
            **names,
            **later,
            "clock": clock,
            "events": ", ".join(EVENT_COLUMNS),
            "e_events": ", ".join(f"e.{name}" for name in EVENT_COLUMNS),
        }
        self._sql = load_statements("semel.stores.mysql", "outbox.sql", parts)
        self._meta = names["meta"]

    def _rows(self, name: str, columns: Sequence[str], rows: Sequence[Values], condition: str = "") -> str:
        first = f"SELECT {', '.join(f'? AS {column}' for column in columns)}"
        further = f" UNION ALL SELECT {', '.join('?' * len(columns))}" * (len(rows) - 1)
        return self._sql[name].replace("{input}", first + further).replace("{condition}", condition)

    def add(self, events: Sequence[OutboxEvent], *, joined: bool) -> Command:
        """Events, in the caller's transaction or in one of their own."""
        added = _numbered(events)
        if not joined:
            then = Command(self._sql["added"].replace("{condition}", ""))
            return Command(self._rows("add", _ADDED, added), _flat(added), then)
        own = f"WHERE EXISTS (SELECT 1 FROM {self._meta} AS m WHERE m.name = 'install_id' {_OWN})"  # noqa: S608 - ours
        then = Command(self._sql["added"].replace("{condition}", _OWN), (Known.INSTALL,))
        return Command(self._rows("add", _ADDED, added, own), (*_flat(added), Known.INSTALL), then)

    def ride(self, events: Sequence[OutboxEvent], then: Command | None) -> Command:
        """Events that are added if the statement before changed a row, and what follows."""
        added = _numbered(events)
        return Command(self._rows("add", _ADDED, added, "WHERE ROW_COUNT() > 0"), _flat(added), then)

    def open(self, operation: OpenCursor) -> Asking[Cursor]:
        """Take a part over."""
        part, token = operation.part, operation.token
        place = (part.stream, part.number, part.parts)
        back = Command(self._sql["opened"], place)
        ((number, _),) = yield Command(self._sql["open"], (*place, token, token), back, atomic=True)
        return Cursor(part=part, number=number, token=token)

    def read(self, cursor: Cursor, limit: int) -> Asking[EventBatch]:
        """The next events of a window: up to the highest position that its first reading saw.

        What commits below meanwhile is read by the next window, before what follows it in its key: that is above.
        """
        part, is_new = cursor.part, cursor.turns == 0
        wanted = (part.stream, cursor.at, _NO_END if is_new else cursor.top, part.parts, part.number)
        owner = (part.stream, part.number, part.parts, cursor.token)
        rows = yield Command(self._sql["batch"], (*wanted, *owner, limit))
        events = tuple(stored_event(row[0], row[1:-1]) for row in rows)
        is_full = len(events) == limit
        if is_full and cursor.turns < _MOST_AHEAD:
            top = rows[-1][-1] if is_new else cursor.top
            behind = replace(cursor, at=events[-1].position, top=top, turns=cursor.turns + 1)
            return EventBatch(events, behind, is_last=False, may_read_on=True)
        # Once these are deleted it is read from the lowest position again: something may have committed there.
        return EventBatch(events, replace(cursor, at=0, turns=0), is_last=not is_full and is_new)

    def save(self, operation: SaveCursor) -> Asking[CursorSaved | CursorLost]:
        """Delete what is published or parked, by the token."""
        cursor, parked = operation.cursor, [parked_row(one) for one in operation.parked]
        part, number = cursor.part, cursor.number + 1
        place = (part.stream, part.number, part.parts)
        fence = (*place, number, cursor.token)
        then = Command(self._sql["opened"], place)
        positions = (*operation.published, *(row[0] for row in parked))
        if positions:
            text = self._sql["delete"].replace("{positions}", ", ".join("?" * len(positions)))
            then = Command(text, (*fence, *positions), then)
        if parked:
            then = Command(self._rows("park", _PARKED, parked), (*_flat(parked), *fence), then)
        ((saved, token),) = yield Command(self._sql["save"], (*place, cursor.number, cursor.token), then, atomic=True)
        if (saved, token) != (number, cursor.token):
            return CursorLost()
        return CursorSaved(replace(cursor, number=number))

    def purge(self, operation: PurgeEvents) -> Asking[EventsPurged]:
        """Nothing but what is parked: what is published is deleted by then."""
        if operation.keep_parked_us is None:
            return EventsPurged(0)
        part = operation.cursor.part
        values = (part.stream, part.parts, part.number, operation.keep_parked_us)
        ((parked,),) = yield self._counting(Command(self._sql["purge_parked"], values))
        return EventsPurged(0, 0, parked)

    def erase(self, operation: EraseEvents) -> Asking[EventsErased]:
        """Delete what is of a scope or a subject, and at the end what is parked of it.

        What is in the tables is not published: with `published_only` there is nothing to delete.
        """
        asked = (operation.scope, operation.stream, operation.subject)
        doubled = tuple(value for one in asked for value in (one, one))
        found = yield Command(self._sql["concerned_events"], (*doubled, operation.after, operation.limit))
        positions = [position for position, is_concerned in found if is_concerned]
        count, is_deleted = len(positions), not (operation.dry_run or operation.published_only)
        if positions and is_deleted:
            text = self._sql["erase"].replace("{positions}", ", ".join("?" * len(positions)))
            ((count,),) = yield self._counting(Command(text, tuple(positions)))
        parked, after = 0, found[-1][0] if len(found) == operation.limit else None
        if after is None and is_deleted:
            ((parked,),) = yield self._counting(Command(self._sql["erase_parked"], doubled))
        elif after is None:
            ((parked,),) = yield Command(self._sql["concerned_parked"], doubled)
        if operation.published_only:
            return EventsErased(0, after, count, parked)
        return EventsErased(count + parked, after)

    def _counting(self, command: Command) -> Command:
        """The statement, and how many rows it has changed."""
        return Command(command.text, command.values, Command(self._sql["changed"]), patient=True)

    def held(self, part: StreamPart) -> Command:
        """The keys of what is parked."""
        return Command(self._sql["held"], (part.stream, part.parts, part.number))

    def released(self, part: StreamPart, limit: int) -> Command:
        """What may be published again."""
        return Command(self._sql["released"], (part.stream, part.parts, part.number, limit))

    def settle(self, operation: SettleReleased) -> Asking[None]:
        """What came of it."""
        stream, published = operation.part.stream, operation.published
        if published:
            text = self._sql["drop_released"].replace("{positions}", ", ".join("?" * len(published)))
            yield Command(text, (stream, *published))
        for one in operation.failed:
            error = None if one.error is None else stored_failure(one.error)
            texts = (None, None) if error is None else (error.type, error.message)
            yield Command(self._sql["keep_failed"], (*texts, one.attempts, stream, one.stored.position))

    def parked(self, operation: ScanParked) -> Command:
        """One page of what is parked."""
        return Command(self._sql["parked"], (operation.stream, operation.after, operation.limit + 1))

    def release(self, operation: ReleaseParked) -> Command:
        """Let parked events be published again, or delete them."""
        name = "discard" if operation.discard else "release"
        return self._counting(Command(self._sql[name], (operation.stream, operation.position)))

    def measure(self, operation: MeasureLag) -> Asking[LagMeasured]:
        """How much waits."""
        stream = operation.stream
        known = yield Command(self._sql["progress"], (stream, stream))
        parked = yield Command(self._sql["parked_counts"], (stream,))
        waiting: dict[str, tuple[int, int | None]] = {}
        for name in {row[1] for row in known} - {None}:
            ((count, oldest_us),) = yield Command(self._sql["lag"], (name, operation.most))
            waiting[name] = count, oldest_us
        parts = [(StreamPart(row[1], row[2], row[3]), row[4]) for row in known if row[2] is not None]
        return lags_of(waiting, {name: (count, failed) for name, count, failed in parked}, parts, known[0][0])

    def peek(self, operation: PeekEvents) -> Asking[list[Row]]:
        """Events that wait."""
        return (yield Command(self._sql["peek"], (operation.stream, operation.limit)))


def _numbered(events: Sequence[OutboxEvent]) -> list[Values]:
    return [(*event_row(event), place) for place, event in enumerate(events)]


def _flat(rows: Sequence[Values]) -> tuple[Any, ...]:
    return tuple(value for row in rows for value in row)
