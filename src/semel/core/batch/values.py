"""Batches, their items and pages, as a store keeps them.

- An item is an ordinary operation whose key is made of the batch and the item. Its record says what became of it; the
  status in the row of the item repeats that for counting, and follows it.
- A page is an ordinary operation, too, of semel's own. Its lease says who works on it. The number of its round makes a
  new key of it when some of its items are to be run again.
- What counts is written together with the rows it counts, so that it never differs from them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, Literal

import msgspec

from semel.core.key import MAX_TEXT, SHARED, Key, make_key

BATCH: Final = "semel:batch"
"""The operation of loading a batch."""
PAGE: Final = "semel:batch_page"
"""The operation of a page."""
MODULUS: Final = 1 << 256
SKIPPED: Final = "semel.Skipped"
"""The type of the failure that a record of a skipped item has."""
KEPT_US: Final = 100 * 365 * 86_400_000_000
"""How long the records of a batch are kept by themselves: longer than the batch, which takes them with it."""
ABANDONED_US: Final = 30 * 86_400_000_000
"""After how long a batch that nobody goes on loading goes by itself."""

State = Literal["loading", "pending", "running", "paused", "completed", "cancelled", "failed", "expired"]
"""`expired`: nobody sees it any more, and what is left of it is being deleted."""
ENDED: Final[tuple[State, ...]] = ("completed", "cancelled", "failed")
STOPPED: Final[tuple[State, ...]] = ("cancelled", "failed")
"""What is pending in such a batch never runs."""


class ItemStatus(IntEnum):
    """What became of an item, as far as its row knows."""

    PENDING = 0
    COMPLETED = 1
    FAILED = 2
    SKIPPED = 3
    IN_DOUBT = 4


def may_change(before: int, after: int) -> bool:
    """Whether what became of an item may be noted so.

    A late worker changes nothing that is done. A failure gives way to a success alone: only a retry opens it again.
    """
    if before in (ItemStatus.PENDING, ItemStatus.IN_DOUBT):
        return before != after
    return before == ItemStatus.FAILED and after in (ItemStatus.COMPLETED, ItemStatus.SKIPPED)


class StoredBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch.

    Attributes:
        number: names it inside the store.
        scope: whose it is, as in a key.
        id: what its owner calls it.
        operation: that of its items.
        state: how far it is.
        reason: why it is paused, cancelled or failed.
        has_overrun: whether it was paused because too many items failed.
        page: how many items a page has; 0 before the first run.
        next_page: the pages below have been handed out.
        total: how many items there are; 0 while it is loaded.
        loaded: how many positions are loaded.
        digest: the sum of the digests of its items.
        metadata: JSON.
        notes: what people should know, as JSON texts.
        keep_us: how long it is kept after its end.
    """

    number: int
    scope: str
    id: str
    operation: str
    state: State
    reason: str = ""
    has_overrun: bool = False
    page: int = 0
    next_page: int = 0
    total: int = 0
    loaded: int = 0
    digest: bytes = bytes(32)
    metadata: bytes = b"null"
    notes: bytes = b"[]"
    keep_us: int = 0
    created_us: int = 0
    started_us: int | None = None
    updated_us: int = 0
    ended_us: int | None = None

    @property
    def pages(self) -> int:
        """How many pages it has."""
        return -(-self.total // self.page) if self.page else 0


class NewItem(msgspec.Struct, frozen=True):
    """An item to be added: where it stands, its id, its data as JSON, what it is about as JSON, and its subject."""

    position: int
    id: str
    data: bytes
    about: bytes | None = None
    subject: str | None = None


class StoredItem(msgspec.Struct, frozen=True):
    """An item. `outcome` is there only where its page was committed as a whole, so that it has no record."""

    position: int
    id: str
    data: bytes
    about: bytes | None
    status: int
    outcome: bytes | None = None
    is_erased: bool = False


class ItemPlace(msgspec.Struct, frozen=True):
    """Where an item is: in which batch, of which scope, state and operation, at which position."""

    number: int
    scope: str
    batch: str
    operation: str
    state: State
    position: int
    id: str
    status: int

    @property
    def may_run(self) -> bool:
        """Whether the item has yet to run, and somebody may run it."""
        return self.status == ItemStatus.PENDING and self.state not in STOPPED


class BatchCounts(msgspec.Struct, frozen=True):
    """How many items ended how; `recent` were so in pages that changed within the last minute.

    Of those pages, `recent_done` are done and `recent_open` are not.
    """

    completed: int = 0
    failed: int = 0
    skipped: int = 0
    in_doubt: int = 0
    recent: int = 0
    recent_done: int = 0
    recent_open: int = 0

    @property
    def settled(self) -> int:
        """All that will not run by themselves."""
        return self.completed + self.failed + self.skipped + self.in_doubt


class BatchPage(msgspec.Struct, frozen=True):
    """A page that somebody may work on."""

    page: int
    round: int


def item_key(scope: str, operation: str, batch: str, item: str) -> Key:
    """The key of an item."""
    value: str | tuple[str, str] = (batch, item)
    if len(batch.encode()) + len(item.encode()) + 4 > MAX_TEXT:
        value = make_key(batch, item)
    return Key.of(value, operation=operation, scope=scope or SHARED)


def page_key(scope: str, batch: str, page: BatchPage) -> Key:
    """The key of a page."""
    return _own_key(PAGE, scope, batch, page.page, page.round)


def load_key(scope: str, batch: str) -> Key:
    """The key of loading a batch."""
    return _own_key(BATCH, scope, batch, "load")


def commit_key(batch: StoredBatch) -> Key:
    """The key of what was decided about the way in which effects are committed.

    The number is in it, because another batch may have the same id once this one has expired.
    """
    return _own_key(BATCH, batch.scope, batch.id, batch.number, "commit")


def _own_key(operation: str, scope: str, *parts: str | int) -> Key:
    """A key of semel's own. The id of a batch may be as long as a key, and then there is no place beside it."""
    is_short = len(f"({', '.join(map(str, parts))})".encode()) <= MAX_TEXT
    return Key.of(parts if is_short else make_key(*parts), operation=operation, scope=scope or SHARED)


def item_digest(item: str, data: bytes) -> bytes:
    """What an item is: its id, with its length, and its data."""
    name = item.encode()
    return hashlib.sha256(b"semel.item.1%d:%b%b" % (len(name), name, data)).digest()


def add_digests(total: int, items: Iterable[NewItem]) -> int:
    """The sum that a batch is known by: of any order, and of which no two equal items cancel each other out."""
    return (total + sum([int.from_bytes(item_digest(item.id, item.data), "big") for item in items])) % MODULUS
