"""The outbox in memory, which every store's outbox has to be like, and what the stores share about rows of events.

- Where a stream was read in other parts before, a part begins where all of its shards had been published, by whichever
  division came furthest: nothing is passed over, and what is published again is seen by consumers as a repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, assert_never

from msgspec.structs import replace

from semel.core.events.outbox import (
    SHARDS,
    AboutOutbox,
    AddEvents,
    Cursor,
    CursorFound,
    CursorLost,
    CursorSaved,
    EventBatch,
    EventsAdded,
    EventsPurged,
    OpenCursor,
    OutboxAnswer,
    OutboxEvent,
    ParkedChanged,
    ParkedEvent,
    ParkedPage,
    PurgeEvents,
    ReadEvents,
    ReadReleased,
    ReleasedEvents,
    ReleasedSettled,
    ReleaseParked,
    SaveCursor,
    ScanParked,
    SettleReleased,
    StoredEvent,
    StreamPart,
)
from semel.core.record import Failure
from semel.stores.rows import storable, stored_failure

EVENT_COLUMNS: Final = (
    "stream",
    "shard",
    "id",
    "source",
    "type",
    "subject",
    "time_us",
    "content_type",
    "data",
    "is_binary",
    "attributes",
    "ordering_key",
)
"""The columns of an event, in the order in which rows are written and read."""
C = TypeVar("C")


def event_row(event: OutboxEvent) -> tuple[Any, ...]:
    """The values of an event, in the order of `EVENT_COLUMNS`."""
    return (
        event.stream,
        event.shard,
        storable(event.id),
        storable(event.source),
        storable(event.type),
        storable(event.subject),
        event.time_us,
        storable(event.content_type),
        event.data,
        event.binary,
        event.attributes,
        storable(event.ordering_key),
    )


def stored_event(position: int, row: Sequence[Any]) -> StoredEvent:
    """The event that a row of `EVENT_COLUMNS` stands for."""
    (stream, shard, id_, source, type_, subject, time_us, content_type, data, is_binary, attributes, key) = row
    event = OutboxEvent(
        stream=stream,
        shard=shard,
        id=id_,
        source=source,
        type=type_,
        subject=subject,
        time_us=time_us,
        content_type=content_type,
        data=data,
        binary=bool(is_binary),
        attributes=attributes,
        ordering_key=key,
    )
    return StoredEvent(position, event)


def parked_event(row: Sequence[Any]) -> ParkedEvent:
    """The parked event that a row stands for: position, `EVENT_COLUMNS`, error, attempts, instant."""
    position, *event, error_type, error_message, attempts, parked_us = row
    error = None if error_type is None else Failure(error_type, error_message)
    return ParkedEvent(stored=stored_event(position, event), error=error, attempts=attempts, parked_us=parked_us)


def parked_row(parked: ParkedEvent) -> tuple[Any, ...]:
    """The values of a parked event, without the instant."""
    error = None if parked.error is None else stored_failure(parked.error)
    return (
        parked.stored.position,
        *event_row(parked.stored.event),
        None if error is None else error.type,
        None if error is None else error.message,
        parked.attempts,
    )


def latest_of(part: StreamPart, known: Iterable[tuple[StreamPart, C]], progress: Callable[[C], Any]) -> C | None:
    """Where a part has to begin: the furthest that every one of its shards has come, however the stream was divided.

    Args:
        part: what is about to be read.
        known: how far each part of the stream has come, of any division.
        progress: tells which of two is further.
    """
    found = list(known)
    ends: list[C] = []
    for shard in range(part.number, SHARDS, part.parts):
        reached = [one for other, one in found if shard % other.parts == other.number]
        if not reached:
            return None
        ends.append(max(reached, key=progress))
    return min(ends, key=progress)


class MemoryOutbox:
    """Events by position, cursors by part, and what is parked."""

    def __init__(self) -> None:
        self._events: dict[int, tuple[StoredEvent, int]] = {}
        self._last = 0
        self._cursors: dict[StreamPart, Cursor] = {}
        self._parked: dict[int, ParkedEvent] = {}

    def add(self, events: Iterable[OutboxEvent], now: int) -> None:
        """Add events."""
        for event in events:
            self._last += 1
            self._events[self._last] = StoredEvent(self._last, event), now

    @property
    def events(self) -> list[OutboxEvent]:
        """All events that are kept, published ones too."""
        return [stored.event for stored, _ in self._events.values()]

    def apply(self, operation: AboutOutbox, now: int) -> OutboxAnswer:
        """Carry out `operation` at the instant `now`."""
        match operation:
            case AddEvents(events):
                self.add(events, now)
                return EventsAdded(now)
            case OpenCursor(part, token):
                return self._open(part, token)
            case ReadEvents(cursor, limit):
                return self._read(cursor, limit)
            case SaveCursor():
                return self._save(operation, now)
            case PurgeEvents():
                return self._purge(operation, now)
            case ReadReleased() | SettleReleased() | ScanParked() | ReleaseParked():
                return self._about_parked(operation, now)
            case _:
                assert_never(operation)

    def _about_parked(
        self, operation: ReadReleased | SettleReleased | ScanParked | ReleaseParked, now: int
    ) -> ReleasedEvents | ReleasedSettled | ParkedPage | ParkedChanged:
        match operation:
            case ReadReleased(part, limit):
                return ReleasedEvents(tuple(self._released(part)[:limit]))
            case SettleReleased(part, published, failed):
                for position in published:
                    self._parked.pop(position, None)
                self._park((one for one in failed if one.stored.position in self._parked), now)
                return ReleasedSettled(self._held(part))
            case ScanParked(stream, after, limit):
                found = [one for one in self._of_stream(stream) if one.stored.position > after]
                page = tuple(found[:limit])
                return ParkedPage(page, page[-1].stored.position if len(found) > limit else None)
            case ReleaseParked():
                return ParkedChanged(self._release(operation))

    def _open(self, part: StreamPart, token: bytes) -> CursorFound:
        known = [(other, one) for other, one in self._cursors.items() if other.stream == part.stream]
        latest = latest_of(part, known, lambda one: one.at)
        mine = self._cursors.get(part)
        number = 0 if mine is None else mine.number
        cursor = Cursor(part=part, number=number + 1, token=token, at=0 if latest is None else latest.at)
        self._cursors[part] = cursor
        return CursorFound(cursor, self._held(part))

    def _read(self, cursor: Cursor, limit: int) -> EventBatch:
        found = [one for one, _ in self._events.values() if one.position > cursor.at and cursor.part.has(one.event)]
        page = tuple(found[:limit])
        is_full = len(page) == limit
        behind = replace(cursor, at=page[-1].position if is_full else self._last)
        return EventBatch(page, behind, is_last=not is_full, may_read_on=is_full)

    def _save(self, operation: SaveCursor, now: int) -> CursorSaved | CursorLost:
        cursor = operation.cursor
        saved = self._cursors.get(cursor.part)
        following = replace(cursor, number=cursor.number + 1)
        if saved == following:
            return CursorSaved(saved)  # the same again, after its reply was lost
        if saved is None or saved.token != cursor.token or saved.number != cursor.number:
            return CursorLost()
        self._cursors[cursor.part] = following
        self._park(operation.parked, now)
        return CursorSaved(following)

    def _purge(self, operation: PurgeEvents, now: int) -> EventsPurged:
        cursor = operation.cursor
        old = [
            one.position
            for one, added_us in self._events.values()
            if one.position <= cursor.at and cursor.part.has(one.event) and added_us <= now - operation.keep_us
        ]
        for position in old[: operation.limit]:
            del self._events[position]
        return EventsPurged(len(old[: operation.limit]))

    def _park(self, parked: Iterable[ParkedEvent], now: int) -> None:
        for one in parked:
            self._parked[one.stored.position] = replace(one, parked_us=now)

    def _of_stream(self, stream: str) -> list[ParkedEvent]:
        return sorted(
            (one for one in self._parked.values() if one.stored.event.stream == stream),
            key=lambda one: one.stored.position,
        )

    def _held(self, part: StreamPart) -> frozenset[str | None]:
        mine = (one.stored.event for one in self._parked.values())
        return frozenset(event.ordering_key for event in mine if part.has(event))

    def _released(self, part: StreamPart) -> list[ParkedEvent]:
        mine = [one for one in self._of_stream(part.stream) if part.has(one.stored.event)]
        stuck = {one.stored.event.ordering_key for one in mine if one.error is not None} - {None}
        return [one for one in mine if one.error is None and one.stored.event.ordering_key not in stuck]

    def _release(self, operation: ReleaseParked) -> int:
        wanted = operation.position
        found = [one for one in self._of_stream(operation.stream) if wanted in (None, one.stored.position)]
        changed = [one for one in found if operation.discard or one.error is not None]
        for one in changed:
            if operation.discard:
                del self._parked[one.stored.position]
            else:
                self._parked[one.stored.position] = replace(one, error=None)
        return len(changed)
