"""How far a batch is, and how fast: by what this process has seen of it before, and by its pages where it has not.

Nothing in a store says when an item ended, because nothing else needs that. Two looks at the counts say how many ended
between them. Whoever looks for the first time is told what the pages say, and nothing where they do not know.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

import msgspec

from semel.core.batch.operations import BatchFound
from semel.core.batch.values import StoredBatch
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

_WINDOW_US: Final = 60_000_000
_SHORTEST_US: Final = 5_000_000
"""Two looks that are nearer to each other say little."""
_APART_US: Final = 1_000_000
_MOST: Final = 1000
"""Of so many batches looks are kept."""


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
    metadata, notes = _read_texts(batch)
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
        metadata=metadata,
        notes=notes,
    )


def _read_texts(batch: StoredBatch) -> tuple[Any, tuple[str, ...]]:
    """Metadata and notes; where somebody has changed them so that they are none, a note that says so."""
    try:
        return msgspec.json.decode(batch.metadata), tuple(msgspec.json.decode(batch.notes, type=list[str]))
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        return None, (f"its metadata or notes were changed, and cannot be read any more: {problem}",)


class Look(NamedTuple):
    """How many items of a batch had ended at an instant of its store."""

    now_us: int
    settled: int


class Pace:
    """What was seen of batches by one engine within the last minute; for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: OrderedDict[int, deque[Look]] = OrderedDict()

    def rate(self, found: BatchFound) -> float | None:
        """How many items of a batch end in a second; None: none ended, or nobody knows."""
        batch, counts = found.known, found.counts
        if batch.started_us is None:
            return None
        before = self._note(batch.number, Look(found.now_us, counts.settled))
        if before is not None:
            return _per_second(counts.settled - before.settled, found.now_us - before.now_us)
        since_us = max(found.now_us - batch.started_us, 1)
        if since_us > _WINDOW_US and counts.recent_done <= counts.recent_open:
            return None  # pages take longer than a minute, so much of what is done in them is older
        return _per_second(counts.recent, min(_WINDOW_US, since_us))

    def _note(self, number: int, look: Look) -> Look | None:
        """Remember a look; answers the earliest one of the last minute, if it is long enough ago."""
        with self._lock:
            looks = self._looks.setdefault(number, deque())
            self._looks.move_to_end(number)
            if len(self._looks) > _MOST:
                self._looks.popitem(last=False)
            if looks and look.settled < looks[-1].settled:
                looks.clear()  # items were opened to run again
            while looks and looks[0].now_us < look.now_us - _WINDOW_US:
                looks.popleft()
            if not looks or look.now_us >= looks[-1].now_us + _APART_US:
                looks.append(look)
            return looks[0] if looks[0].now_us <= look.now_us - _SHORTEST_US else None


def _per_second(count: int, microseconds: int) -> float | None:
    return count / microseconds * 1_000_000 if count else None
