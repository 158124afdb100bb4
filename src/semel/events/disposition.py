"""What is to be done with a delivery."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from semel.engine.clock import Backoff

__all__ = ["Action", "Backoff", "Disposition", "Ending"]

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
