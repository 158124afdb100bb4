"""What an engine flow may ask for besides store operations: the things only a shell can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.core.record import Record

if TYPE_CHECKING:
    from semel.core.operations import Operation
    from semel.engine.attempt import AttemptState


@dataclass(frozen=True, slots=True)
class Call:
    """Run the handler now, as this attempt (None: unprotected, because the store is down and the policy says run)."""

    attempt: AttemptState | None


@dataclass(frozen=True, slots=True)
class CallStep:
    """Run the function of a step now."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the reconcile hook about this attempt."""

    attempt: AttemptState


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the owner of a key, at most until this instant of the engine's clock."""

    digest: bytes
    until: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Let so many seconds pass before sending an operation again."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Together:
    """Perform several operations as one list; the reply is a list of answers, errors included as values."""

    operations: list[Operation]


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until this instant of the engine's clock, or until something changes."""

    until: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A waiter's news: the record has its final answer."""

    record: Record


@dataclass(frozen=True, slots=True)
class Promoted:
    """A waiter's news: the owner is gone, and this waiter is the one to claim again."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """A waiter's news: the time it was willing to wait is over."""


News = Ended | Promoted | TimedOut
