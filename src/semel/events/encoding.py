"""From events to what the outbox keeps of them, and back."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from semel.core.events.outbox import NO_ATTRIBUTES, OutboxEvent, shard_of
from semel.core.record import exact_instant, store_instant
from semel.core.sealing.values import refuse_sealed
from semel.errors import RecordUnreadable, UsageError
from semel.events.event import MAX_TEXT, Event, is_plain_text, is_text, restore_event

_decode: Final = msgspec.json.Decoder().decode


def to_outbox(event: Event, stream: str, ordering_key: str | None, scope: str = "") -> OutboxEvent:
    """What is kept of an event.

    Raises:
        EventInvalid: its data cannot be written as JSON.
        UsageError: the ordering key is no text.
    """
    if ordering_key is not None and not (isinstance(ordering_key, str) and is_text(ordering_key)):
        raise UsageError(
            f"ordering_key is text of 1 to {MAX_TEXT} characters without control characters; the event was not added."
        )
    return OutboxEvent(
        stream=stream,
        shard=shard_of(ordering_key or event.id),
        id=event.id,
        source=event.source,
        type=event.type,
        subject=event.subject,
        time_us=None if event.time is None else store_instant(event.time),
        content_type=event.datacontenttype,
        data=None if event.data is None else event.body,
        binary=isinstance(event.data, bytes | bytearray) or is_plain_text(event),
        attributes=_encode_attributes(event),
        ordering_key=ordering_key,
        scope=scope,
    )


def _encode_attributes(event: Event) -> bytes:
    """The attributes that have no column of their own, as JSON."""
    has_text = is_plain_text(event)
    if not event.extensions and event.dataschema is None and not has_text:
        return NO_ATTRIBUTES
    attributes: dict[str, Any] = {"extensions": dict(event.extensions)}
    if has_text:
        attributes["text"] = True
    if event.dataschema is not None:
        attributes["dataschema"] = event.dataschema
    return msgspec.json.encode(attributes)


def show_outbox_event(kept: OutboxEvent) -> Event:
    """The event as a list shows it: what of it cannot be read, as it was changed by hand, is left out.

    Raises:
        RecordUnreadable: it is sealed, and no keyring was given.
    """
    try:
        return from_outbox(kept)
    except RecordUnreadable:
        raise
    except Exception:  # noqa: BLE001 - there are many ways to be none, and it hides no other
        left = replace(kept, data=None, attributes=NO_ATTRIBUTES, time_us=None)
        return from_outbox(left)


def from_outbox(kept: OutboxEvent) -> Event:
    """The event again.

    Raises:
        RecordUnreadable: it is sealed, and no keyring was given.
        OverflowError: its time is beyond the years that there are.
    """
    refuse_sealed(kept.attributes)
    dataschema, extensions, has_text = None, {}, False
    if kept.attributes != NO_ATTRIBUTES:
        attributes = _decode(kept.attributes)
        dataschema, extensions = attributes.get("dataschema"), attributes["extensions"]
        has_text = attributes.get("text", False)
    data: Any = kept.data
    if data is not None and has_text:
        data = data.decode()
    elif data is not None and not kept.binary:
        data = _decode(data)
    return restore_event(
        type=kept.type,
        source=kept.source,
        subject=kept.subject,
        data=data,
        id=kept.id,
        time=None if kept.time_us is None else exact_instant(kept.time_us),
        datacontenttype=kept.content_type,
        dataschema=dataschema,
        extensions=extensions,
        body=kept.data,
    )
