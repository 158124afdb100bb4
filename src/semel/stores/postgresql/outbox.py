"""The outbox on PostgreSQL, from `outbox.sql`: append-only, read by snapshots of transactions.

- A relay publishes windows: what one snapshot sees and the one before did not. So it never passes over a transaction
  that commits late, and one that stays open delays its own events and no others.
- The scan of a window begins at a floor. A running transaction may have a number that is higher than all that its
  snapshot names, so the floor is a position that was read before a write of the relay's own which ended before the
  snapshot was taken: whoever has a lower position then has a lower number than that write, and the snapshot
  names it.
- The snapshots are worth nothing on a standby, which is refused, nor in another cluster, for which they are made anew.
- What a relay remembers counts on the server where it opened its part. On another one, as after a promotion, or after a
  restart, it opens the part again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
from semel.errors import StoreUnavailable
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
from semel.stores.sql.dialect import Asking, Command, Known, Row, Values

_KINDS: Final = {
    "shard": "smallint",
    "time_us": "bigint",
    "data": "bytea",
    "is_binary": "boolean",
    "attributes": "bytea",
}
_NOTHING_SEEN: Final = "1:1:"
_WORTH_A_SAVE: Final = 1000
"""So many positions that the next reading would pass over again are worth a write while nothing is to be published."""
_KEPT_CURSORS: Final = 10
_NEWEST: Final = 10_000
"""Among so many of the newest events streams are looked for that no relay has read yet."""
_Window = tuple[str, int, str | None, int]
"""How far a shard has come: what the last complete window saw, its floor, what the one under way sees, and how far."""


class PostgresOutbox:
    """The statements for one place.

    Args:
        names: of the tables, as parts of statements.
        clock: the store's now, as part of statements.
        same_database: the condition that this is the store's own database, with one value.
    """

    def __init__(self, names: dict[str, str], clock: str, same_database: str) -> None:
        arrays = ", ".join(f"?::{_KINDS.get(name, 'text')}[]" for name in EVENT_COLUMNS)
        parts = {
            **names,
            "clock": clock,
            "events": ", ".join(EVENT_COLUMNS),
            "e_events": ", ".join(f"e.{name}" for name in EVENT_COLUMNS),
            "u_events": ", ".join(f"u.{name}" for name in EVENT_COLUMNS),
            "arrays": arrays,
            "mine": "AND e.shard % ?::integer = ?::integer",
            "given": "{given}",
            "condition": "{condition}",
        }
        self._sql = load_statements("semel.stores.postgresql", "outbox.sql", parts)
        adding = self._sql["add"].replace("{given}", "d")
        self._add = adding.replace("{condition}", "")
        self._add_here = adding.replace("{condition}", f"WHERE {same_database}")
        self.riding = self._sql["riding"].replace(
            "{given}", "(SELECT e.now FROM done JOIN e ON e.digest = done.digest)"
        )
        """What follows a completion, inside its statement."""
        self.riding_here = self._sql["riding"].replace("{given}", "d")
        """The same for a completion that is named `d`, and tells its instant."""

    def add(self, events: Sequence[OutboxEvent], *, joined: bool) -> Command:
        """Events, in the caller's transaction or in one of their own."""
        if joined:
            return Command(self._add_here, (Known.INSTALL, *arrays_of(events)))
        return Command(self._add, arrays_of(events))

    def open(self, operation: OpenCursor) -> Asking[Cursor]:
        """Take a part over. The row that says so is the write behind which the first floor lies.

        Raises:
            StoreUnavailable: this is a standby.
        """
        part = operation.part
        rows = yield Command(self._sql["cursors"], (part.stream,))
        is_standby, cluster, newest, top = rows[0][:4]
        if is_standby:
            raise StoreUnavailable(
                "A standby cannot tell which transactions are open, so a relay there would lose events; nothing was "
                "read. Give the address of the primary."
            )
        known = [(StreamPart(part.stream, row[4], row[5]), row[6:12]) for row in rows if row[4] is not None]
        number = next((row[0] for other, row in known if other == part), 0)
        cursor = _cursor_of(part, known, cluster)
        cursor = replace(cursor, number=number, token=operation.token, top=top, server=rows[0][12])
        if (yield from self._is_of_another_cluster(cursor, cluster, newest)):
            ((seen,),) = yield Command(
                self._sql["rebase"], (part.stream, part.number, part.parts, cursor.seen, cursor.floor)
            )
            cursor = replace(cursor, seen=seen, floor=0, next_floor=0, until=None, at=0)
        saved = yield from self._save(replace(cursor, cluster=cluster), ())
        if isinstance(saved, CursorLost):
            raise StoreUnavailable(
                "Another relay opened this part of the stream at the same time; nothing was read. Try again.",
                conflict=True,
            )
        return saved.cursor

    def _is_of_another_cluster(self, cursor: Cursor, cluster: int, newest: int) -> Asking[bool]:
        """Whether numbers of transactions that a part depends on mean nothing here."""
        if cursor.seen == _NOTHING_SEEN and cursor.cluster in (0, cluster):
            # The events alone can tell where no window was completed: a dump may have brought them without a cursor.
            ((has_foreign,),) = yield Command(self._sql["has_foreign"], (cursor.part.stream,))
            return bool(has_foreign)
        return cursor.cluster != cluster or _xmax(cursor.seen) > newest

    def read(self, cursor: Cursor, limit: int) -> Asking[EventBatch]:
        """The next events of a window, or the first of a new one.

        Raises:
            StoreUnavailable: the part was opened on another server, or before this one was restarted.
        """
        part, mine = cursor.part, (cursor.part.parts, cursor.part.number)
        at = cursor.at if cursor.until is not None else 0
        values = (
            *(cursor.seen, cursor.until, cursor.floor, at),
            *(cursor.token, part.stream, part.number, part.parts, cursor.server),
            *(cursor.floor, at, part.stream, *mine, limit),
            *(part.stream, *mine, limit),
            limit,
        )
        rows = yield Command(self._sql["batch"], values)
        until, top, is_mine = rows[0][:3]
        if not rows[0][-1]:
            raise StoreUnavailable(
                "This is another server than the one where the relay opened its part, or that one was restarted, so "
                "what it remembers may not count here; nothing was read. Try again: the part is opened anew."
            )
        if not is_mine:
            return EventBatch((), cursor, is_last=True)  # as it was: nothing of this is published, nor to be deleted
        events = tuple(stored_event(row[3], row[4:-1]) for row in rows if row[3] is not None)
        window = replace(cursor, until=until, top=top)
        if cursor.until is None:
            window = replace(window, next_floor=max(cursor.safe, cursor.floor))
        if len(events) == limit:
            return EventBatch(events, replace(window, at=events[-1].position), is_last=False, may_read_on=True)
        complete = replace(window, seen=until, floor=max(window.next_floor, window.floor), until=None, at=0)
        needs_save = not events and top - complete.floor >= _WORTH_A_SAVE
        return EventBatch(events, complete, is_last=True, needs_save=needs_save)

    def save(self, operation: SaveCursor) -> Asking[CursorSaved | CursorLost]:
        """One row more in the log of cursors; what is parked is part of its statement."""
        return (yield from self._save(operation.cursor, [parked_row(one) for one in operation.parked]))

    def _save(self, cursor: Cursor, parked: Sequence[Values]) -> Asking[CursorSaved | CursorLost]:
        part, number = cursor.part, cursor.number + 1
        place = (part.stream, part.number, part.parts, number)
        seen = (cursor.seen, cursor.floor, cursor.until, cursor.at)
        values = (*place, *seen, cursor.token, cursor.cluster, cursor.server)
        if parked:
            columns = tuple(list(column) for column in zip(*parked, strict=True))
            rows = yield Command(self._sql["save_and_park"], (*values, columns[0], *columns))
        else:
            rows = yield Command(self._sql["save"], values)
        if not rows:
            there = yield Command(self._sql["saved"], place)
            if [(cursor.token,)] != there:
                return CursorLost()
        return CursorSaved(replace(cursor, number=number, safe=cursor.top))

    def purge(self, operation: PurgeEvents) -> Asking[EventsPurged]:
        """Delete events that were published, and the rows of cursors that no longer count."""
        cursor, part = operation.cursor, operation.cursor.part
        oldest = cursor.number - _KEPT_CURSORS
        yield Command(self._sql["forget_cursors"], (part.stream, part.number, part.parts, oldest, cursor.server))
        mine = (part.stream, part.parts, part.number)
        values = (operation.after, operation.keep_us, cursor.floor, *mine, cursor.seen, cursor.server, operation.limit)
        ((count, last),) = yield Command(self._sql["purge"], values)
        parked = 0
        if operation.keep_parked_us is not None:
            ((parked,),) = yield Command(self._sql["purge_parked"], (*mine, operation.keep_parked_us))
        return EventsPurged(count, last or operation.after, parked)

    def erase(self, operation: EraseEvents) -> Asking[EventsErased]:
        """Delete what is of a scope or a subject, and at the end what is parked of it."""
        asked = (operation.scope, operation.stream, operation.subject)
        if operation.published_only or operation.dry_run:
            return (yield from self._erase_some(operation, asked))
        ((count, found, last),) = yield Command(self._sql["erase"], (*asked, operation.after, operation.limit))
        if found == operation.limit:
            return EventsErased(count, last)
        ((parked,),) = yield Command(self._sql["erase_parked"], asked)
        return EventsErased(count + parked, None)

    def _erase_some(self, operation: EraseEvents, asked: Values) -> Asking[EventsErased]:
        """The same for what is published, or for nothing at all: what is concerned is looked at before."""
        ((cluster, newest),) = yield Command(self._sql["cluster"])
        known = yield Command(self._sql["progress"], (operation.stream, 0, operation.stream))
        # Snapshots of another cluster, as after a dump was restored, tell nothing: until a relay has made them anew,
        # everything counts as waiting.
        own = [row for row in known if row[5] is not None and row[9] == cluster and _xmax(row[5]) <= newest]
        shards = {stream: _reached(stream, own, cluster) for stream in {row[1] for row in own}}
        found = yield Command(self._sql["concerned_events"], (*asked, operation.after, operation.limit))
        gone, waiting = [], 0
        for position, stream, shard, xid, is_concerned, is_parked in found:
            if is_concerned:
                waits = stream not in shards or not _is_published(position, xid, shards[stream][shard])
                waiting += waits
                if not (operation.published_only and (waits or is_parked)):
                    gone.append(position)
        if gone and not operation.dry_run:
            yield Command(self._sql["erase_positions"], (gone,))
        after, parked = found[-1][0] if len(found) == operation.limit else None, 0
        if after is None:
            ((parked,),) = yield Command(self._sql["concerned_parked"], asked)
        if operation.published_only:
            return EventsErased(len(gone), after, waiting, parked)
        return EventsErased(len(gone) + parked, after)

    def held(self, part: StreamPart) -> Command:
        """The keys of what is parked."""
        return Command(self._sql["held"], (part.stream, part.parts, part.number))

    def released(self, part: StreamPart, limit: int) -> Command:
        """What may be published again."""
        return Command(self._sql["released"], (part.stream, part.parts, part.number, limit))

    def settle(self, operation: SettleReleased) -> Asking[None]:
        """What came of it."""
        stream = operation.part.stream
        if operation.published:
            yield Command(self._sql["drop_released"], (stream, list(operation.published)))
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
        return Command(self._sql[name], (operation.stream, operation.position))

    def measure(self, operation: MeasureLag) -> Asking[LagMeasured]:
        """How much waits. A stream that nobody has read is known by its name, or by the newest events."""
        stream = operation.stream
        known = yield Command(self._sql["progress"], (stream, _NEWEST, stream))
        parked = yield Command(self._sql["parked_counts"], (stream,))
        waiting: dict[str, tuple[int, int | None]] = {}
        for name in {stream, *(row[1] for row in known)} - {None}:
            ((count, oldest_us),) = yield Command(self._sql["lag"], _waiting_values(name, known, operation.most))
            if count:
                waiting[name] = count, oldest_us
        parts = [(StreamPart(row[1], row[2], row[3]), row[4]) for row in known if row[2] is not None]
        return lags_of(waiting, {name: (count, failed) for name, count, failed in parked}, parts, known[0][0])

    def peek(self, operation: PeekEvents) -> Asking[list[Row]]:
        """Events that wait."""
        stream = operation.stream
        known = yield Command(self._sql["progress"], (stream, 0, stream))
        return (yield Command(self._sql["peek"], _waiting_values(stream, known, operation.limit)))


