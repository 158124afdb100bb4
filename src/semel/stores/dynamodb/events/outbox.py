"""The outbox on DynamoDB: events are written with their record, found by a sparse index, deleted when published.

- Events are put in the TransactWriteItems that completes their record, so there are at most 99 of them.
- Numbers of positions are taken before that write. Whoever adds an event after another one was added has a higher one.
- The index lags behind the table, and not in the order of writes. So a relay reads whatever it names, from the lowest
  position on: nothing is passed over, for what is not published is still there. But an event may be named before one
  that was added earlier, and then it is published first: the order of a key is not promised here.
- A part belongs to the relay whose token its cursor has. Saving moves the cursor first, then parks, then deletes: what
  fails in between is done when it is saved again, or published again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from semel.core.events.outbox import (
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
from semel.errors import SchemaOutdated, StoreUnavailable, UsageError
from semel.stores.dynamodb.clock import Moment
from semel.stores.dynamodb.commands import Call, Cancelled, Chain, Item, NoIndex, Now, Refused, Steps, Together
from semel.stores.dynamodb.events.items import (
    INDEX,
    LISTED,
    PARKED_AT,
    PLACE,
    PLACES,
    POSITION,
    STREAM,
    counter_key,
    cursor_names,
    cursors_key,
    error_values,
    event_item,
    event_key,
    event_of,
    key_bytes,
    list_key,
    listed_positions,
    parked_item,
    parked_key,
    parked_of,
    place_name,
    place_of,
    position_of,
    saved_parts,
    shard_at,
    shards_of,
)
from semel.stores.dynamodb.items import KEY, plain
from semel.stores.dynamodb.request_builders import Expression
from semel.stores.events.outbox import lags_of, released_among
from semel.stores.rows import storable

MOST_TOGETHER: Final = 100
"""So many items the service writes together."""
_IN_ONE_READING: Final = 100
_IN_ONE_DELETION: Final = 25
_ROUNDS: Final = 20
_MOST_AHEAD: Final = 20
"""After so many full batches in a row it is read from the lowest position again, where something may have come."""
T = TypeVar("T")
Asking = Generator[Any, Any, T]


def too_many_error(events: int, others: int) -> UsageError:
    """The error for more writes than one request takes."""
    return UsageError(
        f"DynamoDB writes {MOST_TOGETHER} items together, and this would be {events} events and {others} other writes, "
        f"the record among them; nothing was written. Add fewer events in one operation."
    )


def event_writes(table: str, events: Sequence[OutboxEvent], now: int, others: int) -> Asking[list[Item]]:
    """The writes that add events, with positions of their own.

    Raises:
        UsageError: there are too many together with `others`, or one is too large.
    """
    if len(events) + others > MOST_TOGETHER:
        raise too_many_error(len(events), others)
    for event in events:
        event_item(event, 0, now)  # too large: refused before a position is taken
    wanted = Counter((event.stream, place_of(event.shard)) for event in events)
    following: dict[tuple[str, int], int] = {}
    for (stream, place), count in wanted.items():
        following[stream, place] = (yield from _take_numbers(table, stream, place, count)) - count
    writes: list[Item] = []
    for event in events:
        counted = event.stream, place_of(event.shard)
        following[counted] += 1
        item = event_item(event, position_of(following[counted], event.shard), now)
        writes.append({"Put": {"TableName": table, "Item": item}})
    return writes


def _take_numbers(table: str, stream: str, place: int, count: int) -> Asking[int]:
    """The last of so many numbers that nobody else is given."""
    expression = Expression()
    text = f"ADD {expression.name('number')} {expression.value(count)}"
    parameters = {"TableName": table, "Key": counter_key(stream, place), "UpdateExpression": text}
    reply = yield Call("update_item", {**parameters, **expression.parameters(), "ReturnValues": "UPDATED_NEW"})
    return int(plain(reply["Attributes"]["number"]))


def about_outbox(table: str, operation: AboutOutbox) -> Asking[OutboxAnswer]:
    """Carry one operation out, outside any transaction of a caller."""
    match operation:
        case AddEvents(events):
            return (yield from _add(table, events))
        case OpenCursor():
            return (yield from _open(table, operation))
        case ReadEvents(cursor, limit):
            return (yield from _read(table, cursor, limit))
        case SaveCursor():
            return (yield from _save(table, operation))
        case PurgeEvents():
            return (yield from _purge(table, operation))
        case EraseEvents():
            return (yield from _erase(table, operation))
        case MeasureLag():
            return (yield from _measure(table, operation))
        case PeekEvents(stream, limit):
            _, items = yield from _waiting(table, StreamPart(stream), 0, limit)
            return EventsPeeked(tuple(map(event_of, items)))
        case ReadReleased() | SettleReleased() | ScanParked() | ReleaseParked():
            return (yield from _about_parked(table, operation))


def _about_parked(
    table: str, operation: ReadReleased | SettleReleased | ScanParked | ReleaseParked
) -> Asking[OutboxAnswer]:
    match operation:
        case ReadReleased(part, limit):
            return ReleasedEvents(tuple(released_among((yield from _parked_of_part(table, part)))[:limit]))
        case SettleReleased():
            return (yield from _settle(table, operation))
        case ScanParked():
            return (yield from _scan_parked(table, operation))
        case ReleaseParked():
            return (yield from _release(table, operation))


def _add(table: str, events: Sequence[OutboxEvent]) -> Asking[EventsAdded]:
    moment: Moment = yield Now()
    writes = yield from event_writes(table, events, moment.high, 0)
    reply = yield Call("transact_write_items", {"TransactItems": writes})
    if isinstance(reply, Cancelled):
        raise StoreUnavailable("DynamoDB gave the addition of events up; nothing was added. Try again.", conflict=True)
    return EventsAdded(moment.high)


def _open(table: str, operation: OpenCursor) -> Asking[CursorFound]:
    part, moment = operation.part, (yield Now())
    expression, names = Expression(), cursor_names(operation.part)
    values = {names["token"]: operation.token, names["saved_us"]: moment.high, STREAM: part.stream}
    counted = f"{expression.name(names['number'])} {expression.value(1)}"
    text = f"SET {', '.join(expression.setting(**values))} ADD {counted}"
    parameters = {"TableName": table, "Key": cursors_key(part.stream), "UpdateExpression": text}
    reply = yield Call("update_item", {**parameters, **expression.parameters(), "ReturnValues": "UPDATED_NEW"})
    number = plain(reply["Attributes"][names["number"]])
    cursor = Cursor(part=part, number=number, token=operation.token)
    return CursorFound(cursor, (yield from _held(table, part)))


def _held(table: str, part: StreamPart) -> Asking[frozenset[str | None]]:
    parked = yield from _parked_of_part(table, part)
    return frozenset(one.stored.event.ordering_key for one in parked)


def _read(table: str, cursor: Cursor, limit: int) -> Asking[EventBatch]:
    """Closes: a relay that was overtaken, and does not know what was parked since, publishes what waits behind that."""
    is_full_at, items = yield from _waiting(table, cursor.part, cursor.at, limit, cursors_key(cursor.part.stream))
    if items and not _is_owned(items.pop(), cursor):
        return EventBatch((), cursor, is_last=True)
    events = tuple(map(event_of, items))
    if is_full_at is not None and cursor.turns < _MOST_AHEAD:
        behind = replace(cursor, at=is_full_at, turns=cursor.turns + 1)
        return EventBatch(events, behind, is_last=False, may_read_on=True)
    # Once these are deleted it is read from the lowest position again: something may have come there.
    is_last = is_full_at is None and cursor.at == 0
    return EventBatch(events, replace(cursor, at=0, turns=0), is_last=is_last)


def _is_owned(item: Item, cursor: Cursor) -> bool:
    """Whether nobody else has opened the part since, as the item of the stream's cursors says."""
    token = item.get(cursor_names(cursor.part)["token"])
    return token is not None and plain(token) == cursor.token


