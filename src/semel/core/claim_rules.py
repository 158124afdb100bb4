"""The decision table of a claim, in Python. SQL stores state the same rules in their statements.

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

from semel.core.operations import Claim, ClaimAnswer, Granted, InDoubtAnswer, Replay, Reused, Running
from semel.core.policy import Doubt
from semel.core.record import Status, StoredRecord


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
