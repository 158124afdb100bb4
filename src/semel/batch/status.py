"""How far a batch is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from semel.core.batch.operations import BatchFound
from semel.core.record import instant

BatchState = Literal["loading", "pending", "running", "paused", "completed", "cancelled", "failed"]
STATES: Final[tuple[BatchState, ...]] = (
    "loading",
    "pending",
    "running",
    "paused",
    "completed",
    "cancelled",
    "failed",
)


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """How far a batch is.

    Attributes:
        id: of the batch.
        operation: that of its items.
        state: `loading`, `pending`, `running`, `paused`, `completed`, `cancelled` or `failed`. A batch that ends with
            failed items is `completed`; `failed` is one that was cancelled after `max_failed` had paused it.
        reason: why it is paused, cancelled or failed.
        total: how many items it has; 0 while it is loaded.
        loaded: how many are loaded.
        completed, failed, skipped, in_doubt: how many items ended so.
        rate: items in a second, over the last minute; None where nothing ended in it, or nobody knows. That is so at
            the first look of a process at a batch of which few pages take less than a minute; five seconds later it is
            known.
        eta: how long the rest takes at that rate; None where that is not known.
        started: when the first run began.
        updated: when it changed last.
        metadata: as it was given to the first `start`.
        notes: what people should know, such as that a later `start` had other metadata.
    """

    id: str
    operation: str
    state: BatchState
    reason: str
    total: int
    loaded: int
    completed: int
    failed: int
    skipped: int
    in_doubt: int
    rate: float | None
    eta: timedelta | None
    started: datetime | None
    updated: datetime
    metadata: Any
    notes: tuple[str, ...]

    @property
    def remaining(self) -> int:
        """How many items have not ended."""
        return self.total - self.completed - self.failed - self.skipped - self.in_doubt


def status_of(found: BatchFound, rate: float | None) -> BatchStatus:
    """What people are told of a batch that was found, and that is so fast."""
    batch, counts = found.batch, found.counts
    assert batch is not None  # noqa: S101 - asked by the caller
    remaining = batch.total - counts.settled
    return BatchStatus(
        id=batch.id,
        operation=batch.operation,
        state="completed" if batch.state == "expired" else batch.state,
        reason=batch.reason,
        total=batch.total,
        loaded=batch.loaded,
        completed=counts.completed,
        failed=counts.failed,
        skipped=counts.skipped,
        in_doubt=counts.in_doubt,
        rate=rate,
        eta=timedelta(seconds=remaining / rate) if rate and batch.state == "running" else None,
        started=None if batch.started_us is None else instant(batch.started_us),
        updated=instant(batch.updated_us),
        metadata=msgspec.json.decode(batch.metadata),
        notes=tuple(msgspec.json.decode(batch.notes)),
    )