def _waiting(
    table: str, part: StreamPart, after: int, limit: int, also: Item | None = None
) -> Asking[tuple[int | None, list[Item]]]:
    """The next events that wait, by position; and the last position where the index named as many as were asked for.

    What the index names and the table does not have any more was published a moment ago. The item `also` is read after
    the index, and comes last; not where the index names nothing.
    """
    shards = set(shards_of(part))
    chains = tuple(
        _named_positions(table, place_name(part.stream, place), shards, after, limit)
        for place in range(PLACES)
        if any(place_of(shard) == place for shard in shards)
    )
    named = yield Together(chains)
    positions = sorted(position for (found,) in named for position in found)[:limit]
    keys = [event_key(part.stream, position) for position in positions]
    items = yield from _get_all(table, [*keys, also] if keys and also is not None else keys)
    return positions[-1] if len(positions) == limit else None, items


def _named_positions(table: str, place: str, shards: set[int], after: int, limit: int) -> Chain:
    """The positions in one place of the index, as the only answer of a chain."""
    found: list[int] = []
    start: Item | None = {}
    while start is not None and len(found) < limit:
        expression = Expression()
        text = f"{expression.compare(PLACE, '=', place)} AND {expression.compare(POSITION, '>', after)}"
        parameters = {"TableName": table, "IndexName": INDEX, "KeyConditionExpression": text, "Limit": max(limit, 100)}
        reply = yield Call("query", {**parameters, **expression.parameters(), **_from(start)})
        if isinstance(reply, NoIndex):
            raise SchemaOutdated(
                f"The table {table} has no index {INDEX}, by which events are found; nothing was read or lost. Run "
                f"`semel migrate`."
            )
        positions = (plain(item[POSITION]) for item in reply["Items"])
        found += [position for position in positions if shard_at(position) in shards]
        start = reply.get("LastEvaluatedKey")
    return [found[:limit]]  # type: ignore[list-item]  # positions instead of answers: no plan sees them


