"""What a till answered, as far as the cases compare it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Told:
    """An answer, as far as the cases compare it."""

    status: int
    problem: str | None
    replayed: bool

    @classmethod
    def of(cls, status: int, headers: Any, json: Any) -> Told:
        """From what a test client has."""
        kind = json()["type"] if headers.get("content-type") == "application/problem+json" else None
        return cls(status, None if kind is None else kind.removeprefix("urn:semel:problem:"), is_replay(headers))


def is_replay(headers: Any) -> bool:
    """Whether an answer says that it was given before."""
    return str(headers.get("idempotency-replayed")) == "true"
