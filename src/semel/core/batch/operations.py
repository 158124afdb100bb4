"""What a store may be asked about batches.

- Loading goes on where it was: a lot is added only by whoever opened the batch last, and only behind what is there.
- A page is handed out once by a counter; one that nobody finished is found again, because it is not marked as done.
- Rows of items, and the counts of their page, change in one transaction. Records change before their rows do; whoever
  is cut off in between leaves rows that are behind, and the next one on that page brings them up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from semel.core.batch.values import BatchCounts, BatchPage, ItemPlace, NewItem, State, StoredBatch, StoredItem
from semel.core.flow import Asks

if TYPE_CHECKING:
    from semel.core.operations import Answer, Claim, Complete, Fail
    from semel.core.record import Lease, StoredRecord

MOST_ITEMS: Final = 2**31 - 1
"""More items than any batch has: as a limit, none."""


class OpenBatch(msgspec.Struct, Asks["BatchFound"], frozen=True, kw_only=True):
    """Begin to load a batch, or go on with it; whoever loaded it before adds nothing any more.

    What is loaded already, or is not to be loaded any more, is answered as it is.
    """

    scope: str
    id: str
    operation: str
    metadata: bytes
    keep_us: int
    token: bytes


class AddItems(msgspec.Struct, Asks["ItemsAdded | DuplicateItems | LoadLost"], frozen=True):
    """Add items behind the first `offset` positions, of which they take `count`; all of them, or none.

    Sent again after a lost reply, it answers as the first time.
    """

    number: int
    token: bytes
    offset: int
    count: int
    items: tuple[NewItem, ...]


class DropItems(msgspec.Struct, Asks["ItemsAdded | LoadLost"], frozen=True):
    """Take back at most `limit` of the positions that are loaded, from the last on, down to `offset`."""

    number: int
    token: bytes
    offset: int
    limit: int


class FinishLoad(msgspec.Struct, Asks["BatchFound | LoadLost"], frozen=True):
    """All items are there: let workers see them. Sent again, it answers as the first time."""

    number: int
    token: bytes
    total: int
    digest: bytes


class AbandonLoad(msgspec.Struct, Asks["LoadAbandoned"], frozen=True):
    """The input cannot be loaded: take the batch back, if nothing of it is loaded and nobody else loads it."""

    number: int
    token: bytes


class NoteBatch(msgspec.Struct, Asks["BatchFound"], frozen=True):
    """Replace the notes of a batch, if they are still as they were seen."""

    number: int
    seen: bytes
    notes: bytes


class ReadBatch(msgspec.Struct, Asks["BatchFound"], frozen=True):
    """Ask for a batch and its counts."""

    scope: str
    id: str


class ListBatches(msgspec.Struct, Asks["BatchesFound"], frozen=True):
    """At most `limit` batches of a scope, or of all, in the order in which they were begun, after that number.

    With `newest_first` the other way round: below that number, and 0 is the end. With `operation` only those that carry
    that one out.
    """

    scope: str | None
    state: State | None
    after: int
    limit: int
    newest_first: bool = False
    operation: str | None = None


class ReadItems(msgspec.Struct, Asks["ItemsFound"], frozen=True):
    """Ask for the items at the positions from `first` to below `end`, of one status or of any.

    Of one status, `limit` says how many at most: the first ones. With `only_ends` nobody looks at their data, which
    need not be readable then: a store that seals gives none, so no digest of an item may be taken of such an answer.
    """

    number: int
    first: int
    end: int
    status: int | None = None
    limit: int = MOST_ITEMS
    only_ends: bool = False


class FindItems(msgspec.Struct, Asks["ItemsFound"], frozen=True):
    """Ask for those of these items that a batch has."""

    number: int
    ids: tuple[str, ...]


class BeginRun(msgspec.Struct, Asks["BatchFound"], frozen=True):
    """Somebody works on a batch from now on. The first one says how many items a page has."""

    number: int
    page: int


class TakePage(msgspec.Struct, Asks["PageTaken"], frozen=True):
    """Ask for a page that was never handed out; nobody else is given it. Only of a batch that runs."""

    number: int


class FindPages(msgspec.Struct, Asks["PagesFound"], frozen=True):
    """At most `limit` pages after `after` that were handed out: open ones, with failed or doubtful items, or all."""

    number: int
    which: Literal["open", "failed", "in_doubt", "all"]
    after: int
    limit: int


class ClaimItems(msgspec.Struct, Asks["ItemsClaimed"], frozen=True):
    """Claims, as a list that is sent together."""

    claims: tuple[Claim, ...]


class ReadRecords(msgspec.Struct, Asks["RecordsFound"], frozen=True):
    """Ask for records, as a list; those of which there is none are None."""

    digests: tuple[bytes, ...]


class ItemEnd(msgspec.Struct, frozen=True):
    """What became of an item.

    Attributes:
        position: which item.
        status: what its row is to say; None: it stays as it is.
        write: what ends its record; None: there is nothing to write. The row changes only if this was recorded.
        outcome: for an item without a record.
    """

    position: int
    status: int | None
    write: Complete | Fail | None = None
    outcome: bytes | None = None


class SettleItems(msgspec.Struct, Asks["ItemsSettled"], frozen=True):
    """End the records of items of a page, and note it in their rows and in its counts."""

    number: int
    page: int
    ends: tuple[ItemEnd, ...]


class FinishPage(msgspec.Struct, Asks["PageFinished"], frozen=True):
    """The record of this round of a page is completed, or its items have ended without it: mark the page as done.

    If some of its items are pending again by now, another round begins instead.
    """

    number: int
    page: int
    round: int


class CommitPage(msgspec.Struct, Asks["ItemsSettled"], frozen=True):
    """Complete a page and note its items, all in the caller's transaction; only ever sent to a joined connection."""

    number: int
    page: BatchPage
    lease: Lease
    outcome: bytes
    ends: tuple[ItemEnd, ...]


