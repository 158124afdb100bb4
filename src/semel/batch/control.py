"""What is decided about a batch, read from it, and taken out of it, as flows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from semel.batch.ends import is_record_of
from semel.batch.items import STATUS_NAMES, ItemResult
from semel.core import codec
from semel.core.batch.operations import (
    BatchFound,
    ChangeBatch,
    FindPages,
    ItemEnd,
    ListBatches,
    ReadBatch,
    ReadItems,
    ReopenItems,
    SettleItems,
)
from semel.core.batch.rows import follow_doubts_of, records_of, status_of_record
from semel.core.batch.values import ENDED, BatchPage, ItemStatus, State, StoredBatch, StoredItem
from semel.core.erasure.port import ErasureTally, SubjectErasure
from semel.core.erasure.stored import ITEMS, ErasableItems
from semel.core.fingerprint import Fingerprints
from semel.core.flow import Flow, ask
from semel.core.operations import Reopen, Reopened, Resolve, Resolved
from semel.core.record import UNREADABLE, Failure, Note, Status, StoredRecord
from semel.errors import RecordNotFound, RecordUnreadable, ResultNotKept, UsageError

PAGE_OF_RESULTS: Final = 500
PAGE_OF_BATCHES: Final = 100
_PAGES: Final = 100
_NOT_OWN: Final = (Status.RUNNING, Status.IN_DOUBT, Status.COMPLETED)
"""A record that says so is not the one of an item that has failed."""
_KEY_REUSED: Final = Failure(
    "semel.errors.KeyReused",
    "the key of this item was used before with other data, such as by an earlier batch of this id; it did not run. "
    "Load it under another id",
)
Retried = Literal["failed", "in_doubt"]


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """How many items were erased, and how many were not, because they have not ended."""

    erased: int
    refused: int


@dataclass(frozen=True, slots=True)
class _Retry:
    """Which items are to be run again and why, and what tells the records of others from theirs."""

    which: Retried
    reason: str
    new_nonce: Callable[[], bytes]
    fingerprints: Fingerprints


def read_batch(scope: str, id_: str) -> Flow[BatchFound]:
    """A batch with its counts.

    Raises:
        RecordNotFound: there is none of that id.
    """
    found = yield from ask(ReadBatch(scope, id_))
    if found.batch is None or found.batch.state == "expired":
        raise RecordNotFound(f"There is no batch {id_!r} in this scope, or it has expired; nothing was changed.")
    return found


def read_again(batch: StoredBatch) -> Flow[BatchFound]:
    """A batch that was found before, as it is now, with its counts.

    Raises:
        RecordNotFound: it is not there any more, whatever has its id by now.
    """
    found = yield from read_batch(batch.scope, batch.id)
    if found.known.number != batch.number:
        raise RecordNotFound(
            f"The batch {batch.id!r} has expired, and another one has its id by now; nothing was changed. Get it anew."
        )
    return found


def read_status(batch: StoredBatch) -> Flow[BatchFound]:
    """A batch with its counts; of one that has ended, with what was decided since about its doubts.

    Raises:
        RecordNotFound: it is not there any more.
    """
    found = yield from read_again(batch)
    if found.known.state in ENDED and (yield from follow_doubts_of(found, "leave")):
        found = yield from read_again(batch)
    return found


def list_page(
    scope: str | None,
    state: State | None,
    after: int,
    *,
    newest_first: bool = False,
    operation: str | None = None,
    limit: int = PAGE_OF_BATCHES,
) -> Flow[tuple[StoredBatch, ...]]:
    """Some batches of a scope, or of all, after that one; with `newest_first` before that one, and 0 is the end."""
    found = yield from ask(ListBatches(scope, state, after, limit, newest_first, operation))
    return found.batches


def change(batch: StoredBatch, to: Literal["running", "paused", "cancelled"], reason: str) -> Flow[BatchFound]:
    """Pause, resume or cancel a batch.

    Raises:
        UsageError: it is in no state to be changed so.
    """
    changed = yield from ask(ChangeBatch(number=batch.number, to=to, reason=reason[:1000]))
    if not changed.is_changed:
        state = "gone" if changed.batch is None else changed.batch.state
        verb = {"running": "resumed", "paused": "paused", "cancelled": "cancelled"}[to]
        raise UsageError(f"The batch {batch.id!r} is {state}, so it cannot be {verb}; nothing was changed.")
    return (yield from read_again(batch))


def retry(
    batch: StoredBatch, which: Retried, reason: str, new_nonce: Callable[[], bytes], fingerprints: Fingerprints
) -> Flow[int]:
    """Have failed or doubtful items run again; answers how many.

    Raises:
        UsageError: the batch was cancelled, or has failed.
    """
    found = (yield from read_again(batch)).known
    if found.state not in ("running", "paused", "completed"):
        raise UsageError(
            f"The batch {batch.id!r} is {found.state}, so none of its items runs again; nothing was changed."
        )
    asked = _Retry(which, reason, new_nonce, fingerprints)
    after, count = -1, 0
    while True:
        pages = (yield from ask(FindPages(batch.number, which, after, _PAGES))).pages
        for page in pages:
            count += yield from _retry_page(found, page, asked)
        if len(pages) < _PAGES:
            return count
        after = pages[-1].page


def _retry_page(batch: StoredBatch, page: BatchPage, asked: _Retry) -> Flow[int]:
    """Open the records first: whoever is cut off finds the rows as they were, and does it again."""
    status = ItemStatus.FAILED if asked.which == "failed" else ItemStatus.IN_DOUBT
    first = page.page * batch.page
    items = (yield from ask(ReadItems(batch.number, first, first + batch.page, int(status)))).items
    records = yield from records_of(batch, items)
    opened: list[int] = []
    for item, record in zip(items, records, strict=True):
        if record is not None and not is_record_of(item, record, asked.fingerprints):
            continue  # something else has used its key, and says nothing of this item
        if asked.which == "failed":
            may_run = yield from _reopen(record, asked.reason, asked.new_nonce())
        else:
            may_run = yield from _end_doubt(record, asked.reason, asked.new_nonce())
        if may_run:
            opened.append(item.position)
        elif (ended := status_of_record(record)) not in (None, status):
            # Somebody else has decided about it: its row follows.
            yield from ask(SettleItems(batch.number, page.page, (ItemEnd(item.position, ended),)))
    if opened:
        yield from ask(ReopenItems(batch.number, page.page, tuple(opened), int(status)))
    return len(opened)


def _reopen(record: StoredRecord | None, reason: str, nonce: bytes) -> Flow[bool]:
    if record is None or (record.settled and record.retryable):
        return True
    if record.status is not Status.FAILED and record.status is not Status.CANCELLED:
        return False
    note = Note("Reopened", reason[:1000]).text()
    reopening = Reopen(record.key.digest, nonce, record.nonce, note, record.key.operation)
    return isinstance((yield from ask(reopening)), Reopened)


def _end_doubt(record: StoredRecord | None, reason: str, nonce: bytes) -> Flow[bool]:
    if record is None or (record.settled and record.retryable):
        return True
    if record.settled:
        return False
    note = Note("DidNotHappen", reason[:1000]).text()
    decision = Resolve(record.key.digest, nonce, Status.FAILED, None, note, record.key.operation)
    return isinstance((yield from ask(decision)), Resolved)


def results_page(
    batch: StoredBatch, first: int, status: int | None
) -> Flow[list[tuple[StoredItem, StoredRecord | None]]]:
    """Items from a position on, with their records: of as many positions as make a page."""
    items = (yield from ask(ReadItems(batch.number, first, first + PAGE_OF_RESULTS, status, only_ends=True))).items
    with_records = [item for item in items if item.outcome is None and item.status != ItemStatus.PENDING]
    records = yield from records_of(batch, with_records)
    known = dict(zip([item.position for item in with_records], records, strict=True))
    return [(item, known.get(item.position)) for item in items]


def result_of(item: StoredItem, record: StoredRecord | None, shape: codec.Shape) -> ItemResult[Any]:
    """What became of an item."""
    outcome = item.outcome if record is None else record.outcome
    value, error = None, None if record is None else record.error
    if item.status == ItemStatus.COMPLETED and outcome is not None and not item.is_erased:
        try:
            value = codec.decode(outcome, shape)
        except ResultNotKept as problem:
            error = Failure.of(problem)
        except RecordUnreadable as problem:
            error = Failure(UNREADABLE, str(problem))  # the others are told all the same
    attempts = record.attempts if record is not None else int(item.status != ItemStatus.PENDING)
    if item.status == ItemStatus.FAILED and record is not None and record.status in _NOT_OWN:
        error, attempts = _KEY_REUSED, 0
    return ItemResult(item.id, item.position, STATUS_NAMES[item.status], value, error, attempts)


def failures_of(batch: StoredBatch, most: int) -> Flow[list[tuple[StoredItem, StoredRecord | None]]]:
    """At most so many failed items, with their records; only pages are read that have any."""
    batch = (yield from read_again(batch)).known
    found: list[tuple[StoredItem, StoredRecord | None]] = []
    after = -1
    while True:
        pages = (yield from ask(FindPages(batch.number, "failed", after, _PAGES))).pages
        for page in pages:
            first = page.page * batch.page
            asked = ReadItems(batch.number, first, first + batch.page, int(ItemStatus.FAILED), only_ends=True)
            items = (yield from ask(asked)).items
            found += zip(items, (yield from records_of(batch, items)), strict=True)
            if len(found) >= most:
                return found[:most]
        if len(pages) < _PAGES:
            return found
        after = pages[-1].page


def items_that_ended(
    batch: StoredBatch, status: ItemStatus, first: int, most: int
) -> Flow[list[tuple[StoredItem, StoredRecord | None]]]:
    """At most so many items that ended in one way, from a position on, with their records."""
    items = (yield from ask(ReadItems(batch.number, first, batch.total, int(status), most, only_ends=True))).items
    return list(zip(items, (yield from records_of(batch, items)), strict=True))


def erase_subject(scope: str, subject: str, reason: str) -> Flow[ErasureReport]:
    """Erase what items about a subject, and their records, have of it."""
    tally = ErasureTally()
    yield from ErasableItems().erase_subject(SubjectErasure(subject=subject, scope=scope, reason=reason), tally)
    return ErasureReport(tally.erased(ITEMS), tally.refused(ITEMS))
