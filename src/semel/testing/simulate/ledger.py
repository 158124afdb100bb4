"""The ledger: what handlers did outside, and whether it was right to do it.

What always holds: an effect belongs to the generation of the lease under which it was done. The ledger is kept apart
from the store; only the reconcile hook, and whoever resolves a doubt, looks into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.engine.attempt import AttemptState
from semel.testing.simulate.life import Effect
from semel.testing.simulate.violation import Violation
from semel.testing.simulate.world import SECOND, is_same_request

if TYPE_CHECKING:
    from semel.testing.simulate.caller import Caller
    from semel.testing.simulate.simulation import Simulation


class Ledger:
    """External effects, and steps."""

    __slots__ = ("sim",)

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim

    def effect(self, caller: Caller, state: AttemptState) -> int:
        """The external effect of a handler."""
        sim, lease = self.sim, state.lease
        life = sim.store.claims.life_of[lease.nonce]
        record = sim.store.table.records.get(life.digest)
        current = record is not None and record.nonce == lease.nonce and record.fence == lease.fence
        if caller.request is None or not is_same_request(life.fingerprint, caller.request.fingerprint):
            raise Violation("I5", "another fingerprint was executed")
        if sim.world.touches:
            self._told(caller, state, current=current)
        if not current:
            sim.seen["zombie's effect"] += 1
        if sim.store_now() - state.granted.record.started_us > sim.setting.max_runtime_us:
            sim.faults.overrun(life.digest)
        caller.effects += 1
        value = caller.asker.key * 1_000_000 + caller.actor * 1_000 + caller.effects
        if life.line:
            self._repeated(life.digest, len(life.line), untold=current and not state.in_doubt)
        effect = Effect(value, sim.now_us + round(sim.world.delivery * SECOND))
        life.effects.append(effect)
        life.line.append(effect)
        if sim.trace is not None:
            sim.note(f"caller {caller.actor}", f"EFFECT {value} under fence {lease.fence}")
        return value

    def _told(self, caller: Caller, state: AttemptState, *, current: bool) -> None:
        """The attempt touched its lease right before, and was not told that it is lost."""
        if state.lease.nonce in self.sim.witness.refused:
            raise Violation("told", "an attempt that touched its lease went on although a renewal was refused")
        blurred = state.beat is not None and caller.worker.clock.until(state.beat.deadline) == 0
        forgotten = state.lease.key.digest in self.sim.quirks.forgotten
        if not current and not self.sim.jumped and not blurred and not forgotten:
            raise Violation("told", "an attempt that touched its lease went on although the key was somebody else's")

    def _repeated(self, digest: bytes, before: int, *, untold: bool) -> None:
        sim = self.sim
        words = sim.setting.policies.keys()
        explained = sim.faults.explained.get(digest, 0)
        if digest in sim.quirks.forgotten and before <= explained:
            sim.seen["effect repeated, its record was forgotten"] += 1
            return
        if words == {"hold"}:
            raise Violation("I1", "a second effect under hold")
        if words == {"reconcile"} and sim.world.touches and not sim.jumped:
            raise Violation("I1", "a second effect under reconcile")
        if before > explained:
            raise Violation("I10" if sim.faults.explained else "I9", f"effect {before + 1} after {explained} faults")
        if untold and "reconcile" not in words:
            raise Violation("I10", "an effect was repeated and its handler was not told")
        sim.seen["effect repeated"] += 1

    def step(self, state: AttemptState, index: int) -> int:
        """A step of a handler."""
        finished = state.granted.record.steps
        if any(done.index == index for done in finished):
            raise Violation("I9", "a finished step was run again")
        if finished:
            self.sim.seen["resumed after a step"] += 1
        return index

    def look(self, state: AttemptState) -> int | None:
        """What the reconcile hook sees: only what has arrived."""
        life = self.sim.store.claims.life_of[state.lease.nonce]
        arrived = [effect.value for effect in life.effects if effect.arrives_us <= self.sim.now_us]
        self.sim.seen["hook: happened" if arrived else "hook: did not happen"] += 1
        return arrived[0] if arrived else None
