"""What is to be done with a delivery, and how long to wait before the next one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from semel.errors import UsageError
from semel.validation import Duration, to_timedelta

Action = Literal["ack", "retry", "dead_letter"]
Ending = Literal[
    "processed",
    "duplicate",
    "ignored",
    "in_progress",
    "failed",
    "unavailable",
    "in_doubt",
    "rejected",
    "exhausted",
    "reused",
    "invalid",
    "unknown_type",
]


@dataclass(frozen=True, slots=True)
class Disposition:
    """What came of a delivery.

    Attributes:
        action: what the broker is to be told: `ack` (done with it), `retry` (deliver it again), or `dead_letter` (done
            with it, and kept as a dead letter here).
        status: what happened.
        retry_after: how long to wait before it is delivered again; advice, which `handle` does not enforce.
        reference: names the record; None where there is none.
        error: what the handler raised, or why nothing ran.
    """

    action: Action
    status: Ending
    retry_after: timedelta | None = None
    reference: str | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True, init=False)
class Backoff:
    """How long to wait after a failed attempt: twice as long after each, at most `most`, less a random part.

    Args:
        first: after the first attempt.
        most: at most.
        spread: how much of it is random, from 0 (nothing) to 1 (all); so that what failed together does not come back
            together.
    """

    first: timedelta
    most: timedelta
    spread: float

    def __init__(self, first: Duration = 1.0, most: Duration = timedelta(minutes=10), *, spread: float = 0.5) -> None:
        object.__setattr__(self, "first", to_timedelta("first", first, may_be_zero=True, error=UsageError))
        object.__setattr__(self, "most", to_timedelta("most", most, may_be_zero=True, error=UsageError))
        object.__setattr__(self, "spread", spread)
        if not 0 <= spread <= 1:
            raise UsageError(f"spread is between 0 and 1, not {spread!r}; nothing ran.")
        if self.most < self.first:
            raise UsageError(f"most is not less than first, and {self.most} is less than {self.first}; nothing ran.")

    def after(self, attempts: int, chance: Callable[[], float] = random.random) -> timedelta:
        """How long to wait after so many attempts; `chance` gives a number from 0 up to 1."""
        doublings = min(max(attempts, 1) - 1, 40)  # beyond, everything is more than any `most`
        seconds = min(self.first.total_seconds() * 2.0**doublings, self.most.total_seconds())
        return timedelta(seconds=seconds * (1 - self.spread * chance()))