def _waiting_values(stream: str, known: Sequence[Row], most: int) -> Values:
    """How far each shard of a stream has come, as arrays."""
    cluster = known[0][9]
    seen, floors, until, at = zip(*_reached(stream, known, cluster), strict=True)
    return (list(seen), list(until), list(at), min(floors), stream, most)


def _reached(stream: str, known: Sequence[Row], cluster: int) -> list[_Window]:
    """How far each shard of a stream has come; what is told of another cluster counts where this one tells nothing."""
    reached: list[tuple[StreamPart, tuple[bool, _Window]]] = [
        (StreamPart(row[1], row[2], row[3]), (row[9] == cluster, (row[5], row[6], row[7], row[8])))
        for row in known
        if row[1] == stream and row[2] is not None
    ]
    found = furthest_by_shard(reached, lambda end: (end[0], _window_progress(*end[1])))
    return [(_NOTHING_SEEN, 0, None, 0) if end is None else end[1] for end in found]


def _is_published(position: int, xid: int, window: _Window) -> bool:
    """Whether a shard has come past an event: what `unpublished` of the statements says, of one event."""
    seen, _floor, until, at = window
    return _is_seen(xid, seen) or (until is not None and position <= at and _is_seen(xid, until))


def _is_seen(xid: int, snapshot: str) -> bool:
    """Whether a transaction had ended in a snapshot, as `pg_visible_in_snapshot` tells it."""
    lowest, highest, running = snapshot.split(":")
    return xid < int(lowest) or (xid < int(highest) and str(xid) not in running.split(","))


