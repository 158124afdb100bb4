"""How a schedule ends early: an invariant does not hold, or everything from here on has been seen.

Operations and answers in a trace that people can read.
"""

from __future__ import annotations

from semel.core.operations import Claim, CountFailure, Fail, Granted, Reopen, Resolve


def told(value: object) -> str:
    """An operation or answer in a trace."""
    name = type(value).__name__
    lease = getattr(value, "lease", None)
    if isinstance(value, Claim):
        return f"Claim {value.nonce.decode()}"
    if isinstance(value, (Resolve, Reopen, CountFailure)):
        return f"{name} {value.nonce.decode()}"
    if isinstance(value, Granted):
        return f"Granted fence {value.record.fence}{' in doubt' if value.in_doubt else ''}"
    if isinstance(value, Fail):
        return f"Fail {value.ending} {value.lease.nonce.decode()} fence {value.lease.fence}"
    if lease is not None:
        return f"{name} {lease.nonce.decode()} fence {lease.fence}"
    return name


class Violation(BaseException):
    """An invariant does not hold. Not an `Exception`, so that no flow takes it for an error of its handler."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        self.message = message


class SeenBefore(BaseException):
    """This very state, with the same choices left, was explored before."""


INVARIANTS = {
    "I1": "at most one effect per generation under hold, and under reconcile with a definitive hook",
    "I2": "all success answers of a generation are equal",
    "I3": "a success answer implies a completed record and an effect",
    "I4": "only the highest owner writes, a live lease is not taken over, fences rise",
    "I5": "another fingerprint never executes and never replays",
    "I6": "nothing crosses from one scope to another",
    "I7": "once completed is seen, nothing else is seen inside retention; only settled, expired records are deleted",
    "I8": "after the faults every key settles within lease + 2 s, or is reported in doubt and can be resolved",
    "I9": "without faults nothing is done twice",
    "I10": "each repeated effect is explained by a fault of that key, and the handler is told",
    "erased": "erasing leaves no fingerprint and no outcome, and an erased record answers every claim of its key",
    "stated": "what an operator states is recorded so; a correction replaces what was stated of the record it saw",
    "reopened": "only what failed for good or was cancelled, and was looked at, runs again; its steps and fence stay",
    "counted": "an attempt that was rolled back counts once, where the key may be tried again; the last one is final",
    "history": "what ended, was taken over or decided is entered once, with its record; erasing takes the errors",
    "reach": "how far so many records reach is told by those that are there, in their scope",
    "search": "a record is found by what its last claim said, in its scope; nothing leads to what is gone or erased",
    "count": "as many records are counted as there are",
    "told": "an attempt is told that its lease is lost before anybody else can be granted its key, unless by force",
    "waiters": "exactly one waiter is promoted, and none is sent away while the answer is there",
    "ownerless": "a cancelled caller leaves no claim behind, and nobody waits for a claim of its own",
    "leftover": "when all callers have left, no process holds a lease, a waiter or a ticket any more",
    "guard": "a process refuses an operation only while the store does not answer, never one of an attempt that runs",
    "runtime": "no lease is renewed beyond max_runtime",
    "W1": "within: an effect is committed at most once per key, and one in doubt is repeated only by who is told",
    "W2": "within: an effect and the completion of its record are committed together, or neither is",
    "W3": "within: nobody is told the outcome of what was rolled back, or not yet committed",
    "W4": "within: when all transactions have ended, the next caller gets an answer",
    "W5": "within: a duplicate is refused without breaking or stopping the transaction of its caller",
    "W6": "within: what was rolled back is counted once, never in a record that an open transaction is writing",
    "W7": "within: a key is in progress only where an open transaction is writing it, whatever other keys do",
    "E1": "events: what is acknowledged has a completed record",
    "E2": "events: what is given up has one dead letter",
    "E3": "events: in the end an event is done, or it has a dead letter, and never both",
    "E4": "events: every event comes to an end, after at most max_attempts",
    "E5": "events: an effect happens if its event is done, once in a transaction, and otherwise again only by a fault",
    "E6": "events: of one subject no two are handled at once, where that was asked for",
    "E7": "events: what a handler adds to the outbox is there if, and only if, its event is done, once",
    "E8": "events: a dead letter that was redriven with success is gone",
    "R1": "relays: nothing is published that is not committed",
    "R2": "relays: what is committed is published, or parked, whoever stays open meanwhile",
    "R3": "relays: the events of a key are published for the first time in the order in which they were committed",
    "R4": "relays: only who opened a part last moves its cursor",
    "R5": "relays: an event is parked because it was refused, and published once it is released",
    "R6": "relays: an event is published again only after a fault or a take-over, and unchanged: an inbox knows it",
    "broke": "no call ends with an error that is not one of its handler or of semel",
}
