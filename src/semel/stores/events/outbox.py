"""The outbox in memory, which every store's outbox has to be like, and what the stores share about rows of events.

- Where a stream was read in other parts before, a part begins where all of its shards had been published, by whichever
  division came furthest: nothing is passed over, and what is published again is seen by consumers as a repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    EraseEvents,
    EventBatch,
    EventsAdded,
    EventsErased,
    EventsPeeked,
    EventsPurged,
    LagMeasured,
    MeasureLag,
    OpenCursor,
    OutboxAnswer,
    OutboxEvent,
    ParkedChanged,
    ParkedEvent,
    ParkedPage,
    PartProgress,
    PeekEvents,
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
    StreamLag,
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
    "scope",
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
        storable(event.scope),
    )


def stored_event(position: int, row: Sequence[Any]) -> StoredEvent:
    """The event that a row of `EVENT_COLUMNS` stands for."""
    (stream, shard, id_, source, type_, subject, time_us, content_type, data, is_binary, attributes, key, scope) = row
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
        scope=scope,
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
    found = furthest_by_shard(known, progress)
    ends = [found[shard] for shard in range(part.number, SHARDS, part.parts)]
    reached = [end for end in ends if end is not None]
    return min(reached, key=progress) if len(reached) == len(ends) else None


def furthest_by_shard(known: Iterable[tuple[StreamPart, C]], progress: Callable[[C], Any]) -> list[C | None]:
    """The furthest that each shard of a stream has come, by whichever division; None: it was never read."""
    found = list(known)
    return [
        max((one for part, one in found if shard % part.parts == part.number), key=progress, default=None)
        for shard in range(SHARDS)
    ]


def lags_of(
    waiting: Mapping[str, tuple[int, int | None]],
    parked: Mapping[str, tuple[int, int]],
    parts: Iterable[tuple[StreamPart, int]],
    now_us: int,
) -> LagMeasured:
    """The lag of each stream, by name.

    Args:
        waiting: how many events wait, and when the oldest was added.
        parked: how many are parked, and how many of them have an error.
        parts: the parts, and when each was saved.
        now_us: the instant of the store.
    """
    saved: dict[str, list[PartProgress]] = {}
    for part, saved_us in parts:
        saved.setdefault(part.stream, []).append(PartProgress(part, saved_us))
    found: list[StreamLag] = []
    for stream in sorted({*waiting, *parked, *saved}):
        count, oldest_us = waiting.get(stream, (0, None))
        in_all, failed = parked.get(stream, (0, 0))
        of_stream = sorted(saved.get(stream, ()), key=lambda one: (one.part.parts, one.part.number))
        found.append(
            StreamLag(
                stream=stream,
                waiting=count,
                oldest_us=oldest_us,
                parked=in_all,
                failed=failed,
                parts=tuple(of_stream),
            )
        )
    return LagMeasured(tuple(found), now_us)


def released_among(parked: Sequence[ParkedEvent]) -> list[ParkedEvent]:
    """Those of the parked events of a part that may be published again: their key has none with an error."""
    stuck = {one.stored.event.ordering_key for one in parked if one.error is not None} - {None}
    return [one for one in parked if one.error is None and one.stored.event.ordering_key not in stuck]


class MemoryOutbox:
    """Events by position, cursors by part, and what is parked."""

    def __init__(self) -> None:
        self._events: dict[int, tuple[StoredEvent, int]] = {}
        self._last = 0
        self._cursors: dict[StreamPart, Cursor] = {}
        self._saved_us: dict[StreamPart, int] = {}
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
                return self._open(part, token, now)
            case ReadEvents(cursor, limit):
                return self._read(cursor, limit)
            case SaveCursor():
                return self._save(operation, now)
            case PurgeEvents():
                return self._purge(operation, now)
            case EraseEvents():
                return self._erase(operation)
            case ReadReleased() | SettleReleased() | ScanParked() | ReleaseParked():
                return self._about_parked(operation, now)
            case MeasureLag(stream, most):
                return self._measure(stream, most, now)
            case PeekEvents(stream, limit):
                return EventsPeeked(tuple(stored for stored, _ in self._waiting(stream)[:limit]))
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

    def _measure(self, stream: str | None, most: int, now: int) -> LagMeasured:
        streams = {event.stream for event in self.events} if stream is None else {stream}
        waiting = {name: found for name in streams if (found := self._waiting(name)[:most])}
        parked: dict[str, tuple[int, int]] = {}
        for one in self._parked.values():
            name = one.stored.event.stream
            if stream in (None, name):
                in_all, failed = parked.get(name, (0, 0))
                parked[name] = in_all + 1, failed + (one.error is not None)
        saved = [(part, at) for part, at in self._saved_us.items() if stream in (None, part.stream)]
        return lags_of({name: (len(found), found[0][1]) for name, found in waiting.items()}, parked, saved, now)

    def _waiting(self, stream: str) -> list[tuple[StoredEvent, int]]:
        """Events that wait, with the instants at which they were added."""
        known = [(part, cursor.at) for part, cursor in self._cursors.items() if part.stream == stream]
        ends = furthest_by_shard(known, lambda at: at)
        return [
            (stored, added_us)
            for stored, added_us in self._events.values()
            if stored.event.stream == stream and stored.position > (ends[stored.event.shard] or 0)
        ]

    def _open(self, part: StreamPart, token: bytes, now: int) -> CursorFound:
        known = [(other, one) for other, one in self._cursors.items() if other.stream == part.stream]
        latest = latest_of(part, known, lambda one: one.at)
        mine = self._cursors.get(part)
        number = 0 if mine is None else mine.number
        cursor = Cursor(part=part, number=number + 1, token=token, at=0 if latest is None else latest.at)
        self._cursors[part] = cursor
        self._saved_us[part] = now
        return CursorFound(cursor, self._held(part))

    def _read(self, cursor: Cursor, limit: int) -> EventBatch:
        owner = self._cursors.get(cursor.part)
        if owner is None or owner.token != cursor.token:
            return EventBatch((), cursor, is_last=True)
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
        self._saved_us[cursor.part] = now
        # What was erased since it was read stays erased.
        self._park((one for one in operation.parked if one.stored.position in self._events), now)
        return CursorSaved(following)

    def _purge(self, operation: PurgeEvents, now: int) -> EventsPurged:
        cursor = operation.cursor
        old = [
            one.position
            for one, added_us in self._events.values()
            if operation.after < one.position <= cursor.at
            and cursor.part.has(one.event)
            and added_us <= now - operation.keep_us
        ]
        lot = old[: operation.limit]
        for position in lot:
            del self._events[position]
        return EventsPurged(len(lot), lot[-1] if lot else operation.after, self._purge_parked(operation, now))

    def _purge_parked(self, operation: PurgeEvents, now: int) -> int:
        if operation.keep_parked_us is None:
            return 0
        since = now - operation.keep_parked_us
        mine = [one for one in self._of_stream(operation.cursor.part.stream) if one.error is not None]
        old = [one for one in mine if operation.cursor.part.has(one.stored.event) and one.parked_us <= since]
        for one in old:
            del self._parked[one.stored.position]
        return len(old)

    def _erase(self, operation: EraseEvents) -> EventsErased:
        looked_at = [stored for position, (stored, _) in self._events.items() if position > operation.after]
        page = looked_at[: operation.limit]
        concerned = [stored for stored in page if operation.concerns(stored.event)]
        waiting = [stored for stored in concerned if operation.published_only and self._waits(stored)]
        kept = {stored.position for stored in waiting}
        if operation.published_only:
            kept |= self._parked.keys()
        gone = [stored.position for stored in concerned if stored.position not in kept]
        for position in () if operation.dry_run else gone:
            del self._events[position]
        if len(page) == operation.limit:
            return EventsErased(len(gone), page[-1].position, len(waiting))
        parked = [position for position, one in self._parked.items() if operation.concerns(one.stored.event)]
        if operation.published_only:
            return EventsErased(len(gone), None, len(waiting), len(parked))
        for position in () if operation.dry_run else parked:
            del self._parked[position]
        return EventsErased(len(gone) + len(parked), None)

    def _waits(self, stored: StoredEvent) -> bool:
        return any(one.position == stored.position for one, _ in self._waiting(stored.event.stream))

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
        return released_among([one for one in self._of_stream(part.stream) if part.has(one.stored.event)])

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
