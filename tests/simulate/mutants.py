"""Mistakes one could make in core, engine, lane and store, each as a switch that puts it in and takes it out again.

A mutant names the worlds in which it is looked for and the invariants that may give it away. One that nobody notices
means that the simulator proves less than it claims.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from semel.core import claim_rules
from semel.core.claim_rules import MayWrite, granted, judge
from semel.core.operations import (
    Answer,
    Claim,
    Complete,
    Erase,
    Erased,
    Fail,
    Found,
    LapsedRecords,
    Lost,
    Read,
    Recorded,
    Renew,
    Renewed,
    StateMismatch,
    SweepCount,
)
from semel.core.record import Failure, Lease, Status, StoredRecord, erase_record
from semel.engine import call_errors
from semel.engine.background import Heartbeat, HeldLease, Waiter, Waiting
from semel.engine.call_flow import CallFlow, Pause, Request, Result
from semel.engine.lane import AsyncLane, Lane, PendingOperation, ThreadLane
from semel.errors import LeaseLost, StoreUnavailable
from semel.stores import memory
from semel.stores.memory import Table
from semel_lab.simulate import SMALL, Asker, World

Switch = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Mutant:
    """A mistake, the worlds it shows in, and the invariants it breaks."""

    name: str
    switch: Switch
    worlds: tuple[World, ...]
    breaks: frozenset[str]

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


MUTANTS: list[Mutant] = []
BY_NAME = {world.name: world for world in SMALL}
PAIR = (Asker(0), Asker(1))


def mutant(name: str, worlds: str | World, *breaks: str) -> Callable[[Switch], Switch]:
    def add(switch: Switch) -> Switch:
        chosen = (worlds,) if isinstance(worlds, World) else tuple(BY_NAME[word] for word in worlds.split(", "))
        MUTANTS.append(Mutant(name, switch, chosen, frozenset(breaks)))
        return switch

    return add


def judging(
    change: Callable[[StoredRecord, Claim, int], tuple[StoredRecord, Claim, int]],
) -> AbstractContextManager[Any]:
    """The decision table, asked about something else than what is there."""

    def wrong(record: StoredRecord | None, claim: Claim, now: int) -> Any:
        return judge(record, claim, now) if record is None else judge(*change(record, claim, now))

    return patch.object(memory, "judge", wrong)


@mutant("no fence and no nonce on any write", "rerun, handler fails", "I4")
def _() -> AbstractContextManager[Any]:
    return patch.object(Table, "owned", lambda self, lease: self.records.get(lease.key.digest))


LATE = World(
    name="late after all", askers=(*PAIR, Asker(1, sweeps=True)), faults=("late",), budget=1, slow=3, keep_for=0.6
)


@mutant("the fence alone is compared", LATE, "I4")
def _() -> AbstractContextManager[Any]:
    def owned(self: Table, lease: Lease) -> StoredRecord | None:
        record = self.records.get(lease.key.digest)
        return record if record is not None and record.fence == lease.fence else None

    return patch.object(Table, "owned", owned)


GHOST = World(name="ghost", askers=(Asker(0),), faults=("late", "retry", "lose"), budget=3)


@mutant("the nonce alone is compared", GHOST, "I4")
def _() -> AbstractContextManager[Any]:
    def owned(self: Table, lease: Lease) -> StoredRecord | None:
        record = self.records.get(lease.key.digest)
        return record if record is not None and record.nonce == lease.nonce else None

    return patch.object(Table, "owned", owned)


@mutant("completion by key alone", "rerun", "I4", "I7")
def _() -> AbstractContextManager[Any]:
    def complete(self: Table, operation: Complete, now: int) -> Recorded | Lost:
        record = self.records.get(operation.lease.key.digest)
        if record is None:
            return Lost()
        self._settle(record, now, status=Status.COMPLETED, outcome=operation.outcome, error=None)
        return Recorded(now)

    return patch.object(Table, "complete", complete)


@mutant("release by key alone", "rerun, handler fails", "I4")
def _() -> AbstractContextManager[Any]:
    right = Table.fail

    def fail(self: Table, operation: Fail, now: int) -> Recorded | Lost:
        record = self.records.get(operation.lease.key.digest)
        return right(self, operation if record is None else replace(operation, lease=record.lease), now)

    return patch.object(Table, "fail", fail)


@mutant("a renewal revives a lease that was taken over", "long handler, rerun", "I4")
def _() -> AbstractContextManager[Any]:
    def renew(self: Table, lease: Lease, lease_us: int, now: int) -> Renewed | Lost:
        record = self.records.get(lease.key.digest)
        if record is None or record.status is not Status.RUNNING:
            return Lost()
        self._write(record, now, lease_us=now + lease_us, nonce=lease.nonce, fence=lease.fence)
        return Renewed(now + lease_us)

    return patch.object(Table, "renew", renew)


@mutant("the fence does not rise at a take-over", "rerun", "I4")
def _() -> AbstractContextManager[Any]:
    right = Table._again

    def again(self: Table, claim: Claim, now: int, seen: StoredRecord) -> StoredRecord:
        return replace(right(self, claim, now, seen), fence=seen.fence)

    return patch.object(Table, "_again", again)


@mutant("a take-over forgets finished steps", "steps", "I9")
def _() -> AbstractContextManager[Any]:
    right = Table._again
    return patch.object(
        Table, "_again", lambda self, claim, now, seen: replace(right(self, claim, now, seen), steps=())
    )


@mutant("the asker's clock instead of the store's", "rerun, clocks off", "I4", "I7", "I8", "told")
def _() -> AbstractContextManager[Any]:
    right = Table.apply

    def apply(self: Table, operation: Any, now: int) -> Answer:
        lease = getattr(operation, "lease", operation)
        asker = int(getattr(lease, "nonce", b"0.").split(b".")[0])
        return right(self, operation, now + (600_000_000 if asker % 2 else -600_000_000))

    return patch.object(Table, "apply", apply)


@mutant("purging deletes what is in doubt or running", "purged, swept", "I7")
def _() -> AbstractContextManager[Any]:
    def purge(self: Table, limit: int, now: int) -> SweepCount:
        gone = [digest for digest, record in self.records.items() if record.lease_us <= now]
        for digest in gone[:limit]:
            del self.records[digest]
        return SweepCount(len(gone))

    return patch.object(Table, "purge", purge)


@mutant("sweeping marks live leases", "swept", "I4")
def _() -> AbstractContextManager[Any]:
    right = Table.lapse
    return patch.object(Table, "lapse", lambda self, limit, now: right(self, limit, now + 10_000_000))


@mutant("sweeping does not tell which leases it marked", "swept", "told")
def _() -> AbstractContextManager[Any]:
    right = Table.lapse
    return patch.object(Table, "lapse", lambda self, limit, now: LapsedRecords(right(self, limit, now).records[1:]))


@mutant("the same claim again is not recognised", "rerun", "ownerless")
def _() -> AbstractContextManager[Any]:
    return judging(lambda record, claim, now: (record, replace(claim, nonce=b"another"), now))


@mutant("claims and take-overs do not compare the fingerprint", "two fingerprints", "I5")
def _() -> AbstractContextManager[Any]:
    return judging(lambda record, claim, now: (record, replace(claim, fingerprint=record.fingerprint), now))


@mutant("a key that stands for another request is claimed with its own fingerprint", "two fingerprints", "I5")
def _() -> AbstractContextManager[Any]:
    return patch.object(Request, "is_asked_by", lambda _self, _stored: True)


@mutant("a fingerprint taken in another way is that of another request", "two versions of fingerprints", "I5")
def _() -> AbstractContextManager[Any]:
    return patch.object(Request, "is_asked_by", lambda self, stored: stored == self.fingerprint)


def _with_a_key(record: StoredRecord) -> StoredRecord:
    """The record as if it were not erased."""
    return replace(record, key=replace(record.key, value="v")) if record.erased else record


@mutant("the fingerprint of an erased record is compared", "erased", "erased")
def _() -> AbstractContextManager[Any]:
    return judging(lambda record, claim, now: (_with_a_key(record), claim, now))


@mutant("erasing leaves the fingerprint", "erased", "erased")
def _() -> AbstractContextManager[Any]:
    return patch.object(
        memory, "erase_record", lambda record, note: replace(erase_record(record, note), fingerprint=record.fingerprint)
    )


@mutant("an erased failure can be tried again", "erased", "I7")
def _() -> AbstractContextManager[Any]:
    return patch.object(
        memory, "erase_record", lambda record, note: replace(erase_record(record, note), retryable=record.retryable)
    )


@mutant("what runs is erased", "erased", "I7")
def _() -> AbstractContextManager[Any]:
    def erase(self: Table, operation: Erase, now: int) -> Erased | StateMismatch:
        del now
        record = self.records.get(operation.digest)
        if record is None:
            return StateMismatch(None)
        left = self.records[operation.digest] = erase_record(record, operation.note)
        return Erased(left)

    return patch.object(Table, "erase", erase)


@mutant("a waiter does not take an erased record for its answer", "erased while they wait", "waiters", "broke")
def _() -> AbstractContextManager[Any]:
    return patch.object(StoredRecord, "is_for", lambda self, fingerprint: self.fingerprint == fingerprint)


@mutant("a lease still holds at its last instant", "clock jumps, rerun", "I8")
def _() -> AbstractContextManager[Any]:
    return judging(lambda record, claim, now: (replace(record, lease_us=record.lease_us + 1), claim, now))


@mutant("an expired record is still replayed at its last instant", "purged", "I7")
def _() -> AbstractContextManager[Any]:
    return judging(lambda record, claim, now: (replace(record, expires_us=record.expires_us + 1), claim, now))


@mutant("a live lease is taken over a little early", "clock jumps, rerun", "I4")
def _() -> AbstractContextManager[Any]:
    return judging(lambda record, claim, now: (replace(record, lease_us=record.lease_us - 200_000), claim, now))


@mutant("hold is ignored at a take-over", "hold, two policies", "I1")
def _() -> AbstractContextManager[Any]:
    return patch.object(claim_rules, "may_take_over", lambda owner, claimer: "at once")


@mutant("only the claimer's policy counts", "two policies", "I1")
def _() -> AbstractContextManager[Any]:
    right = claim_rules.may_take_over
    return patch.object(claim_rules, "may_take_over", lambda owner, claimer: right(claimer, claimer))


@mutant("the hook is asked before the quiet time is over", "reconcile, hook asked", "I1")
def _() -> AbstractContextManager[Any]:
    def at_once(record: StoredRecord, claim: Claim, now: int) -> tuple[StoredRecord, Claim, int]:
        return (
            replace(record, reconcile_after_us=0),
            replace(claim, terms=replace(claim.terms, reconcile_after_us=0)),
            now,
        )

    return judging(at_once)


@mutant("an attempt after a doubtful one is not told", "rerun", "I10")
def _() -> AbstractContextManager[Any]:
    return patch.object(memory, "granted", lambda record: replace(granted(record), in_doubt=False))


@mutant("check, then act", "rerun, no waiting", "I4", "I9", "I7")
def _() -> AbstractContextManager[Any]:
    decided: set[bytes] = set()

    def claim_in_two(self: CallFlow) -> Generator[Any, Any, Any]:
        request = self.request
        claim = Claim(request.key, request.fingerprint, self._new_nonce(), request.terms, request.about)
        found: Found = yield Read(request.key.digest)
        verdict = judge(found.record, claim, found.now_us)
        if not isinstance(verdict, MayWrite):
            return verdict
        decided.add(claim.nonce)
        self.asked_at = self._clock.monotonic()
        return (yield claim)

    def write(self: Table, claim: Claim, now: int) -> Any:
        seen = self.records.get(claim.key.digest)
        record = self._fresh(claim, now, None) if seen is None else self._again(claim, now, seen)
        self.records[claim.key.digest] = record
        return granted(record)

    switches = ExitStack()
    switches.enter_context(patch.object(CallFlow, "_claim", claim_in_two))
    switches.enter_context(patch.object(Table, "claim", write))
    return switches


@mutant("a claim is sent again under a new nonce", "rerun", "ownerless")
def _() -> AbstractContextManager[Any]:
    def claim_anew(self: CallFlow) -> Generator[Any, Any, Any]:
        request = self.request
        self.asked_at = self._clock.monotonic()
        for pause in (0.02, 0.1, 0.0):
            claim = Claim(request.key, request.fingerprint, self._new_nonce(), request.terms, request.about)
            try:
                return (yield claim)
            except StoreUnavailable:
                yield Pause(pause)
        message = "gone"
        raise StoreUnavailable(message)

    return patch.object(CallFlow, "_claim", claim_anew)


@mutant("nonces are reused", "rerun, purged", "I4", "I9", "I10", "ownerless")
def _() -> AbstractContextManager[Any]:
    right = CallFlow.__init__

    def init(
        self: CallFlow, request: Any, clock: Any, new_nonce: Callable[[], bytes], retry_budget: Any, **more: Any
    ) -> None:
        new_nonce()
        right(self, request, clock, lambda: b"0.1", retry_budget, **more)

    return patch.object(CallFlow, "__init__", init)


@mutant("a zombie returns its own value", "rerun, long handler", "I2", "I3")
def _() -> AbstractContextManager[Any]:
    right = CallFlow._complete

    def complete(self: CallFlow, value: Any, *, replayed: bool) -> Generator[Any, Any, Any]:
        try:
            return replace((yield from right(self, value, replayed=replayed)), value=value)
        except LeaseLost:
            return Result(value, replayed=False, _granted=self.granted)

    return patch.object(CallFlow, "_complete", complete)


@mutant("a lost reply of a completion is taken for a failure", "hold, rerun", "I1", "I10")
def _() -> AbstractContextManager[Any]:
    right = CallFlow._settle

    def settle(self: CallFlow, write: Complete | Fail, longer: float = 0.0) -> Generator[Any, Any, Any]:
        if not isinstance(write, Complete):
            return (yield from right(self, write, longer))
        try:
            answer = yield write
        except StoreUnavailable:
            return (yield from right(self, Fail(write.lease, "retry", Failure("lost", ""), doubtful=False)))
        self.owns_claim = False
        return answer

    return patch.object(CallFlow, "_settle", settle)


@mutant("any error means that nothing happened", "handler fails, handler fails, hold", "I1", "I10")
def _() -> AbstractContextManager[Any]:
    return patch.object(CallFlow, "_ending", lambda self, error: "retry")


@mutant("a retryable failure forgets an earlier doubt", "handler fails", "I10")
def _() -> AbstractContextManager[Any]:
    right = CallFlow.failure

    def failure(self: CallFlow, error: BaseException) -> Fail:
        fail = right(self, error)
        if isinstance(error, self.request.policy.retry_errors):
            return replace(fail, ending="retry", doubtful=False)
        return fail

    return patch.object(CallFlow, "failure", failure)


@mutant("a retryable failure turns a doubt into a record that expires", "handler fails", "I7")
def _() -> AbstractContextManager[Any]:
    right = CallFlow._ending

    def ending(self: CallFlow, error: BaseException) -> str:
        return "retry" if isinstance(error, self.request.policy.retry_errors) else right(self, error)

    return patch.object(CallFlow, "_ending", ending)


@mutant("a waiter that times out does no last read", "impatient", "waiters")
def _() -> AbstractContextManager[Any]:
    def last_look(self: CallFlow, remaining_us: int) -> Generator[Any, Any, Any]:
        raise call_errors.in_progress_error(self.request.key, remaining_us)
        yield

    return patch.object(CallFlow, "_last_look", last_look)


@mutant("nobody cleans up after a cancelled caller", "rerun", "ownerless")
def _() -> AbstractContextManager[Any]:
    return patch.object(CallFlow, "abandoned", lambda self, error, unheard=None: (_ for _ in ()))


LOST_CLAIM = World(name="lost claim", askers=PAIR, faults=("lose", "stall"), budget=2)


@mutant("the lease is counted from the last time the claim was sent", LOST_CLAIM, "told")
def _() -> AbstractContextManager[Any]:
    right = CallFlow._claim

    def claim(self: CallFlow) -> Generator[Any, Any, Any]:
        sending = right(self)
        step = functools.partial(next, sending)
        while True:
            try:
                wanted = step()
            except StopIteration as stop:
                return stop.value
            self.asked_at = self._clock.monotonic()
            try:
                step = functools.partial(sending.send, (yield wanted))
            except StoreUnavailable as error:
                step = functools.partial(sending.throw, error)

    return patch.object(CallFlow, "_claim", claim)


@mutant("the lease is counted from the reply", "rerun", "told")
def _() -> AbstractContextManager[Any]:
    right = CallFlow._granted

    def granted_late(self: CallFlow, granted: Any) -> Generator[Any, Any, Any]:
        self.asked_at = self._clock.monotonic()
        return (yield from right(self, granted))

    return patch.object(CallFlow, "_granted", granted_late)


@mutant("a cancelled caller keeps its claim", "rerun, one batch", "ownerless")
def _() -> AbstractContextManager[Any]:
    return patch.object(Lane, "abandon", lambda self, pending: None)


@mutant("what is granted to a caller who is gone is not given back", "rerun, one batch", "ownerless")
def _() -> AbstractContextManager[Any]:
    return patch.object(Lane, "_undo", lambda self, *claim: None)


@mutant("the lead is not handed on", "one batch, threads", "I8", "leftover", "ownerless")
def _() -> AbstractContextManager[Any]:
    def next_leader(self: Lane) -> PendingOperation | None:
        self._leading = False
        return None

    return patch.object(Lane, "next_leader", next_leader)


@mutant(
    "answers of a list go to the wrong callers",
    "two scopes, one batch",
    "I2",
    "I3",
    "I4",
    "I6",
    "I8",
    "broke",
    "ownerless",
)
def _() -> AbstractContextManager[Any]:
    right = Lane.deliver

    def deliver(self: Lane, flight: Any, replies: Any, struck: Exception | None = None) -> list[PendingOperation]:
        turned = replies and [reply if isinstance(reply, Exception) else list(reversed(reply)) for reply in replies]
        return right(self, flight, turned, struck)

    return patch.object(Lane, "deliver", deliver)


LONG_UNTOUCHED = World(name="long, untouched", askers=PAIR, work=(0.5, 0.2), wait_for=3.0, touches=False)


@mutant("leases are never renewed", LONG_UNTOUCHED, "I9")
def _() -> AbstractContextManager[Any]:
    right = Heartbeat.beats
    return patch.object(Heartbeat, "beats", lambda self, now: right(self, now)[:0])


@mutant("renewal does not end with max_runtime", "wedged handler", "runtime")
def _() -> AbstractContextManager[Any]:
    right = Heartbeat.hold

    def hold(self: Heartbeat, lease: Lease, *, length: float, max_runtime: float, asked: float) -> HeldLease:
        return right(self, lease, length=length, max_runtime=max_runtime * 100, asked=asked)

    return patch.object(Heartbeat, "hold", hold)


@mutant("the heartbeat never tells the attempt that it lost", "rerun, long handler", "told", "I1")
def _() -> AbstractContextManager[Any]:
    return patch.object(HeldLease, "over", lambda self, now: None)


JUMPED = World(name="jumped", askers=PAIR, faults=("jump",), budget=1, work=(0.3, 0.0), wait_for=2.0)


@mutant("a refused renewal is taken for a success", JUMPED, "told")
def _() -> AbstractContextManager[Any]:
    right = Heartbeat.answered

    def answered(self: Heartbeat, renewal: Renew, answer: Answer | Exception, sent: float) -> None:
        right(self, renewal, Renewed(0) if isinstance(answer, Lost) else answer, sent)

    return patch.object(Heartbeat, "answered", answered)


THREE_WAIT = World(name="three wait", askers=(Asker(0), Asker(1), Asker(1), Asker(1)), faults=("crash",), budget=1)


@mutant("all waiters are promoted", THREE_WAIT, "waiters")
def _() -> AbstractContextManager[Any]:
    right = Waiting.looked

    def looked(self: Waiting, read: Read, answer: Answer | Exception) -> list[Waiter]:
        told = right(self, read, answer)
        while more := right(self, read, answer):
            told += more
            self._heirs.pop(read.digest, None)
        return told

    def leave_no_heir(self: Waiting, waiter: Waiter) -> Waiter:
        promoted = promote(self, waiter)
        self._heirs.pop(waiter.digest, None)
        return promoted

    promote = Waiting._promote
    switches = ExitStack()
    switches.enter_context(patch.object(Waiting, "_promote", leave_no_heir))
    switches.enter_context(patch.object(Waiting, "looked", looked))
    return switches


RIVALS = World(
    name="rivals",
    askers=(Asker(0), Asker(1), Asker(1), Asker(2)),
    faults=("crash", "stall"),
    budget=2,
    wait_for=6.0,
)


@mutant("a promoted waiter that came too late keeps its turn", RIVALS, "I8", "leftover")
def _() -> AbstractContextManager[Any]:
    right = Waiting.join
    return patch.object(
        Waiting, "join", lambda self, digest, until, now, event=None, last=None: right(self, digest, until, now, event)
    )


@mutant("a promoted waiter that leaves does not pass its turn on", THREE_WAIT, "I8", "leftover")
def _() -> AbstractContextManager[Any]:
    right = Waiting.done
    return patch.object(Waiting, "done", lambda self, digest, waiter: right(self, digest, None))


@mutant("a task cancelled in the turn of its grant does not give it back", "rerun, one batch", "ownerless")
def _() -> AbstractContextManager[Any]:
    right = AsyncLane._leave

    def leave(self: AsyncLane, pending: PendingOperation) -> None:
        if pending.answer is None:
            right(self, pending)

    return patch.object(AsyncLane, "_leave", leave)


@mutant("a task that is cancelled leaves its claim in the lane", "rerun, one batch", "ownerless")
def _() -> AbstractContextManager[Any]:
    return patch.object(AsyncLane, "_leave", lambda self, pending: None)


@mutant("a task that gives back waits for somebody else to send it", "rerun, one batch", "ownerless", "leftover")
def _() -> AbstractContextManager[Any]:
    return patch.object(AsyncLane, "_leave", lambda self, pending: self._lane.abandon(pending))


@mutant("a thread struck on its seat does not give back what it was brought", "threads", "ownerless")
def _() -> AbstractContextManager[Any]:
    right = ThreadLane._leave

    def leave(self: ThreadLane, pending: PendingOperation) -> Generator[Any, Any, None]:
        if pending.answer is None:
            yield from right(self, pending)

    return patch.object(ThreadLane, "_leave", leave)


@mutant("a thread struck after its own round does not give back its grant", "threads", "ownerless")
def _() -> AbstractContextManager[Any]:
    right = CallFlow.abandoned
    return patch.object(CallFlow, "abandoned", lambda self, error, unheard=None: right(self, error))


@mutant("a thread that is struck takes the lead with it", "threads", "I8", "leftover", "ownerless")
def _() -> AbstractContextManager[Any]:
    def leave(self: ThreadLane, pending: PendingOperation) -> Generator[Any, Any, None]:
        self._lane.abandon(pending)
        yield from ()

    return patch.object(ThreadLane, "_leave", leave)


@mutant("a thread that gives back waits for somebody else to send it", "threads", "ownerless", "leftover", "I8")
def _() -> AbstractContextManager[Any]:
    right = ThreadLane._leave

    def leave(self: ThreadLane, pending: PendingOperation) -> Generator[Any, Any, None]:
        if pending.leads:
            yield from right(self, pending)
        else:
            self._lane.abandon(pending)

    return patch.object(ThreadLane, "_leave", leave)


@mutant("a claim that was granted too late is run all the same", "rerun, never touched", "told")
def _() -> AbstractContextManager[Any]:
    return patch.object(CallFlow, "_is_over", lambda self: False)
