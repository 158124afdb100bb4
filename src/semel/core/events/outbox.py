"""Events that wait to be published, and what a store may be asked about them.

- Events are added in the transaction of what they tell of: with the completion of a record, or by a statement of their
  own in the caller's transaction.
- Nothing compares ids here: an event that is added twice is published twice, and its consumers see that it is one.
- A stream is read in parts, each by one relay at a time. How far a part has been published is its cursor. Saving it is
  the fence: a relay that was overtaken saves nothing any more. Nothing that is committed is ever passed over, whatever
  the order of commits.
- What cannot be published is parked in the very write that moves the cursor past it. While an event of an ordering key
  is parked, later events of that key wait behind it.
- What is erased is gone from everywhere, whether it was published, waits, or is parked. What a relay has read before
  cannot bring it back.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from semel.core.flow import Asks
from semel.core.record import Failure

SHARDS = 64


NO_ATTRIBUTES: Final = b'{"extensions":{}}'
"""The attributes of nearly every event, which a relay need not decode."""


class OutboxEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):  # of texts, numbers and bytes alone
    """An event as it is kept until it is published.

    Attributes:
        stream: which relay moves it.
        shard: of its ordering key, or of its id; relays share a stream by shards.
        ordering_key: events of one key are published in the order in which they were added.
        attributes: what else there is of it, as JSON: `dataschema` and extensions.
        binary: whether `data` is bytes by itself, and not JSON.
        scope: whose it is, as that of a key; empty where it belongs to nobody in particular.
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
    scope: str = ""


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event with its position: of two events of one ordering key, the one added later has the higher one."""

    position: int
    event: OutboxEvent


class StreamPart(msgspec.Struct, frozen=True):
    """The events of a stream whose shard, divided by `parts`, leaves `number`."""

    stream: str
    number: int = 0
    parts: int = 1

    def has(self, event: OutboxEvent) -> bool:
        """Whether an event belongs to it."""
        return event.stream == self.stream and event.shard % self.parts == self.number


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far a part has been published, as its store knows it; whoever reads gives it back as it was given.

    Attributes:
        part: what it is about.
        number: how often it was opened or saved.
        token: who opened it: 16 random bytes.
        at: the position up to which it has come.
        seen: what had been committed when the last complete reading began, where the store tells that by transactions.
        floor: where the next reading begins; below it there are only the late ones, which `seen` names.
        until: the same as `seen` for the reading that is under way.
        next_floor: what `floor` becomes when that reading is complete.
        top: the highest position that was given away when it was read last.
        safe: the same of the last reading that was followed by a save.
        turns: how many batches in a row were full.
        cluster: which server `seen` and `until` are of.
        server: where the part was opened, and since when that runs, where the store tells it.
    """

    part: StreamPart
    number: int
    token: bytes
    at: int = 0
    seen: str = ""
    floor: int = 0
    until: str | None = None
    next_floor: int = 0
    top: int = 0
    safe: int = 0
    turns: int = 0
    cluster: int = 0
    server: int = 0

    def following(self, saved: Cursor) -> Cursor:
        """The cursor of what was read before `saved` was saved, to be saved after it."""
        return msgspec.structs.replace(self, number=saved.number)


class ParkedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is not published for now.

    Attributes:
        error: why it could not be published; None: it waits behind another one of its key, or was released.
        attempts: how often it was tried.
        parked_us: since when; 0 before it is stored.
    """

    stored: StoredEvent
    error: Failure | None
    attempts: int = 0
    parked_us: int = 0


class AddEvents(msgspec.Struct, Asks["EventsAdded"], frozen=True):
    """Add events, in the caller's transaction or in one of their own."""

    events: tuple[OutboxEvent, ...]


class OpenCursor(msgspec.Struct, Asks["CursorFound"], frozen=True):
    """Take a part of a stream over: ask how far it has been published, and which keys are held up."""

    part: StreamPart
    token: bytes


class ReadEvents(msgspec.Struct, Asks["EventBatch"], frozen=True):
    """Ask for the next events of a part, at most `limit`, in the order in which they are to be published.

    Who has been overtaken is given none: what was parked since holds up events of its key.
    """

    cursor: Cursor
    limit: int


class SaveCursor(msgspec.Struct, Asks["CursorSaved | CursorLost"], frozen=True):
    """All that was read up to this cursor is published, or to be parked; sent again, it answers as the first time."""

    cursor: Cursor
    published: tuple[int, ...]
    parked: tuple[ParkedEvent, ...] = ()


class ReadReleased(msgspec.Struct, Asks["ReleasedEvents"], frozen=True):
    """Ask for parked events of a part that may be published again: those whose key has none with an error.

    In the order of their positions, at most `limit`.
    """

    part: StreamPart
    limit: int


class SettleReleased(msgspec.Struct, Asks["ReleasedSettled"], frozen=True):
    """What came of released events: those published are deleted, those that failed again keep their error.

    The answer is which keys are still held up.
    """

    part: StreamPart
    published: tuple[int, ...]
    failed: tuple[ParkedEvent, ...] = ()


class ScanParked(msgspec.Struct, Asks["ParkedPage"], frozen=True):
    """One page of parked events of a stream, in the order of their positions, after the cursor."""

    stream: str
    after: int
    limit: int


class ReleaseParked(msgspec.Struct, Asks["ParkedChanged"], frozen=True):
    """Let a parked event be published again, or every one of the stream; with `discard` it is deleted instead."""

    stream: str
    position: int | None
    discard: bool = False