def _save(table: str, operation: SaveCursor) -> Asking[CursorSaved | CursorLost]:
    """Closes: a relay that was overtaken while its events were on their way."""
    cursor, part = operation.cursor, operation.cursor.part
    moment: Moment = yield Now()
    expression, names = Expression(), cursor_names(part)
    terms = expression.equal(**{names["number"]: cursor.number, names["token"]: cursor.token})
    sets = expression.setting(**{names["saved_us"]: moment.high})
    sets.append(expression.rising(names["number"]))
    reply = yield Call(
        "update_item",
        {
            "TableName": table,
            "Key": cursors_key(part.stream),
            "UpdateExpression": f"SET {', '.join(sets)}",
            "ConditionExpression": " AND ".join(terms),
            **expression.parameters(),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        },
    )
    following = replace(cursor, number=cursor.number + 1)
    if isinstance(reply, Refused) and not _is_saved(reply.item, names, following):
        return CursorLost()
    for one in operation.parked:
        yield from _park(table, following, one, moment)
    yield from _delete_all(table, [event_key(part.stream, position) for position in operation.published])
    return CursorSaved(following)


def _is_saved(item: Item | None, names: Mapping[str, str], cursor: Cursor) -> bool:
    """Whether this very cursor was saved already, and the reply was lost."""
    known = item or {}
    return all(
        name in known and plain(known[name]) == value
        for name, value in ((names["number"], cursor.number), (names["token"], cursor.token))
    )


def _park(table: str, cursor: Cursor, parked: ParkedEvent, moment: Moment) -> Steps:
    """Closes: an event that was erased, or parked already, since it was read; and a relay that was overtaken since."""
    stream, position = cursor.part.stream, parked.stored.position
    gone, fence, names = Expression(), Expression(), cursor_names(cursor.part)
    terms = fence.equal(**{names["number"]: cursor.number, names["token"]: cursor.token})
    writes = [
        {"ConditionCheck": _conditional(table, cursors_key(stream), fence, terms)},
        {"Delete": _conditional(table, event_key(stream, position), gone, [f"attribute_exists({gone.name(KEY)})"])},
        {"Put": {"TableName": table, "Item": parked_item(parked, moment.high)}},
        {"Update": _listing(table, stream, position, "ADD")},
    ]
    yield from _write_unless_refused(writes)


def _conditional(table: str, key: Item, expression: Expression, terms: list[str]) -> Item:
    return {"TableName": table, "Key": key, "ConditionExpression": " AND ".join(terms), **expression.parameters()}


def _listing(table: str, stream: str, position: int, verb: str) -> Item:
    """The parameters of the update that lists a parked event, or takes it off the list."""
    names = {"#positions": LISTED, "#of": STREAM}
    values = {":one": {"NS": [str(position)]}, ":of": {"S": stream}}
    return {
        "TableName": table,
        "Key": list_key(stream, shard_at(position)),
        "UpdateExpression": f"SET #of = :of {verb} #positions :one",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }


def _write_unless_refused(writes: list[Item]) -> Asking[bool]:
    """Write all of them, or none where a condition does not hold.

    Raises:
        StoreUnavailable: others wrote to the same items all the time.
    """
    for _ in range(_ROUNDS):
        reply = yield Call("transact_write_items", {"TransactItems": writes})
        if not isinstance(reply, Cancelled):
            return True
        codes = {reason.get("Code", "None") for reason in reply.reasons}
        if "ConditionalCheckFailed" in codes:
            return False
    raise StoreUnavailable("The outbox changed under every write to it; nothing was written. Try again.", conflict=True)


