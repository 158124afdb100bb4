"""Events that wait to be published, and what a store may be asked about them.

- Events are added in the transaction of what they tell of: with the completion of a record, or by a statement of their
  own in the caller's transaction.
- Nothing compares ids here: an event that is added twice is published twice, and its consumers see that it is one.
"""

from __future__ import annotations

import hashlib

import msgspec

from semel.core.flow import Asks

SHARDS = 64


class OutboxEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it is kept until it is published.

    Attributes:
        stream: which relay moves it.
        shard: of its ordering key, or of its id; relays share a stream by shards.
        ordering_key: events of one key are published in the order in which they were added.
        attributes: what else there is of it, as JSON: `dataschema` and extensions.
        binary: whether `data` is bytes by itself, and not JSON.
    """

    stream: str
    shard: int
    id: str
    source: str
    type: str
    subject: str | None
    time_us: int | None
    content_type: str | None
    data: bytes | None
    binary: bool
    attributes: bytes
    ordering_key: str | None


class EventsAdded(msgspec.Struct, frozen=True):
    """The events are part of the transaction, at this instant of the store."""

    at_us: int


class AddEvents(msgspec.Struct, Asks["EventsAdded"], frozen=True):
    """Add events, in the caller's transaction or in one of their own."""

    events: tuple[OutboxEvent, ...]


def shard_of(text: str) -> int:
    """The shard of an ordering key or an id: the same on every machine."""
    return hashlib.sha256(text.encode()).digest()[0] % SHARDS
