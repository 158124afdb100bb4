"""How a batch that is expired goes, with the records of its items and pages; in lots, and again after a crash.

A batch that cannot go, because somebody has changed it by hand, is named in the log and holds up none of the others.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from itertools import compress
from typing import Final

from semel.core.batch.operations import (
    ExpiredBatches,
    FindPages,
    ForgetItems,
    HeldBatches,
    ReadItems,
    ReadRecords,
)
from semel.core.batch.rows import follow_doubts
from semel.core.batch.values import BatchPage, ItemStatus, StoredBatch, commit_key, item_key, page_key
from semel.core.flow import Flow, ask
from semel.core.operations import Resolve
from semel.core.record import Note, Status
from semel.errors import SemelError, TryLater

_LOT: Final = 500
_LOG: Final = logging.getLogger("semel")
_EXPIRED: Final = Note("Cancelled", "its batch was cancelled, and is not kept any more").text()


def release_held() -> Flow[None]:
    """See, of batches that stay only because items are in doubt, what was decided about those since."""
    after = 0
    while True:
        held = (yield from ask(HeldBatches(after, _LOT))).batches
        for batch in held:
            yield from _alone(batch, follow_doubts(batch, "fail"))
        if len(held) < _LOT:
            return
        after = held[-1].number


def forget_expired(limit: int, number: int | None = None) -> Flow[int]:
    """Delete at most `limit` batches that are expired, or this one; answers how many there were."""
    expired = yield from ask(ExpiredBatches(limit, number))
    for batch in expired.batches:
        yield from (_forget(batch) if number is not None else _alone(batch, _forget(batch)))
    return len(expired.batches)


def _alone(batch: StoredBatch, work: Flow[None]) -> Flow[None]:
    """Do something with one of several batches, and go on with the next where it cannot be done with this one."""
    try:
        yield from work
    except TryLater:
        raise
    except SemelError as error:
        _LOG.error("the batch %r (number %d) does not expire: %s", batch.id, batch.number, error.code)


def _forget(batch: StoredBatch) -> Flow[None]:
    for first in range(0, batch.loaded, _LOT):
        found = yield from ask(ReadItems(batch.number, first, first + _LOT, only_ends=True))
        digests = tuple(item_key(batch.scope, batch.operation, batch.id, item.id).digest for item in found.items)
        pending = [item.status == ItemStatus.PENDING for item in found.items]
        yield from _end_left(list(compress(digests, pending)))
        yield from ask(ForgetItems(batch.number, digests, first + _LOT))
    after = -1
    while True:
        pages = (yield from ask(FindPages(batch.number, "all", after, _LOT))).pages
        rounds = (BatchPage(page.page, round_) for page in pages for round_ in range(page.round + 1))
        digests = tuple(page_key(batch.scope, batch.id, page).digest for page in rounds)
        if digests:
            yield from _end_left(digests)
            yield from ask(ForgetItems(batch.number, digests, batch.loaded))
        if len(pages) < _LOT:
            break
        after = pages[-1].page
    yield from ask(ForgetItems(batch.number, (commit_key(batch).digest,), batch.loaded, is_last=True))


def _end_left(digests: Sequence[bytes]) -> Flow[None]:
    """End records that a killed process left, and that the next attempt would have taken over: there is none.

    Where a person decides about doubts, records stay until somebody has.
    """
    if not digests:
        return
    for record in (yield from ask(ReadRecords(tuple(digests)))).records:
        if record is not None and not record.settled and record.in_doubt_policy == "rerun":
            # Not by chance, which is not at hand here; and nobody has this nonce, so nobody ends the record with it.
            nonce = hashlib.sha256(b"semel.batch.expired" + record.nonce).digest()[:16]
            ending = Resolve(record.key.digest, nonce, Status.CANCELLED, None, _EXPIRED, record.key.operation)
            yield from ask(ending)