def _parked_of_part(table: str, part: StreamPart) -> Asking[list[ParkedEvent]]:
    positions = yield from _parked_positions(table, part)
    items = yield from _get_all(table, [parked_key(part.stream, position) for position in positions])
    return list(map(parked_of, items))


def _parked_positions(table: str, part: StreamPart) -> Asking[list[int]]:
    lists = yield from _get_all(table, [list_key(part.stream, shard) for shard in shards_of(part)])
    return listed_positions(lists)


def _settle(table: str, operation: SettleReleased) -> Asking[ReleasedSettled]:
    moment: Moment = yield Now()
    stream = operation.part.stream
    for position in operation.published:
        yield from _drop_parked(table, stream, position)
    for one in operation.failed:
        values = {"attempts": one.attempts, "parked_us": moment.high, **error_values(one.error)}
        yield _change_parked(table, stream, one.stored.position, values)
    return ReleasedSettled((yield from _held(table, operation.part)))


def _drop_parked(table: str, stream: str, position: int) -> Asking[bool]:
    """Delete a parked event; whether it was there."""
    expression = Expression()
    there = [f"attribute_exists({expression.name(KEY)})"]
    deletion = _conditional(table, parked_key(stream, position), expression, there)
    return (
        yield from _write_unless_refused(
            [{"Delete": deletion}, {"Update": _listing(table, stream, position, "DELETE")}]
        )
    )


def _change_parked(table: str, stream: str, position: int, values: Mapping[str, Any]) -> Call:
    """Closes: an event that was discarded since it was read; it must not come back as half an item."""
    expression = Expression()
    text = f"SET {', '.join(expression.setting(**values))}"
    terms = [f"attribute_exists({expression.name(KEY)})"]
    condition = _conditional(table, parked_key(stream, position), expression, terms)
    return Call("update_item", {**condition, "UpdateExpression": text})


def _scan_parked(table: str, operation: ScanParked) -> Asking[ParkedPage]:
    positions = yield from _parked_positions(table, StreamPart(operation.stream))
    later = [position for position in positions if position > operation.after]
    wanted = later[: operation.limit]
    items = yield from _get_all(table, [parked_key(operation.stream, position) for position in wanted])
    return ParkedPage(tuple(map(parked_of, items)), wanted[-1] if len(later) > operation.limit else None)


def _release(table: str, operation: ReleaseParked) -> Asking[ParkedChanged]:
    stream, count = operation.stream, 0
    positions = yield from _parked_positions(table, StreamPart(stream))
    for position in [one for one in positions if operation.position in (None, one)]:
        if operation.discard:
            count += yield from _drop_parked(table, stream, position)
            continue
        expression = Expression()
        gone = ", ".join(expression.name(name) for name in ("error_type", "error_message"))
        terms = [f"attribute_exists({expression.name('error_type')})"]
        condition = _conditional(table, parked_key(stream, position), expression, terms)
        reply = yield Call("update_item", {**condition, "UpdateExpression": f"REMOVE {gone}"})
        count += not isinstance(reply, Refused)
    return ParkedChanged(count)


def _purge(table: str, operation: PurgeEvents) -> Asking[EventsPurged]:
    """Nothing but what is parked: what is published is deleted by then."""
    if operation.keep_parked_us is None:
        return EventsPurged(0)
    moment: Moment = yield Now()
    parked = yield from _parked_of_part(table, operation.cursor.part)
    since, count = moment.low - operation.keep_parked_us, 0
    for one in parked:
        if one.error is not None and one.parked_us <= since:
            count += yield from _drop_parked(table, operation.cursor.part.stream, one.stored.position)
    return EventsPurged(0, 0, count)


def _erase(table: str, operation: EraseEvents) -> Asking[EventsErased]:
    """All at once: the whole table is read, first for what waits, then for what is parked.

    What is published is deleted by then, so that with `published_only` there is nothing to delete.
    """
    waiting = yield from _scan_events(table, PLACE, operation)
    if not (operation.published_only or operation.dry_run):
        yield from _delete_all(table, [{KEY: item[KEY]} for item in waiting])
    parked = yield from _scan_events(table, PARKED_AT, operation)
    if operation.published_only:
        return EventsErased(0, None, len(waiting), len(parked))
    if operation.dry_run:
        return EventsErased(len(waiting) + len(parked), None)
    count = len(waiting)
    for item in parked:
        count += yield from _drop_parked(table, plain(item[STREAM]), plain(item[POSITION]))
    return EventsErased(count, None)


