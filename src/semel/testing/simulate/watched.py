"""The store model under watch: the real table, and beside it a checker that looks at every change of a record.

What always holds: the rules stated here are those of the design, written a second time and independently of
`judge`, so that a mistake in one of them shows. The checker changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from semel.core import codec
from semel.core.operations import (
    Claim,
    Complete,
    Doubtful,
    Fail,
    Granted,
    Lapse,
    Lost,
    Operation,
    Purge,
    Read,
    Renew,
    Replay,
    Resolve,
    Reused,
    Running,
    Scan,
    Tally,
)
from semel.core.policy import Doubt
from semel.core.record import Record, Status
from semel.core.store import Answers, Plan
from semel.stores.memory.table import Table
from semel.testing.simulate.life import Life
from semel.testing.simulate.violation import Violation
from semel.testing.simulate.world import SHAPE

if TYPE_CHECKING:
    from semel.testing.simulate.simulation import Simulation

_RUNNING, _COMPLETED, _FAILED, _IN_DOUBT = Status.RUNNING, Status.COMPLETED, Status.FAILED, Status.IN_DOUBT


class WatchedStore:
    """What lanes of the simulation send to."""

    __slots__ = ("batch", "life_of", "lives", "name", "sim", "table")

    def __init__(self, sim: Simulation, batch: int) -> None:
        self.name = "simulated://"
        self.batch = batch
        self.sim = sim
        self.table = Table()
        self.lives: dict[bytes, Life] = {}
        self.life_of: dict[bytes, Life] = {}

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """One command: the operations themselves."""
        del joined  # nothing can be joined here
        answers: Answers = yield operations
        return answers

    def apply_all(self, operations: Sequence[Operation]) -> Answers:
        """Carry out a list."""
        return [self.apply(operation) for operation in operations]

    def apply(self, operation: Operation) -> Any:
        """Carry out one operation, and look at what it changed."""
        records = self.table.records
        now = self.sim.store_now()
        kind = type(operation)
        if kind is Read or kind is Scan or kind is Tally:
            return self.table.apply(operation, now)
        if kind is Purge or kind is Lapse:
            return self._swept(operation, now)
        if kind is Claim or kind is Resolve:
            digest = operation.key.digest if kind is Claim else operation.digest  # type: ignore[union-attr]
        else:
            digest = operation.lease.key.digest  # type: ignore[union-attr]
        before = records.get(digest)
        answer = self.table.apply(operation, now)
        after = records.get(digest)
        if kind is Claim:
            self._claimed(operation, before, after, now, answer)  # type: ignore[arg-type]
        elif kind is Resolve:
            self._resolved(operation, before, after, now)  # type: ignore[arg-type]
        else:
            self._written(operation, before, after, now, answer)
        if self.sim.trace is not None:
            self.sim.note("store", f"{_told(operation)} -> {_told(answer)}")
        return answer

    # ------------------------------------------------------------------ claims

    def _claimed(self, claim: Claim, before: Record | None, after: Record | None, now: int, answer: Any) -> None:
        kind = type(answer)
        if kind is Granted:
            self._granted(claim, before, after, now, answer)
            return
        if before is None:
            raise Violation("I3", f"a claim that found nothing was answered {_told(answer)}")
        if after is not before:
            raise Violation("I4", f"a claim that won nothing changed the record: {_told(answer)}")
        if _is_over(before, now):
            raise Violation("I7", f"an expired record was answered {_told(answer)}")
        if before.status is _RUNNING and before.nonce == claim.nonce:
            raise Violation("ownerless", f"a claim that was granted, sent again, was answered {_told(answer)}")
        same = before.fingerprint == claim.fingerprint
        if same is (kind is Reused):
            raise Violation("I5", f"a claim with {'the same' if same else 'another'} fingerprint got {_told(answer)}")
        seen = self.sim.seen
        if kind is Reused:
            seen["reused"] += 1
        elif kind is Replay:
            if not before.final:
                raise Violation("I7", f"a record that is {before.status} was replayed")
            seen["replayed"] += 1
        elif before.final:
            raise Violation("I7", f"a record that is {before.status} was answered {_told(answer)}")
        elif kind is Running:
            if before.status is not _RUNNING or before.lease_us <= now:
                raise Violation("I8", "a key without a live lease was answered Running")
            seen["found running"] += 1
        elif kind is Doubtful:
            self._declined(claim, before, now, answer)

    def _declined(self, claim: Claim, before: Record, now: int, answer: Doubtful) -> None:
        if before.settled and not before.doubtful:
            raise Violation("I8", "a record without doubt was answered in doubt")
        if before.status is _RUNNING and before.lease_us > now:
            raise Violation("I8", "a running record was answered in doubt")
        if _may_take(before, claim, now):
            raise Violation("I8", "a record that both policies allow to take over was answered in doubt")
        self.sim.seen["held back" if answer.remaining_us is None else "too early to ask"] += 1

    def _granted(self, claim: Claim, before: Record | None, after: Record | None, now: int, answer: Granted) -> None:
        if after is None or after.nonce != claim.nonce or after.status is not _RUNNING or answer.record != after:
            raise Violation("I4", "a claim was granted that the record does not hold")
        if before is None or _is_over(before, now):
            self._born(claim, before, after)
            return
        seen = self.sim.seen
        if before.fingerprint != claim.fingerprint or after.fingerprint != before.fingerprint:
            raise Violation("I5", "a claim with another fingerprint was granted")
        if before.status is _RUNNING and before.nonce == claim.nonce:
            seen["granted again"] += 1
            if after.fence == before.fence:
                return
        if before.final:
            raise Violation("I7", f"a record that is {before.status} was claimed again")
        if before.status is _RUNNING and before.lease_us > now:
            raise Violation("I4", "a live lease was taken over")
        if after.fence <= before.fence:
            raise Violation("I4", f"the fence went from {before.fence} to {after.fence}")
        if before.doubtful or not before.settled:
            self._taken(claim, before, after, now, answer)
        elif answer.in_doubt:
            raise Violation("I10", "an attempt was told of a doubt that does not exist")
        else:
            seen["claimed again"] += 1
        if after.steps != before.steps:
            raise Violation("I9", "finished steps were forgotten")
        self._leads(claim.nonce, after)

    def _taken(self, claim: Claim, before: Record, after: Record, now: int, answer: Granted) -> None:
        if not _may_take(before, claim, now):
            raise Violation("I1", "a record in doubt was taken over though a policy does not allow it yet")
        if not after.doubtful or not answer.in_doubt:
            raise Violation("I10", "an attempt after a doubtful one was not told")
        if answer.reconcile is not (claim.terms.in_doubt == "reconcile"):
            raise Violation("I1", "whether to ask the hook first was not as the policy says")
        self.sim.superseded(before)
        self.sim.seen["taken over to ask" if answer.reconcile else "taken over"] += 1

    def _born(self, claim: Claim, before: Record | None, after: Record) -> None:
        digest = claim.key.digest
        earlier = self.lives.get(digest)
        number = 1 if earlier is None else earlier.number + 1
        if claim.nonce in self.life_of and claim.nonce not in self.sim.faults.unknown:
            raise Violation("I4", "a nonce was used for a second generation")
        if before is not None and after.fence <= before.fence:
            raise Violation("I4", "the fence did not rise over an expired record")
        if after.attempts != 1 or after.doubtful or after.steps:
            raise Violation("I7", "a new generation inherited something")
        if number > 1:
            self.sim.seen["next generation"] += 1
        self.lives[digest] = Life(digest, number, claim.fingerprint, after.fence)
        self._leads(claim.nonce, after)

    def _leads(self, nonce: bytes, record: Record) -> None:
        life = self.lives[record.key.digest]
        life.fence = record.fence
        self.life_of[nonce] = life

    # ------------------------------------------------------------------ writes

    def _written(self, operation: Any, before: Record | None, after: Record | None, now: int, answer: Any) -> None:
        kind = type(operation)
        if after is before:
            if type(answer) is Lost:
                self.sim.seen["refused: " + kind.__name__] += 1
            elif before is None or before.nonce != operation.lease.nonce or before.fence != operation.lease.fence:
                raise Violation("I4", f"{kind.__name__} under another's lease was answered {_told(answer)}")
            elif kind is Complete:
                self.sim.seen["completed again"] += 1
            return
        lease = operation.lease
        if before is None or after is None or before.nonce != lease.nonce or before.fence != lease.fence:
            raise Violation("I4", f"{kind.__name__} was accepted under a lease that is not the current one")
        if before.status is not _RUNNING:
            raise Violation("I7", f"{kind.__name__} changed a record that is {before.status}")
        if after.nonce != before.nonce or after.fence != before.fence or after.fingerprint != before.fingerprint:
            raise Violation("I4", f"{kind.__name__} changed whose record it is")
        if kind is Renew:
            self.sim.renewed(lease, now)
        elif kind is Complete:
            self._completed(after)
        elif kind is Fail:
            self._failed(operation, before, after)

    def _completed(self, after: Record) -> None:
        life = self.lives[after.key.digest]
        if life is not self.life_of.get(after.nonce) or after.fence != life.fence:
            raise Violation("I4", "somebody else than the highest owner completed")
        if after.outcome is None:
            raise Violation("I3", "a record was completed without an outcome")
        if life.outcome is not None:
            raise Violation("I7", "a generation was completed twice")
        life.outcome = after.outcome
        life.value = codec.decode(after.outcome, SHAPE)
        self.sim.seen["completed"] += 1

    def _failed(self, fail: Fail, before: Record, after: Record) -> None:
        if after.status is _FAILED and after.retryable and (before.doubtful and fail.doubtful):
            raise Violation("I7", "a doubt became a record that expires")
        if after.final:
            self.lives[after.key.digest].failed = True
        self.sim.seen[f"failed: {fail.ending}{'' if fail.started else ', never called'}"] += 1
        if fail.error.type == "semel.CallerGone":
            self.sim.seen["given back"] += 1

    def _resolved(self, resolve: Resolve, before: Record | None, after: Record | None, now: int) -> None:
        if after is before or after is None or before is None:
            return
        if before.status is not _IN_DOUBT and not (before.status is _RUNNING and before.lease_us <= now):
            raise Violation("I4", f"a record that is {before.status} was resolved")
        if after.fence <= before.fence:
            raise Violation("I4", "resolving did not raise the fence")
        self._leads(resolve.nonce, after)
        if after.status is _COMPLETED:
            self._completed(after)
        self.sim.seen["resolved"] += 1

    def _swept(self, operation: Purge | Lapse, now: int) -> Any:
        before = dict(self.table.records)
        answer = self.table.apply(operation, now)
        for digest, record in before.items():
            after = self.table.records.get(digest)
            if after is record:
                continue
            if after is None:
                if not _is_over(record, now):
                    raise Violation("I7", f"a record that is {record.status} was deleted before its time")
                self.sim.seen["purged"] += 1
            elif record.status is not _RUNNING or record.lease_us > now or after.status is not _IN_DOUBT:
                raise Violation("I4", f"sweeping turned {record.status} into {after.status}")
            else:
                self.sim.seen["lapsed"] += 1
        return answer


def _is_over(record: Record, now: int) -> bool:
    return record.status is not _RUNNING and record.status is not _IN_DOUBT and record.expires_us <= now


def _may_take(before: Record, claim: Claim, now: int) -> bool:
    """The design's words: both policies must allow it, the stricter counts, asking only after the quiet time."""
    words: set[Doubt] = {before.in_doubt_policy, claim.terms.in_doubt}
    if "hold" in words:
        return False
    if claim.terms.in_doubt == "reconcile":
        return now >= before.lease_us + max(before.reconcile_after_us, claim.terms.reconcile_after_us)
    return words == {"rerun"}


def _told(value: object) -> str:
    """An operation or answer in a trace."""
    name = type(value).__name__
    lease = getattr(value, "lease", None)
    if isinstance(value, Claim):
        return f"Claim {value.nonce.decode()}"
    if isinstance(value, Granted):
        return f"Granted fence {value.record.fence}{' in doubt' if value.in_doubt else ''}"
    if isinstance(value, Fail):
        return f"Fail {value.ending} {value.lease.nonce.decode()} fence {value.lease.fence}"
    if lease is not None:
        return f"{name} {lease.nonce.decode()} fence {lease.fence}"
    return name