class ChangeBatch(msgspec.Struct, Asks["BatchChangedState"], frozen=True, kw_only=True):
    """Have a batch paused, run on, or cancelled, if it is in one of the states it may be so from.

    A batch that was paused because too many items failed is `failed` where another is `cancelled`. One that is being
    loaded can be cancelled, and nothing else.
    """

    number: int
    to: Literal["running", "paused", "cancelled"]
    reason: str = ""
    has_overrun: bool = False


class EndBatch(msgspec.Struct, Asks["BatchFound"], frozen=True):
    """A batch that runs is completed, if every page was handed out and is done."""

    number: int


class ReopenItems(msgspec.Struct, Asks["ItemsSettled"], frozen=True):
    """Items of a page are pending again that had this status; a page that was done begins another round.

    A completed batch runs again. One that was cancelled, or has failed, is left alone.
    """

    number: int
    page: int
    positions: tuple[int, ...]
    status: int


class ReserveRate(msgspec.Struct, Asks["RateReserved"], frozen=True):
    """Reserve the time of so many items, at so many microseconds each, behind what others have reserved."""

    number: int
    count: int
    interval_us: int


class ExpiredBatches(msgspec.Struct, Asks["BatchesFound"], frozen=True):
    """Let batches expire that ended longer ago than they are kept, and have no doubtful items: all, or this one.

    So do batches that nobody has gone on loading for a long time.

    Answers at most `limit` that are expired, whenever they became so.
    """

    limit: int
    number: int | None = None


class HeldBatches(msgspec.Struct, Asks["BatchesFound"], frozen=True):
    """At most `limit` batches after that number that would expire if none of their items were in doubt."""

    after: int
    limit: int


class ForgetItems(msgspec.Struct, Asks["ItemsForgotten"], frozen=True):
    """Let settled records of a batch that is expired expire, too, and delete its items below `end`.

    With `is_last` also its pages and the batch itself.
    """

    number: int
    digests: tuple[bytes, ...]
    end: int
    is_last: bool = False


class FindSubject(msgspec.Struct, Asks["PlacesFound"], frozen=True):
    """At most `limit` items about a subject, in a scope or (None) in any, after a batch and a position."""

    scope: str | None
    subject: str
    after: tuple[int, int]
    limit: int


