"""The witness: waiters, leases and cancelled callers, watched from outside while the schedule runs.

What always holds: it looks at what the real state machines hold, and never changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.operations import Claim, Granted
from semel.core.record import LEASE_ENDED, Lease, Status, StoredRecord
from semel.engine.background import Ended, Promoted, TimedOut, Waiter
from semel.engine.call_flow import Request
from semel_lab.simulate.checks.violation import Violation
from semel_lab.simulate.process import OUT, Visit
from semel_lab.simulate.world import is_same_request

if TYPE_CHECKING:
    from semel_lab.simulate.caller import Caller
    from semel_lab.simulate.simulation import Simulation


class Witness:
    """What is watched besides the store."""

    __slots__ = ("owners", "refused", "sim")

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.owners: dict[bytes, Caller] = {}  # who made a nonce
        self.refused: set[bytes] = set()  # nonces of leases whose holder was told that they are lost

    def news(self, caller: Caller, waiter: Waiter) -> None:
        """A waiter has news."""
        sim, news = self.sim, waiter.news
        if isinstance(news, Promoted):
            if any(
                other.heir and other.worker is caller.worker and _key(other) == waiter.digest for other in sim.callers
            ):
                raise Violation("waiters", "two waiters were promoted at a time")
            caller.heir = True
            sim.seen["promoted"] += 1
        elif isinstance(news, TimedOut):
            caller.missed = caller.request is not None and self.has_answer(caller.request)
            sim.seen["waited in vain"] += 1
            if caller.missed:
                sim.seen["last read finds it"] += 1
        elif isinstance(news, Ended):
            sim.seen["waited and got it"] += 1

    def is_final(self, digest: bytes) -> bool:
        """Whether there is an answer for a key."""
        record = self.sim.store.table.records.get(digest)
        return record is not None and record.final and record.expires_us > self.sim.store_now()

    def has_answer(self, request: Request) -> bool:
        """Whether there is an answer for this very request."""
        digest = request.key.digest
        # An erased record has no fingerprint, and is the answer to every request of its key.
        if not self.is_final(digest):
            return False
        taken = self.sim.store.table.records[digest].fingerprint
        return not taken or is_same_request(taken, request.fingerprint)

    def superseded(self, before: StoredRecord) -> None:
        """A lease was taken over: whoever held it must know by its own clock that it is over."""
        if before.key.digest in self.sim.quirks.forgotten:
            return  # the renewal that its holder was told of may be what was forgotten
        if self.sim.jumped or (before.status is not Status.RUNNING and before.error != LEASE_ENDED):
            return
        for worker in self.sim.workers:
            beat = worker.leases.renewer.heartbeat._beats.get(before.nonce) if worker.alive else None
            if beat is not None and beat.lost is None:
                if worker.clock.until(beat.deadline) > 0:
                    raise Violation("told", "a lease was taken over that its holder had reason to think alive")
                self.sim.seen["zombie superseded"] += 1

    def renewed(self, lease: Lease, now: int) -> None:
        """A lease was extended."""
        sim = self.sim
        age = now - sim.store.table.records[lease.key.digest].started_us
        if age > sim.setting.max_runtime_us and not sim.held_up and not sim.arriving:
            raise Violation("runtime", "a lease was renewed beyond max_runtime")
        sim.seen["renewed"] += 1

    def cancelled_with(self, caller: Caller, visit: Visit) -> None:
        """A caller is cancelled while it is in the lane."""
        pending, lane = visit.queued[0], caller.worker.lane
        if not isinstance(pending.operation, Claim):
            return
        if isinstance(pending.answer, Granted):
            where = "granted"
        elif lane.state == OUT and any(pending in list_ for list_ in lane.round):
            where = "out"
        else:
            where = "waiting or answered"
        self.sim.seen[f"cancelled with its claim {where}"] += 1

    def cleaned_up(self, caller: Caller, error: Exception | None) -> None:
        """A cancelled caller has left."""
        if error is not None:
            self.sim.faults.unknown.update(nonce for nonce, owner in self.owners.items() if owner is caller)
        self.sim.seen["cleaned up"] += 1

    def quiet(self, instant: int) -> None:
        """Nobody can go on before `instant`: what was to be cleaned up is, and nobody waits for no reason."""
        sim = self.sim
        standing = any(
            worker.thaws_us is not None or any(lane.due_us is not None for lane in worker.lanes)
            for worker in sim.workers
        )
        late = not standing and instant - sim.calm_since_us > sim.setting.limit_us + max(0, -sim.jump_us)
        for record in sim.store.table.records.values():
            owner = self.owners.get(record.nonce)
            if record.status is Status.RUNNING and owner is not None and owner.worker.up:
                self._check_owner(owner, record.nonce)
            if late and not record.final and any(_waits_for(caller, record) for caller in sim.callers):
                raise Violation("I8", "somebody waits, nothing goes wrong, and the key does not settle")

    def _check_owner(self, owner: Caller, nonce: bytes) -> None:
        faults = self.sim.faults
        if owner.cancelled and owner.ended and owner.worker.lane.state != OUT and nonce not in faults.unknown:
            raise Violation("ownerless", "a cancelled caller left its claim behind")
        if owner.waits is not None and owner.waits.news is None and nonce not in faults.ghosts:
            raise Violation("ownerless", "a caller waits for a claim that is its own")


def _key(caller: Caller) -> bytes | None:
    return None if caller.request is None else caller.request.key.digest


def _waits_for(caller: Caller, record: StoredRecord) -> bool:
    return not caller.ended and caller.waits is not None and caller.waits.digest == record.key.digest
