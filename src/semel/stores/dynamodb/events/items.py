"""Items of the outbox: events that wait, events that are parked, positions, and who publishes which part.

- An event is an item of its own. While it waits, it is in the sparse index `semel_outbox`, by its place and its
  position; published, it is deleted. The index holds keys alone and lags behind: what it names is read from the table.
- A position is a number of its place, times the number of shards, plus the shard. So it is unique in its stream, it
  rises within a place, and it tells the shard.
- Parked events are listed in one item for each shard, as a set of positions: it is read as it is, unlike an index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from semel.core.events.outbox import SHARDS, OutboxEvent, ParkedEvent, StoredEvent, StreamPart
from semel.core.record import Failure
from semel.errors import UsageError
from semel.stores.dynamodb.commands import Item
from semel.stores.dynamodb.items import KEY, LARGEST, attribute, key_of, plain, size_of
from semel.stores.events.outbox import EVENT_COLUMNS, event_row, stored_event
from semel.stores.rows import stored_failure

INDEX: Final = "semel_outbox"
PLACE: Final = "outbox_place"
POSITION: Final = "position"
PLACES: Final = 8
"""Into so many parts of the index the events of a stream are spread: each of them takes a thousand writes a second."""
LISTED: Final = "positions"
PARKED_AT: Final = "parked_us"
STREAM: Final = "outbox_of"
_EVENT: Final = b"event:"
_PARKED: Final = b"parked:"
_LIST: Final = b"parked list:"
_COUNTER: Final = b"position:"
_CURSORS: Final = b"cursors:"


def _key(kind: bytes, stream: str, number: int | None = None) -> Item:
    """A primary key; none of them is as long as a digest."""
    name = hashlib.sha256(stream.encode()).digest()[:16]
    return key_of(kind + name + (b"" if number is None else number.to_bytes(8, "big")))


def event_key(stream: str, position: int) -> Item:
    """The primary key of an event that waits."""
    return _key(_EVENT, stream, position)


def parked_key(stream: str, position: int) -> Item:
    """The primary key of a parked event."""
    return _key(_PARKED, stream, position)


def list_key(stream: str, shard: int) -> Item:
    """The primary key of the list of what is parked of a shard."""
    return _key(_LIST, stream, shard)


def counter_key(stream: str, place: int) -> Item:
    """The primary key of the number that was given away last in a place."""
    return _key(_COUNTER, stream, place)


def cursors_key(stream: str) -> Item:
    """The primary key of who publishes which part of a stream."""
    return _key(_CURSORS, stream)


def place_of(shard: int) -> int:
    """The place of a shard."""
    return shard % PLACES


def place_name(stream: str, place: int) -> str:
    """What the index has a place under."""
    return f"{place}:{stream}"


def position_of(number: int, shard: int) -> int:
    """The position of an event that was given this number of its place."""
    return number * SHARDS + shard


def shard_at(position: int) -> int:
    """The shard of the event at a position."""
    return position % SHARDS


def shards_of(part: StreamPart) -> list[int]:
    """The shards of a part."""
    return list(range(part.number, SHARDS, part.parts))


def cursor_names(part: StreamPart) -> dict[str, str]:
    """The attributes of a part in the item of its stream's cursors."""
    return {name: f"{name}_{part.parts}_{part.number}" for name in ("number", "token", "saved_us")}


def saved_parts(stream: str, item: Item | None) -> list[tuple[StreamPart, int]]:
    """The parts of a stream that were opened, and when each was saved."""
    found: list[tuple[StreamPart, int]] = []
    for name, stored in (item or {}).items():
        if name.startswith("saved_us_"):
            parts, number = name.removeprefix("saved_us_").split("_")
            found.append((StreamPart(stream, int(number), int(parts)), plain(stored)))
    return found


def event_item(event: OutboxEvent, position: int, added_us: int) -> Item:
    """The item of an event that waits.

    Raises:
        UsageError: it is too large for one.
    """
    values = {
        **_event_values(event),
        STREAM: event.stream,
        PLACE: place_name(event.stream, place_of(event.shard)),
        POSITION: position,
        "added_us": added_us,
    }
    item = {**event_key(event.stream, position), **_attributes(values)}
    if size_of(item) > LARGEST - _ROOM_TO_PARK:
        raise UsageError(
            f"The event {event.id[:64]!r} is larger than the {LARGEST // 1024} KiB that DynamoDB keeps in an item; "
            f"nothing was written. Keep large data elsewhere, and its address in the event."
        )
    return item


_ROOM_TO_PARK: Final = 4096


def parked_item(parked: ParkedEvent, now: int) -> Item:
    """The item of a parked event: not in the index."""
    event, position = parked.stored.event, parked.stored.position
    values = {
        **_event_values(event),
        STREAM: event.stream,
        POSITION: position,
        "attempts": parked.attempts,
        PARKED_AT: now,
        **error_values(parked.error),
    }
    return {**parked_key(event.stream, position), **_attributes(values)}


def error_values(error: Failure | None) -> dict[str, str]:
    """What is kept of an error."""
    if error is None:
        return {}
    kept = stored_failure(error)
    return {"error_type": kept.type, "error_message": kept.message[:1000]}


def _event_values(event: OutboxEvent) -> dict[str, Any]:
    return dict(zip(EVENT_COLUMNS, event_row(event), strict=True))


def _attributes(values: Mapping[str, Any]) -> Item:
    return {name: attribute(value) for name, value in values.items() if value is not None}


def event_of(item: Item) -> StoredEvent:
    """The event that an item keeps."""
    return stored_event(plain(item[POSITION]), [_value(item, name) for name in EVENT_COLUMNS])


def parked_of(item: Item) -> ParkedEvent:
    """The parked event that an item keeps."""
    error = None if "error_type" not in item else Failure(_value(item, "error_type"), _value(item, "error_message"))
    return ParkedEvent(
        stored=event_of(item), error=error, attempts=_value(item, "attempts"), parked_us=_value(item, "parked_us")
    )


def _value(item: Item, name: str) -> Any:
    return plain(item[name]) if name in item else None


def listed_positions(items: Iterable[Item]) -> list[int]:
    """The positions in lists of what is parked."""
    return sorted(int(one) for item in items for one in item.get(LISTED, {"NS": []})["NS"])


def key_bytes(item: Item) -> bytes:
    """The primary key of an item, to tell items apart."""
    return bytes(plain(item[KEY]))