class PurgeEvents(msgspec.Struct, Asks["EventsPurged"], frozen=True):
    """Delete at most `limit` events of a part that were published, and added more than `keep_us` ago.

    Attributes:
        after: only positions above it, for the caller to go on after a full lot.
        keep_parked_us: where it is given, delete also what was parked with an error longer ago than this; those that
            wait behind it may then be published.
    """

    cursor: Cursor
    keep_us: int
    limit: int
    after: int = 0
    keep_parked_us: int | None = None


class EraseEvents(msgspec.Struct, Asks["EventsErased"], frozen=True, kw_only=True):
    """Delete the events of a scope, of a subject, or of both, whatever has become of them.

    At most `limit` events above the position `after` are looked at; the caller goes on where the answer says. What is
    parked is deleted with the last of them.

    Attributes:
        published_only: leave alone, and count, what is not published yet: events that wait, and those that are parked.
        dry_run: delete nothing, and count what would be deleted.
    """

    scope: str | None
    subject: str | None
    stream: str | None = None
    after: int = 0
    limit: int
    published_only: bool = False
    dry_run: bool = False

    def concerns(self, event: OutboxEvent) -> bool:
        """Whether an event is to be deleted."""
        asked = ((self.scope, event.scope), (self.subject, event.subject), (self.stream, event.stream))
        return all(wanted is None or wanted == found for wanted, found in asked)


class MeasureLag(msgspec.Struct, Asks["LagMeasured"], frozen=True):
    """Ask how many events wait, of one stream or of each that is known. Takes nothing over and changes nothing.

    `most`: no more are counted of each stream.
    """

    stream: str | None
    most: int


class PeekEvents(msgspec.Struct, Asks["EventsPeeked"], frozen=True):
    """Ask for the events of a stream that wait to be published, by position, at most `limit`. Changes nothing."""

    stream: str
    limit: int


class EventsAdded(msgspec.Struct, frozen=True):
    """The events are part of the transaction, at this instant of the store."""

    at_us: int


class CursorFound(msgspec.Struct, frozen=True):
    """Where to go on. `held` are the ordering keys of parked events; None among them: of events without a key."""

    cursor: Cursor
    held: frozenset[str | None]


class EventBatch(msgspec.Struct, frozen=True):
    """Events, and the cursor behind them.

    `is_last`: there are no further ones for now. `may_read_on`: the next batch may be read before this one is saved.
    `needs_save`: also where there are no events, so that the next reading need not pass over what this one passed over.
    """

    events: tuple[StoredEvent, ...]
    cursor: Cursor
    is_last: bool
    may_read_on: bool = False
    needs_save: bool = False


class CursorSaved(msgspec.Struct, frozen=True):
    """It is saved; this is how it goes on from there."""

    cursor: Cursor


class CursorLost(msgspec.Struct, frozen=True):
    """Somebody else has opened the part since; nothing was saved."""


class ReleasedEvents(msgspec.Struct, frozen=True):
    """Parked events that may be published again."""

    events: tuple[ParkedEvent, ...]


class ReleasedSettled(msgspec.Struct, frozen=True):
    """Which keys are still held up, as in `CursorFound`."""

    held: frozenset[str | None]


class ParkedPage(msgspec.Struct, frozen=True):
    """One page of parked events; no cursor means that it was the last."""

    events: tuple[ParkedEvent, ...]
    after: int | None


class ParkedChanged(msgspec.Struct, frozen=True):
    """How many parked events were released or discarded."""

    count: int


class EventsPurged(msgspec.Struct, frozen=True):
    """How many published events were deleted, the last position among them, and how many parked ones."""

    count: int
    after: int = 0
    parked: int = 0


class EventsErased(msgspec.Struct, frozen=True):
    """How many rows were deleted, and after which position to go on; None: all have been looked at.

    An event that is parked may have two, one of them in the outbox. `waiting` and `parked` are those that were left
    alone because they are not published.
    """

    count: int
    after: int | None
    waiting: int = 0
    parked: int = 0


class PartProgress(msgspec.Struct, frozen=True):
    """When the cursor of a part was opened or saved last."""

    part: StreamPart
    saved_us: int


class StreamLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far the relays of a stream are behind.

    Attributes:
        waiting: committed events that are neither published nor parked; more than asked for are not counted.
        oldest_us: when the oldest of them was added; None: none waits.
        parked: events that are parked, those that wait behind others of their key with them.
        failed: parked events with an error.
        parts: the parts that relays have read it in, of every division.
    """

    stream: str
    waiting: int
    oldest_us: int | None
    parked: int
    failed: int
    parts: tuple[PartProgress, ...]


class LagMeasured(msgspec.Struct, frozen=True):
    """Streams by name, and the instant of the store."""

    streams: tuple[StreamLag, ...]
    now_us: int


class EventsPeeked(msgspec.Struct, frozen=True):
    """Events that wait, in the order of their positions."""

    events: tuple[StoredEvent, ...]


AboutOutbox = (
    AddEvents
    | OpenCursor
    | ReadEvents
    | SaveCursor
    | ReadReleased
    | SettleReleased
    | ScanParked
    | ReleaseParked
    | PurgeEvents
    | EraseEvents
    | MeasureLag
    | PeekEvents
)
"""All operations of the outbox."""
OutboxAnswer = (
    EventsAdded
    | CursorFound
    | EventBatch
    | CursorSaved
    | CursorLost
    | ReleasedEvents
    | ReleasedSettled
    | ParkedPage
    | ParkedChanged
    | EventsPurged
    | EventsErased
    | LagMeasured
    | EventsPeeked
)


def shard_of(text: str) -> int:
    """The shard of an ordering key or an id: the same on every machine."""
    return hashlib.sha256(text.encode()).digest()[0] % SHARDS
