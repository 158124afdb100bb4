"""From events to what the outbox keeps of them, and back."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from semel.core.events.outbox import OutboxEvent, shard_of
from semel.core.record import instant, store_instant
from semel.core.sealing.values import refuse_sealed
from semel.errors import UsageError
from semel.events.event import MAX_TEXT, Event, is_plain_text, is_text, restore_event

_NO_ATTRIBUTES: Final = b'{"extensions":{}}'
"""What nearly every event has, and a relay need not decode."""
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
        return _NO_ATTRIBUTES
    attributes: dict[str, Any] = {"extensions": dict(event.extensions)}
    if has_text:
        attributes["text"] = True
    if event.dataschema is not None:
        attributes["dataschema"] = event.dataschema
    return msgspec.json.encode(attributes)


def from_outbox(kept: OutboxEvent) -> Event:
    """The event again.

    Raises:
        RecordUnreadable: it is sealed, and no keyring was given.
    """
    refuse_sealed(kept.attributes)
    dataschema, extensions, has_text = None, {}, False
    if kept.attributes != _NO_ATTRIBUTES:
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
        time=None if kept.time_us is None else instant(kept.time_us),
        datacontenttype=kept.content_type,
        dataschema=dataschema,
        extensions=extensions,
        body=kept.data,
    )
