"""How a batch that is expired goes, with the records of its items and pages; in lots, and again after a crash."""

from __future__ import annotations

from typing import Final

from semel.core.batch.operations import ExpiredBatches, FindPages, ForgetItems, ReadItems
from semel.core.batch.values import BatchPage, StoredBatch, commit_key, item_key, page_key
from semel.core.flow import Flow, ask

_LOT: Final = 500


def forget_expired(limit: int, number: int | None = None) -> Flow[int]:
    """Delete at most `limit` batches that are expired, or this one; answers how many there were."""
    expired = yield from ask(ExpiredBatches(limit, number))
    for batch in expired.batches:
        yield from _forget(batch)
    return len(expired.batches)


def _forget(batch: StoredBatch) -> Flow[None]:
    for first in range(0, batch.loaded, _LOT):
        found = yield from ask(ReadItems(batch.number, first, first + _LOT))
        keys = (item_key(batch.scope, batch.operation, batch.id, item.id) for item in found.items)
        yield from ask(ForgetItems(batch.number, tuple(key.digest for key in keys), first + _LOT))
    after = -1
    while True:
        pages = (yield from ask(FindPages(batch.number, "all", after, _LOT))).pages
        rounds = (BatchPage(page.page, round_) for page in pages for round_ in range(page.round + 1))
        digests = tuple(page_key(batch.scope, batch.id, page).digest for page in rounds)
        if digests:
            yield from ask(ForgetItems(batch.number, digests, batch.loaded))
        if len(pages) < _LOT:
            break
        after = pages[-1].page
    yield from ask(ForgetItems(batch.number, (commit_key(batch).digest,), batch.loaded, is_last=True))