def _window_progress(seen: str, _floor: int, until: str | None, at: int) -> tuple[tuple[int, int, int], bool, int]:
    """Which of two parts has come further: by its complete windows, then by the one that is under way."""
    return _progress(seen), until is not None, at


def arrays_of(events: Sequence[OutboxEvent]) -> Values:
    """Events as one array for each column."""
    return tuple(list(column) for column in zip(*map(event_row, events), strict=True))


def _cursor_of(part: StreamPart, known: Sequence[tuple[StreamPart, Row]], cluster: int) -> Cursor:
    """Where a part begins. A window of another division is begun anew: its shards are others.

    Snapshots of two clusters cannot be compared. What this cluster tells of a shard is later than what another tells:
    a dump brings cursors along, and those that are made after it was restored are of this cluster.
    """

    def progress(one: tuple[StreamPart, Row]) -> tuple[bool, tuple[int, int, int]]:
        return one[1][5] == cluster, _progress(one[1][1])

    latest = latest_of(part, [(other, (other, row)) for other, row in known], progress)
    if latest is None:
        return Cursor(part=part, number=0, token=b"", seen=_NOTHING_SEEN)
    other, (_, seen, floor, until, at, cluster) = latest
    found = Cursor(part=part, number=0, token=b"", seen=seen, floor=floor, cluster=cluster)
    return replace(found, until=until, at=at, next_floor=floor) if other == part else found


def _progress(seen: str) -> tuple[int, int, int]:
    """Which of two snapshots of one cluster is the later one: what a snapshot sees, later ones see too."""
    lowest, highest, running = seen.split(":")
    return int(highest), int(lowest), -len(running.split(",")) if running else 0


def _xmax(seen: str) -> int:
    return int(seen.split(":")[1])