class EraseItems(msgspec.Struct, Asks["ItemsErased"], frozen=True):
    """Take data, outcome and what they are about out of items that are done, or that no run reaches any more.

    Those are the pending ones of a batch that was cancelled, or has failed.
    """

    number: int
    positions: tuple[int, ...]


class BatchFound(msgspec.Struct, frozen=True):
    """A batch, if there is one, with its counts where they were asked for, and the instant of the store."""

    batch: StoredBatch | None
    counts: BatchCounts
    now_us: int

    @property
    def known(self) -> StoredBatch:
        """The batch, for whoever knows that there is one."""
        assert self.batch is not None  # noqa: S101 - as said
        return self.batch


class BatchesFound(msgspec.Struct, frozen=True):
    """Batches in order."""

    batches: tuple[StoredBatch, ...]


class ItemsAdded(msgspec.Struct, frozen=True):
    """So many positions are loaded now."""

    loaded: int


class DuplicateItems(msgspec.Struct, frozen=True):
    """Nothing was added: these are there already."""

    ids: tuple[str, ...]


class LoadLost(msgspec.Struct, frozen=True):
    """Somebody else loads the batch by now, or it is loaded; nothing was changed."""


class LoadAbandoned(msgspec.Struct, frozen=True):
    """The batch is not there any more, or is somebody else's."""


class ItemsFound(msgspec.Struct, frozen=True):
    """Items by position."""

    items: tuple[StoredItem, ...]


class PageTaken(msgspec.Struct, frozen=True):
    """A page, or None: all were handed out, or the batch does not run. `state` is that of the batch."""

    page: BatchPage | None
    state: State


class PagesFound(msgspec.Struct, frozen=True):
    """Pages in order."""

    pages: tuple[BatchPage, ...]


class ItemsClaimed(msgspec.Struct, frozen=True):
    """One answer for each claim."""

    answers: tuple[Answer | Exception, ...]


class RecordsFound(msgspec.Struct, frozen=True):
    """Records in the order in which they were asked for."""

    records: tuple[StoredRecord | None, ...]


class ItemsSettled(msgspec.Struct, frozen=True):
    """One answer for each write, in the order of the ends that have one."""

    answers: tuple[Answer | Exception, ...] = ()


class PageFinished(msgspec.Struct, frozen=True):
    """Whether the page is done."""

    is_done: bool


class BatchChangedState(msgspec.Struct, frozen=True):
    """The batch as it is now; `is_changed`: it was changed, or is so already."""

    batch: StoredBatch | None
    is_changed: bool


class RateReserved(msgspec.Struct, frozen=True):
    """In how many microseconds the first of them may begin."""

    wait_us: int


class ItemsForgotten(msgspec.Struct, frozen=True):
    """Whether the batch was expired, so that they are deleted."""

    is_done: bool


class PlacesFound(msgspec.Struct, frozen=True):
    """Items by batch and position."""

    places: tuple[ItemPlace, ...]


class ItemsErased(msgspec.Struct, frozen=True):
    """How many items were erased."""

    count: int


AboutBatches = (
    OpenBatch
    | AddItems
    | DropItems
    | FinishLoad
    | AbandonLoad
    | NoteBatch
    | ReadBatch
    | ListBatches
    | ReadItems
    | FindItems
    | BeginRun
    | TakePage
    | FindPages
    | FinishPage
    | ChangeBatch
    | EndBatch
    | ReopenItems
    | ReserveRate
    | ExpiredBatches
    | HeldBatches
    | ForgetItems
    | FindSubject
    | EraseItems
)
"""The operations of batches that change no records by themselves, or only delete them."""
WithRecords = ClaimItems | ReadRecords | SettleItems | CommitPage
"""Those that are made of operations on records."""
BatchAnswer = (
    BatchFound
    | BatchesFound
    | ItemsAdded
    | DuplicateItems
    | LoadLost
    | LoadAbandoned
    | ItemsFound
    | PageTaken
    | PagesFound
    | ItemsClaimed
    | RecordsFound
    | ItemsSettled
    | PageFinished
    | BatchChangedState
    | RateReserved
    | ItemsForgotten
    | PlacesFound
    | ItemsErased
)
