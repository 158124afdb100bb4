"""Worlds of batches: how many items and workers, under which policy, and what may go wrong.

What always holds: a world is a value whose `repr` makes it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

BatchFault = Literal[
    "crash",  # the worker dies here; what it holds is free once its leases have passed
    "lost",  # an operation is carried out, and its answer does not arrive
    "unsent",  # it does not arrive at all
]
BATCH_FAULTS: Final[tuple[BatchFault, ...]] = ("crash", "lost", "unsent")


@dataclass(frozen=True, kw_only=True)
class BatchWorld:
    """What is simulated.

    Args:
        items: how many there are; those at `failing` positions fail at their first attempt.
        page: how many items a page has.
        workers: how many processes work on the batch.
        policy: what becomes of items whose end nobody saw.
        max_attempts: how often an item is tried.
        max_failed: how many items may fail before the batch is paused.
        retries: how often an operator has failed or doubtful items run again.
        pauses: how often an operator pauses the batch; whatever is paused is resumed at some time.
        ticks: how often so much time passes that everybody has to know of a pause, and no lease ends.
        by_page: whether effects are rows of the database, which commit with their page.
        faults: what may go wrong; `budget` is how often.
        slow: how often leases may pass although somebody could go on.
    """

    name: str
    items: int = 4
    page: int = 2
    workers: int = 2
    failing: tuple[int, ...] = ()
    policy: Literal["rerun", "hold"] = "rerun"
    max_attempts: int = 1
    max_failed: int | None = None
    retries: int = 0
    pauses: int = 0
    ticks: int = 0
    by_page: bool = False
    faults: tuple[BatchFault, ...] = BATCH_FAULTS
    budget: int = 2
    slow: int = 1


BATCH_WORLDS: Final = (
    BatchWorld(name="batches: two workers"),
    BatchWorld(name="batches: three workers, three items", items=3, page=1, workers=3, budget=3, slow=2),
    BatchWorld(name="batches: nothing runs twice under hold", policy="hold", budget=3, slow=2),
    BatchWorld(name="batches: failures and attempts", failing=(1, 2), max_attempts=2),
    BatchWorld(name="batches: failures are retried", failing=(1, 2), retries=2),
    BatchWorld(name="batches: workers that stand still", items=2, page=2, workers=3, failing=(1,), budget=0, slow=3),
    BatchWorld(name="batches: doubts are retried", policy="hold", retries=2, workers=1, budget=3),
    BatchWorld(name="batches: paused and resumed", page=4, pauses=2, ticks=2, budget=1),
    BatchWorld(
        name="batches: too many failures",
        items=3,
        page=1,
        failing=(0, 1, 2),
        max_failed=1,
        pauses=1,
        ticks=1,
        budget=1,
    ),
    BatchWorld(name="batches: pages commit as a whole", failing=(1,), max_attempts=2, by_page=True),
    BatchWorld(name="batches: pages are paused", page=4, pauses=1, ticks=1, budget=1, by_page=True),
)
BATCH_SOMETIMES: Final = frozenset(
    f"batches: {name}"
    for name in (
        "ran",
        "ran again",
        "failed",
        "in doubt",
        "retried",
        "paused",
        "paused by failures",
        "resumed",
        "page committed",
        "page taken over",
        "somebody else's page",
        *(f"fault: {fault}" for fault in BATCH_FAULTS),
    )
)
"""What has to happen in some schedule; otherwise the worlds prove less than they say."""
