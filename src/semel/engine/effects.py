"""What an engine flow may ask for besides store operations: the things only a shell can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from semel.core.record import Record

if TYPE_CHECKING:
    from semel.core.operations import Operation
    from semel.core.policy import Policy
    from semel.engine.attempt import AttemptState
    from semel.engine.call_flow import Once


class Effect(msgspec.Struct, frozen=True):
    """What only a shell can do; everything else that a flow yields is an operation for the store."""


class Call(Effect, frozen=True):
    """Run the handler now, as this attempt (None: unprotected, because the store is down and the policy says run)."""

    attempt: AttemptState | None


class CallStep(Effect, frozen=True):
    """Run the function of a step now."""


class Ask(Effect, frozen=True):
    """Ask the reconcile hook of this policy about this attempt."""

    attempt: AttemptState
    policy: Policy


class Apart(Effect, frozen=True):
    """Carry another call through to its end: under its own lease, and cleaned up by itself if it is cut off."""

    once: Once


class Wait(Effect, frozen=True):
    """Wait for the owner of a key, at most until this instant of the engine's clock."""

    digest: bytes
    until: float


class Pause(Effect, frozen=True):
    """Let so many seconds pass before sending an operation again."""

    seconds: float


class Together(Effect, frozen=True):
    """Perform several operations as one list; the reply is a list of answers, errors included as values."""

    operations: list[Operation]


class Rest(Effect, frozen=True):
    """Nothing to do until this instant of the engine's clock, or until something changes."""

    until: float | None


class Stalled(Effect, frozen=True):
    """Report that nothing was renewed for so many seconds, and that so many leases are over because of it."""

    seconds: float
    lapsed: int


class Ended(msgspec.Struct, frozen=True):
    """A waiter's news: the record has its final answer."""

    record: Record


class Promoted(msgspec.Struct, frozen=True):
    """A waiter's news: the owner is gone, and this waiter is the one to claim again."""


class TimedOut(msgspec.Struct, frozen=True):
    """A waiter's news: the time it was willing to wait is over."""


class Crowded(msgspec.Struct, frozen=True):
    """A waiter's news: it cannot wait, because as many wait already as may.

    `whole_process` says whether that is so for all keys of the process together, or for this key alone.
    """

    whole_process: bool


News = Ended | Promoted | TimedOut | Crowded
