"""Plans of the outbox for the SQL stores: operations as commands, one plan for every server. No I/O.

Adding events is part of whatever transaction it is asked in. All that relays ask is committed by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from semel.core.events.outbox import (
    AddEvents,
    CursorFound,
    EraseEvents,
    EventsAdded,
    EventsPeeked,
    MeasureLag,
    OpenCursor,
    OutboxAnswer,
    ParkedChanged,
    ParkedPage,
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
    StreamPart,
)
from semel.core.store import Answers, Plan
from semel.errors import UsageError
from semel.stores.events.outbox import parked_event, stored_event
from semel.stores.rows import storable
from semel.stores.sql.dialect import Asking, Dialect, OutboxDialect
from semel.stores.sql.errors import other_database


def _add_events(dialect: Dialect, operations: Sequence[AddEvents], *, joined: bool) -> Plan:
    answers: Answers = []
    for operation in operations:
        rows = yield dialect.outbox.add(operation.events, joined=joined)
        if not rows:
            raise other_database()
        answers.append(EventsAdded(rows[0][0]))
    return answers


def _each(carry_out: Callable[[OutboxDialect, Any], Asking[OutboxAnswer]]) -> Callable[..., Plan]:
    def many(dialect: Dialect, operations: Sequence[Any], *, joined: bool) -> Plan:
        if joined:
            raise UsageError("A relay publishes what is committed; nothing was read. Use it outside within().")
        answers: Answers = []
        for operation in operations:
            answers.append((yield from carry_out(dialect.outbox, operation)))
        return answers

    return many


def _open(outbox: OutboxDialect, operation: OpenCursor) -> Asking[OutboxAnswer]:
    cursor = yield from outbox.open(operation)
    return CursorFound(cursor, (yield from _held(outbox, operation.part)))


def _held(outbox: OutboxDialect, part: StreamPart) -> Asking[frozenset[str | None]]:
    return frozenset(key for (key,) in (yield outbox.held(part)))


def _read(outbox: OutboxDialect, operation: ReadEvents) -> Asking[OutboxAnswer]:
    return (yield from outbox.read(operation.cursor, operation.limit))


def _save(outbox: OutboxDialect, operation: SaveCursor) -> Asking[OutboxAnswer]:
    return (yield from outbox.save(operation))


def _purge(outbox: OutboxDialect, operation: PurgeEvents) -> Asking[OutboxAnswer]:
    return (yield from outbox.purge(operation))


def _erase(outbox: OutboxDialect, operation: EraseEvents) -> Asking[OutboxAnswer]:
    asked = replace(operation, scope=storable(operation.scope), subject=storable(operation.subject))
    return (yield from outbox.erase(asked))


def _read_released(outbox: OutboxDialect, operation: ReadReleased) -> Asking[OutboxAnswer]:
    return ReleasedEvents(tuple(map(parked_event, (yield outbox.released(operation.part, operation.limit)))))


def _settle(outbox: OutboxDialect, operation: SettleReleased) -> Asking[OutboxAnswer]:
    yield from outbox.settle(operation)
    return ReleasedSettled((yield from _held(outbox, operation.part)))


def _scan_parked(outbox: OutboxDialect, operation: ScanParked) -> Asking[OutboxAnswer]:
    rows = yield outbox.parked(operation)
    page = tuple(map(parked_event, rows[: operation.limit]))
    return ParkedPage(page, page[-1].stored.position if len(rows) > operation.limit else None)


def _release(outbox: OutboxDialect, operation: ReleaseParked) -> Asking[OutboxAnswer]:
    ((count,),) = yield outbox.release(operation)
    return ParkedChanged(count)


def _measure(outbox: OutboxDialect, operation: MeasureLag) -> Asking[OutboxAnswer]:
    return (yield from outbox.measure(operation))


def _peek(outbox: OutboxDialect, operation: PeekEvents) -> Asking[OutboxAnswer]:
    rows = yield from outbox.peek(operation)
    return EventsPeeked(tuple(stored_event(row[0], row[1:]) for row in rows))


OUTBOX_PLANS: Final[dict[type, Callable[..., Plan]]] = {
    AddEvents: _add_events,
    OpenCursor: _each(_open),
    ReadEvents: _each(_read),
    SaveCursor: _each(_save),
    PurgeEvents: _each(_purge),
    EraseEvents: _each(_erase),
    ReadReleased: _each(_read_released),
    SettleReleased: _each(_settle),
    ScanParked: _each(_scan_parked),
    ReleaseParked: _each(_release),
    MeasureLag: _each(_measure),
    PeekEvents: _each(_peek),
}
