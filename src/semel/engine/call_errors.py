"""From answers to errors: the sentences callers read. Each says what happened, whether anything ran, what to do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from semel.core import codec
from semel.core.key import Key
from semel.core.operations import TransactionJoined
from semel.core.record import ERASED_REASON, ERASED_RESOLUTION, UNREADABLE, Failure, Lease, Note, Status, StoredRecord
from semel.core.sealing.values import SEALED
from semel.errors import (
    FailedBefore,
    InDoubt,
    InProgress,
    KeyReentered,
    KeyReused,
    LeaseLost,
    RecordUnreadable,
    StoreUnavailable,
    TooManyWaiting,
    TransactionAborted,
    UsageError,
)

_SECOND = 1_000_000
_SHORTEST = timedelta(milliseconds=50)


def named(key: Key) -> str:
    """A key in a message: the operation and the reference, not the value, which may be personal."""
    return f"{key.operation} ({key.reference[:16]})"


def key_reused_error(key: Key) -> KeyReused:
    """The same key came with other arguments."""
    return KeyReused(
        f"The key of {named(key)} was used before with other arguments, or the function compares other ones since "
        f"then (its signature, a default, a model or fingerprint= was changed); nothing ran. Use a new key for a new "
        f"request, or send the same arguments again; give a function that was changed a new operation.",
        reference=key.reference,
    )


def key_reentered_error(key: Key) -> KeyReentered:
    """A handler asked for its own key."""
    return KeyReentered(
        f"{named(key)} is already running in this very call, so waiting for it would never end; nothing ran twice. "
        f"Give the inner operation a key or an operation name of its own.",
        reference=key.reference,
    )


def _wait_of(remaining_us: int) -> timedelta:
    """How long to wait before it is of use to ask again."""
    return max(_SHORTEST, timedelta(microseconds=remaining_us))


def in_progress_error(key: Key, remaining_us: int) -> InProgress:
    """Somebody else runs it."""
    return InProgress(
        f"{named(key)} is being run by another caller; nothing ran here. Ask again with the same key.",
        retry_after=_wait_of(remaining_us),
        reference=key.reference,
    )


def too_many_waiting_error(key: Key, remaining_us: int, *, whole_process: bool) -> InProgress:
    """Somebody else runs it, and nobody else may wait for it here."""
    kind, whom = (TooManyWaiting, "others") if whole_process else (InProgress, "it")
    return kind(
        f"{named(key)} is being run by another caller, and as many callers as may already wait for {whom} in this "
        f"process; nothing ran here. Ask again later with the same key.",
        retry_after=_wait_of(remaining_us),
        reference=key.reference,
    )


def in_doubt_error(record: StoredRecord, remaining_us: int | None) -> InDoubt:
    """It may or may not have happened."""
    then = (
        "It waits to be resolved: semel show, then semel resolve."
        if remaining_us is None
        else f"It can be reconciled in {max(remaining_us, 0) / _SECOND:.1f} s; ask again then."
    )
    return InDoubt(
        f"{named(record.key)} started before and no outcome is known; nothing ran now. {then}",
        reference=record.reference,
        retry_after=None if remaining_us is None else _wait_of(remaining_us),
    )


def lease_lost_error(key: Key) -> LeaseLost:
    """The attempt is not the owner any more and there is no outcome to give instead."""
    return LeaseLost(
        f"{named(key)} ran here, but the lease was lost before its outcome could be recorded, so it was not. "
        f"Ask again with the same key to get the outcome of whoever holds it now.",
        reference=key.reference,
    )


def granted_too_late_error(key: Key) -> StoreUnavailable:
    """Every claim was over by the time its answer was read here."""
    return StoreUnavailable(
        f"{named(key)} was granted several times, and each time the lease was over before the answer was read here; "
        f"nothing ran. Ask again with the same key; give the operation a longer lease_for if this happens often."
    )


def not_given_back_error(key: Key, error: Exception) -> StoreUnavailable:
    """A claim was granted, its lease was over when that was read, and the store stayed silent since."""
    return StoreUnavailable(
        f"{named(key)} was granted, but the lease was over before the answer was read here, and it could not be given "
        f"back: {error} Nothing ran. Ask again with the same key once the store is back."
    )


def not_recorded_error(key: Key, error: Exception) -> StoreUnavailable:
    """The handler ran and the store stayed silent."""
    return StoreUnavailable(
        f"{named(key)} ran, but its outcome could not be recorded: {error} "
        f"Ask again with the same key once the store is back; its in-doubt policy then applies.",
        ran=True,
        reference=key.reference,
    )


def not_sent_again_error(failure: str, retry_after: timedelta) -> StoreUnavailable:
    """The claim was sent, failed, and is refused the next time: only its own failure knows whether it was recorded."""
    seconds = retry_after.total_seconds()
    return StoreUnavailable(
        f"{failure} It was not sent again; retry with the same key in {seconds:.2f} s. Nothing ran.",
        retry_after=retry_after,
        asked=False,
    )


def failed_before_error(failure: Failure, record: StoredRecord) -> FailedBefore:
    """A stored failure, again."""
    return FailedBefore(
        f"{named(record.key)} failed before with {failure.type}: {failure.message}. Nothing ran now; "
        f"the failure is final for this key.",
        error_type=failure.type,
        error_message=failure.message,
        reference=record.reference,
    )


def bad_verdict_error(verdict: object) -> UsageError:
    """The reconcile hook answered something else."""
    return UsageError(
        f"The reconcile hook answered {verdict!r}; nothing ran, and the record stays in doubt. "
        f"It has to return Happened(value), DidNotHappen() or Unknown()."
    )


def replay(record: StoredRecord, shape: codec.Shape) -> Any:
    """The value of a final record.

    Raises:
        FailedBefore: it holds a failure, or was cancelled.
        ResultNotKept: it is done, and its value was not kept.
        RecordUnreadable: this version cannot read it.
    """
    if record.status is Status.COMPLETED:
        if record.outcome is None:
            message = f"{named(record.key)} is completed and has no outcome stored; nothing ran. The record is damaged."
            raise RecordUnreadable(message)
        return codec.decode(record.outcome, shape)
    if record.status is Status.CANCELLED:
        raise failed_before_error(Failure("semel.Cancelled", _why_cancelled(record.note)), record)
    raise _stored_failure_error(record.error or Failure("semel.Unknown", "no error was kept"), record)


def _stored_failure_error(failure: Failure, record: StoredRecord) -> FailedBefore | RecordUnreadable:
    """The stored failure; one that nobody could open is no answer."""
    if failure.type == UNREADABLE:
        return RecordUnreadable(failure.message, reference=record.reference)
    if failure.type == SEALED:
        message = (
            f"{named(record.key)} failed before, and its error is sealed; nothing ran now. Give the engine the keyring "
            f"that it was sealed with (seal=)."
        )
        return RecordUnreadable(message, reference=record.reference)
    return failed_before_error(failure, record)


def _why_cancelled(note: Note | None) -> str:
    if note is None:
        return "it was cancelled"
    return ERASED_REASON if note.resolution == ERASED_RESOLUTION else note.reason


def joined_error(error: Exception) -> Exception:
    """An error on the caller's connection: nothing is sent again there, so what looks passing ends the transaction."""
    if not isinstance(error, StoreUnavailable):
        return error
    aborted = TransactionAborted(
        f"The store could not be written inside your transaction: {error.message} Roll it back and run all of it again."
    )
    aborted.__cause__ = error
    return aborted


def with_transaction(lease: Lease, entered: TransactionJoined) -> Lease:
    """The lease, bound to the caller's transaction."""
    return replace(lease, transaction=entered.transaction)
