"""The decision tables of claims and of what operators decide, in Python. SQL stores state the same in their statements.

- Another fingerprint never wins and never replays. An erased record has none and answers every claim of its key with
  its tombstone.
- A live lease is never taken over.
- A record in doubt is taken over only where its owner's policy and the claimer's both allow it.
- Only settled records expire.

A store may use `judge` to spare a write that cannot win, and to name the answer when its compare-and-set won nothing;
the compare-and-set itself decides.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from semel.core.operations import (
    Claim,
    ClaimAnswer,
    CountFailure,
    Granted,
    InDoubtAnswer,
    Reopen,
    Replay,
    Resolve,
    Reused,
    Running,
)
from semel.core.policy import Doubt
from semel.core.record import REOPENED, Status, StoredRecord


class MayWrite(msgspec.Struct, frozen=True):
    """The claim may be written: as a new record, a new life of an expired one, or a further attempt."""

    how: Literal["absent", "expired", "again", "takeover", "reconcile"]


def judge(record: StoredRecord | None, claim: Claim, now: int) -> MayWrite | ClaimAnswer:
    """What a claim meets in `record` at the instant `now`."""
    if record is None:
        return MayWrite("absent")
    settled = record.settled
    if settled and record.expires_us <= now:
        return MayWrite("expired")
    if record.nonce == claim.nonce and record.status is Status.RUNNING:
        return granted(record)  # the same claim again, after its reply was lost
    if settled and record.erased:
        return Replay(record, now)  # a tombstone gives nothing away, and there is no fingerprint left to compare
    if record.fingerprint != claim.fingerprint:
        return Reused(record, now)
    if settled and not record.retryable:
        return Replay(record, now)
    if settled and not record.doubtful:
        return MayWrite("again")
    if record.status is Status.RUNNING and record.lease_us > now:
        return Running(record.lease_us - now)
    return _judge_doubt(record, claim, now)


def _judge_doubt(record: StoredRecord, claim: Claim, now: int) -> MayWrite | InDoubtAnswer:
    match may_take_over(record.in_doubt_policy, claim.terms.in_doubt):
        case "never":
            return InDoubtAnswer(record, None)
        case "at once":
            return MayWrite("takeover")
        case "after asking":
            quiet = max(record.reconcile_after_us, claim.terms.reconcile_after_us)
            remaining = record.lease_us + quiet - now
            return MayWrite("reconcile") if remaining <= 0 else InDoubtAnswer(record, remaining)


def may_take_over(owner: Doubt, claimer: Doubt) -> Literal["never", "at once", "after asking"]:
    """Whether both policies allow a take-over: the stricter word of the two counts, and asking needs a hook."""
    if "hold" in (owner, claimer):
        return "never"
    if claimer == "reconcile":
        return "after asking"
    return "at once" if owner == "rerun" else "never"


def granted(record: StoredRecord) -> Granted:
    """The grant that a running record, as just claimed, stands for."""
    asks = record.doubtful and record.in_doubt_policy == "reconcile"
    return Granted(record, in_doubt=record.doubtful, reconcile=asks)


def is_stuck(record: StoredRecord, now: int) -> bool:
    """Whether it waits for somebody: it is in doubt, or it runs and its lease is over."""
    return record.status is Status.IN_DOUBT or (record.status is Status.RUNNING and record.lease_us <= now)


def may_resolve(record: StoredRecord, operation: Resolve, now: int) -> bool:
    """Whether the record is in doubt, or may be forced; for a correction, whether it is still the one that was seen."""
    if operation.fence is not None and record.fence != operation.fence:
        return False
    if operation.corrects is not None:
        seen = record.status is Status.COMPLETED and record.nonce == operation.corrects
        return seen and not record.erased and operation.status is Status.COMPLETED
    if record.status is Status.RUNNING:
        return operation.force or record.lease_us <= now
    return record.status is Status.IN_DOUBT


def reopen(record: StoredRecord, operation: Reopen, now: int) -> StoredRecord | None:
    """The record as it is once its key may be claimed again; None where it is not the one that was seen, or may not."""
    is_over = record.status is Status.CANCELLED or (record.status is Status.FAILED and not record.retryable)
    if not is_over or record.erased or record.nonce != operation.seen:
        return None
    return replace(
        record,
        status=Status.FAILED,
        retryable=True,
        attempts=0,
        nonce=operation.nonce,
        error=record.error or REOPENED,
        resolution=operation.note,
        lease_us=min(record.lease_us, now),
        updated_us=now,
        completed_us=now,
        expires_us=record.kept_until(now),
    )


def count_failure(record: StoredRecord | None, operation: CountFailure, now: int) -> StoredRecord | None:
    """The record with one failed attempt more; None where it is none that an attempt could be counted in."""
    if record is not None and not (record.settled and record.expires_us <= now):
        may_count = record.status is Status.FAILED and record.retryable and record.fingerprint == operation.fingerprint
        if not may_count:
            return None
        return _with_failure(record, operation, record.attempts + 1, record.kept_until(now), now)
    fresh = _first_failure(operation, now, fence=0 if record is None else record.fence)
    return _with_failure(fresh, operation, 1, fresh.expires_us, now)


def _with_failure(
    record: StoredRecord, operation: CountFailure, attempts: int, expires_us: int, now: int
) -> StoredRecord:
    return replace(
        record,
        retryable=operation.max_attempts is None or attempts < operation.max_attempts,
        attempts=attempts,
        nonce=operation.nonce,
        fence=record.fence + 1,
        error=operation.error,
        lease_us=min(record.lease_us, now),
        started_us=now,
        updated_us=now,
        completed_us=now,
        expires_us=expires_us,
    )


def _first_failure(operation: CountFailure, now: int, *, fence: int) -> StoredRecord:
    terms = operation.terms
    return StoredRecord(
        key=operation.key,
        status=Status.FAILED,
        retryable=True,
        fingerprint=operation.fingerprint,
        fence=fence,
        nonce=operation.nonce,
        lease_us=now,
        in_doubt_policy=terms.in_doubt,
        reconcile_after_us=terms.reconcile_after_us,
        doubtful=False,
        attempts=0,
        outcome=None,
        error=None,
        about=operation.about,
        created_us=now,
        started_us=now,
        updated_us=now,
        completed_us=now,
        expires_us=now + terms.keep_us,
        keep_us=terms.keep_us,
    )
