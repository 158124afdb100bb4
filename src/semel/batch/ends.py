"""What an end of an attempt means for its item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from semel.batch.concurrency import WasCancelled
from semel.batch.items import Skip
from semel.core.batch.values import SKIPPED, ItemStatus, StoredItem, item_digest
from semel.core.fingerprint import Digest, Fingerprints
from semel.core.observer import Observer, Signal, is_heard, notify
from semel.core.record import Failure, StoredRecord
from semel.errors import InProgress, SemelError, StoreUnavailable, TryLater

NOT_COMMITTED: Final = (
    "transaction= gave a block that ended without an error, and what was written in it is not there: it did not "
    "commit. This run has stopped, and the item is not counted as done. Give a callable whose context manager commits "
    "at its end, such as sessions.begin."
)
KEEPS_ERRORS: Final = (
    "transaction= gave a block that kept an error to itself, so nobody knows whether it rolled back. This run has "
    "stopped, and the item is not counted as done. Have it roll back and raise the error again."
)


def failure_of(error: BaseException) -> Failure:
    """What is kept of an error of a handler."""
    if isinstance(error, Skip):
        return Failure(SKIPPED, Failure.of(error).message)
    if isinstance(error, WasCancelled):
        return Failure.of(error.__cause__ or error)
    return Failure.of(error)


def is_rolled_back(error: SemelError) -> bool:
    """Whether an error says that the caller's transaction is gone, with all that was written in it."""
    return isinstance(error, TryLater) and not isinstance(error, InProgress | StoreUnavailable)


def is_record_of(item: StoredItem, record: StoredRecord, fingerprints: Fingerprints) -> bool:
    """Whether a record under the key of an item is of that item; something else may have used the key."""
    asked = Digest(item_digest(item.id, item.data))
    return item.is_erased or record.erased or fingerprints.matches(record.fingerprint, asked)


def pause_after(attempts: int) -> float:
    """Seconds until an item is tried again that failed so often."""
    return min(10.0, 0.05 * 2.0 ** min(attempts - 1, 16))


def tell_ends(observer: Observer, operation: str, ends: Iterable[int | None]) -> None:
    """Tell the observer how items have ended, so many of each kind; what has not ended does not count."""
    if not is_heard(observer, "batch_items"):
        return
    for status, number in Counter(ends).items():
        if status is not None:
            detail = ItemStatus(status).name.lower()
            signal = Signal(kind="batch_items", operation=operation, reference="", number=number, detail=detail)
            notify(observer, signal)
