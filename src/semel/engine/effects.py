"""What an engine flow may ask for besides store operations: the things only a shell can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from semel.core.record import Record

if TYPE_CHECKING:
    from semel.core.operations import Operation
    from semel.engine.attempt import AttemptState
    from semel.engine.call_flow import Request


class Effect(msgspec.Struct, frozen=True):
    """What a flow needs of whoever drives it; everything else that it yields is an operation for the store."""


class RunHandler(Effect, frozen=True):
    """Run the handler now, as this attempt (None: unprotected, because the store is down and the policy says run)."""

    attempt: AttemptState | None


class RunStep(Effect, frozen=True):
    """Run the function of a step now."""


class AskReconcileHook(Effect, frozen=True):
    """Ask the reconcile hook of the call's policy about this attempt."""

    attempt: AttemptState


class RunCall(Effect, frozen=True):
    """Drive another call to its end, under its own lease: ask its reconcile hook, and run no handler."""

    request: Request


class Wait(Effect, frozen=True):
    """Wait for the owner of a key, at most until this instant of the engine's clock."""

    digest: bytes
    until: float


class Pause(Effect, frozen=True):
    """Let so many seconds pass before sending an operation again."""

    seconds: float


class PerformAll(Effect, frozen=True):
    """Perform several operations as one list; the reply is a list of answers, errors included as values."""

    operations: list[Operation]


class SleepUntil(Effect, frozen=True):
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