def _scan_events(table: str, having: str, operation: EraseEvents) -> Asking[list[Item]]:
    """The events that have this attribute: those that wait, or those that are parked."""
    expression = Expression()
    asked = {"scope": storable(operation.scope), "subject": storable(operation.subject), STREAM: operation.stream}
    terms = [f"attribute_exists({expression.name(having)})"]
    terms += expression.equal(**{name: value for name, value in asked.items() if value is not None})
    projection = ", ".join(expression.name(name) for name in (KEY, STREAM, POSITION))
    return (yield from _scan(table, expression, " AND ".join(terms), projection))


def _scan(table: str, expression: Expression, filtering: str, projection: str) -> Asking[list[Item]]:
    parameters = {"TableName": table, "FilterExpression": filtering, "ProjectionExpression": projection}
    found: list[Item] = []
    start: Item | None = {}
    while start is not None:
        reply = yield Call("scan", {**parameters, **expression.parameters(), "ConsistentRead": True, **_from(start)})
        found += reply["Items"]
        start = reply.get("LastEvaluatedKey")
    return found


def _measure(table: str, operation: MeasureLag) -> Asking[LagMeasured]:
    """How much waits. Without a stream the whole table is read for their names."""
    streams: list[str] = [] if operation.stream is None else [operation.stream]
    if operation.stream is None:
        expression = Expression()
        there, projection = f"attribute_exists({expression.name(STREAM)})", expression.name(STREAM)
        streams = sorted({plain(item[STREAM]) for item in (yield from _scan(table, expression, there, projection))})
    moment: Moment = yield Now()
    waiting: dict[str, tuple[int, int]] = {}
    parked: dict[str, tuple[int, int]] = {}
    saved: list[tuple[StreamPart, int]] = []
    for stream in streams:
        _, items = yield from _waiting(table, StreamPart(stream), 0, operation.most)
        if items:
            waiting[stream] = len(items), min(plain(item["added_us"]) for item in items)
        found = yield from _parked_of_part(table, StreamPart(stream))
        if found:
            parked[stream] = len(found), sum(one.error is not None for one in found)
        reply = yield Call("get_item", {"TableName": table, "Key": cursors_key(stream), "ConsistentRead": True})
        saved += saved_parts(stream, reply.get("Item"))
    return lags_of(waiting, parked, saved, moment.high)


def _get_all(table: str, keys: Sequence[Item]) -> Asking[list[Item]]:
    """Those of these items that are there, in the same order, as they are now."""
    lots = [list(keys[start : start + _IN_ONE_READING]) for start in range(0, len(keys), _IN_ONE_READING)]
    if not lots:
        return []
    replies = yield Together(tuple(_get_lot(table, lot) for lot in lots))
    found: dict[bytes, Item] = {key_bytes(item): item for reply in replies for item in reply}
    return [found[name] for name in map(key_bytes, keys) if name in found]


def _get_lot(table: str, keys: list[Item]) -> Chain:
    found: list[Any] = []
    wanted: Any = {table: {"Keys": keys, "ConsistentRead": True}}
    for _ in range(_ROUNDS):
        reply = yield Call("batch_get_item", {"RequestItems": wanted})
        found += reply["Responses"].get(table, [])
        wanted = reply.get("UnprocessedKeys")
        if not wanted:
            return found
    raise StoreUnavailable("DynamoDB left events unread, again and again; nothing was changed. Try again.")


def _delete_all(table: str, keys: Iterable[Item]) -> Steps:
    """Delete these items; what is gone already is no error."""
    deletions = [{"DeleteRequest": {"Key": key}} for key in keys]
    lots = [deletions[start : start + _IN_ONE_DELETION] for start in range(0, len(deletions), _IN_ONE_DELETION)]
    if lots:
        yield Together(tuple(_delete_lot(table, lot) for lot in lots))


def _delete_lot(table: str, deletions: list[Item]) -> Chain:
    wanted: Any = {table: deletions}
    for _ in range(_ROUNDS):
        reply = yield Call("batch_write_item", {"RequestItems": wanted})
        wanted = reply.get("UnprocessedItems")
        if not wanted:
            return []
    raise StoreUnavailable("DynamoDB left published events undeleted, again and again; they are published again.")


def _from(start: Item) -> Item:
    return {"ExclusiveStartKey": start} if start else {}
