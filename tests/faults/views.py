"""Real answers and records in the plain form of the dictionary model."""

from semel.core.operations import (
    Answer,
    Claim,
    Counted,
    CountFailure,
    Erased,
    Found,
    Granted,
    InDoubtAnswer,
    LapsedRecords,
    Lost,
    Page,
    Recorded,
    Renewed,
    Reopened,
    Replay,
    Resolved,
    Reused,
    Running,
    StateMismatch,
    SweepCount,
)
from semel.core.record import Lease, StoredRecord
from tests.faults.dictionary import LOST, Row, Seen


def row_of(record: StoredRecord) -> Row:
    """A record as a dictionary."""
    return {
        "digest": record.key.digest,
        "scope": record.key.scope,
        "value": record.key.value,
        "operation": record.key.operation,
        "business_key": record.about.business_key,
        "status": record.status.value,
        "retryable": record.retryable,
        "fingerprint": record.fingerprint,
        "fence": record.fence,
        "nonce": record.nonce,
        "lease": record.lease_us,
        "in_doubt": record.in_doubt_policy,
        "reconcile_after": record.reconcile_after_us,
        "doubtful": record.doubtful,
        "attempts": record.attempts,
        "outcome": record.outcome,
        "error": None if record.error is None else (record.error.type, record.error.message),
        "created": record.created_us,
        "started": record.started_us,
        "updated": record.updated_us,
        "completed": record.completed_us,
        "expires": record.expires_us,
        "keep": record.keep_us,
        "resolution": record.resolution,
        "replays": record.replays,
        "replayed": record.replayed_us,
        "steps": [(step.index, step.name, step.outcome) for step in record.steps],
    }


def claim_of(claim: Claim | CountFailure) -> Row:
    """A claim, or what is told of one that was rolled back, as a dictionary."""
    return {
        "digest": claim.key.digest,
        "scope": claim.key.scope,
        "value": claim.key.value,
        "operation": claim.key.operation,
        "business_key": claim.about.business_key,
        "fingerprint": claim.fingerprint,
        "nonce": claim.nonce,
        "lease": claim.terms.lease_us,
        "keep": claim.terms.keep_us,
        "in_doubt": claim.terms.in_doubt,
        "reconcile_after": claim.terms.reconcile_after_us,
    }


def lease_of(lease: Lease) -> Row:
    """A lease as a dictionary."""
    return {"digest": lease.key.digest, "nonce": lease.nonce, "fence": lease.fence}


def seen(answer: Answer | Exception) -> Seen:
    """An answer as a tuple; an error is never one."""
    match answer:
        case Granted(record, in_doubt, reconcile):
            return ("granted", row_of(record), in_doubt, reconcile)
        case Replay(record):
            return ("replay", row_of(record))
        case Reused(record):
            return ("reused", row_of(record))
        case InDoubtAnswer(record, remaining_us):
            return ("doubtful", row_of(record), remaining_us)
        case Running(remaining_us):
            return ("running", remaining_us)
        case Recorded(at_us):
            return ("recorded", at_us)
        case Renewed(until_us):
            return ("held", until_us)
        case Lost():
            return LOST
        case Found(record, now_us):
            return ("found", None if record is None else row_of(record), now_us)
        case Resolved(record) | Reopened(record) | Counted(record) | Erased(record):
            return (type(answer).__name__.lower(), row_of(record))
        case StateMismatch(record):
            return ("unresolvable", None if record is None else row_of(record))
        case SweepCount() | LapsedRecords():
            return ("swept", answer.count if isinstance(answer, SweepCount) else answer.records)
        case Page(records, cursor):
            return ("page", [row_of(record) for record in records], cursor)
        case Exception():
            raise answer
        case _:
            raise AssertionError(answer)
