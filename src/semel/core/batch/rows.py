"""How the rows of items follow their records, where somebody has decided about what was in doubt.

A row says that an item is in doubt until somebody follows its record: whoever runs or begins the batch next, asks how
far one that has ended is, or lets it expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from semel.core.batch.operations import (
    BatchFound,
    FindPages,
    ItemEnd,
    ReadBatch,
    ReadItems,
    ReadRecords,
    ReopenItems,
    SettleItems,
)
from semel.core.batch.values import SKIPPED, BatchPage, ItemStatus, StoredBatch, StoredItem, item_key
from semel.core.flow import Flow, ask
from semel.core.record import Status, StoredRecord

_PAGES: Final = 100
Undone = Literal["run", "fail", "leave"]
"""What becomes of items that did not happen, as somebody has decided: they run again, have failed, or stay."""


def status_of_record(record: StoredRecord | None) -> ItemStatus | None:
    """What the row of an item has to say, by its record; None: it may run again."""
    if record is None or not record.final:
        return None
    if record.status is Status.COMPLETED:
        return ItemStatus.COMPLETED
    is_skipped = record.status is Status.CANCELLED or (record.error is not None and record.error.type == SKIPPED)
    return ItemStatus.SKIPPED if is_skipped else ItemStatus.FAILED


def records_of(batch: StoredBatch, items: Sequence[StoredItem]) -> Flow[tuple[StoredRecord | None, ...]]:
    """The records of items, in their order."""
    if not items:
        return ()
    keys = (item_key(batch.scope, batch.operation, batch.id, item.id) for item in items)
    return (yield from ask(ReadRecords(tuple(key.digest for key in keys)))).records


def follow_doubts(batch: StoredBatch, undone: Undone) -> Flow[None]:
    """Read a batch, and note in the rows of its doubtful items what was decided about them since."""
    found = yield from ask(ReadBatch(batch.scope, batch.id))
    if found.batch is not None and found.batch.number == batch.number:
        yield from follow_doubts_of(found, undone)


def follow_doubts_of(found: BatchFound, undone: Undone) -> Flow[bool]:
    """The same for a batch that has just been read; answers whether anything was noted.

    Where what did not happen is left, only the first pages are looked at: those who ask often pay for it.
    """
    if not found.counts.in_doubt:
        return False
    after, is_any_noted = -1, False
    while True:
        pages = (yield from ask(FindPages(found.known.number, "in_doubt", after, _PAGES))).pages
        for page in pages:
            is_any_noted |= yield from _follow_page(found.known, page, undone)
        if len(pages) < _PAGES or undone == "leave":
            return is_any_noted
        after = pages[-1].page


def _follow_page(batch: StoredBatch, page: BatchPage, undone: Undone) -> Flow[bool]:
    first = page.page * batch.page
    doubtful = ReadItems(batch.number, first, first + batch.page, int(ItemStatus.IN_DOUBT), only_ends=True)
    items = (yield from ask(doubtful)).items
    ends: list[ItemEnd] = []
    opened: list[int] = []
    for item, record in zip(items, (yield from records_of(batch, items)), strict=True):
        status = status_of_record(record)
        if status is not None:
            ends.append(ItemEnd(item.position, status))
        elif record is not None and record.settled and undone == "run":
            opened.append(item.position)
        elif record is not None and record.settled and undone == "fail":
            ends.append(ItemEnd(item.position, ItemStatus.FAILED))
    if ends:
        yield from ask(SettleItems(batch.number, page.page, tuple(ends)))
    if opened:
        yield from ask(ReopenItems(batch.number, page.page, tuple(opened), int(ItemStatus.IN_DOUBT)))
    return bool(ends or opened)
