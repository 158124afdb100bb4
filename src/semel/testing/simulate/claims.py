"""What a claim may be answered: the rules of the design, written a second time and independently of `judge`.

What always holds: the judge of the judge shares no code with it, so that a mistake in one of them shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.core.operations import Claim, Doubtful, Granted, Replay, Reused, Running
from semel.core.policy import Doubt
from semel.core.record import Record, Status
from semel.testing.simulate.life import Life
from semel.testing.simulate.trace import told
from semel.testing.simulate.violation import Violation

if TYPE_CHECKING:
    from semel.testing.simulate.simulation import Simulation

_RUNNING, _IN_DOUBT = Status.RUNNING, Status.IN_DOUBT


class Claims:
    """Judges the answers to claims, and knows which generation every granted claim belongs to."""

    __slots__ = ("life_of", "lives", "sim")

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.lives: dict[bytes, Life] = {}  # the latest generation of each key
        self.life_of: dict[bytes, Life] = {}  # the generation that a nonce was granted

    def answered(self, claim: Claim, before: Record | None, after: Record | None, now: int, answer: Any) -> None:
        """A claim that met the record `before` was answered, and left `after`."""
        kind = type(answer)
        if kind is Granted:
            self._granted(claim, before, after, now, answer)
            return
        if before is None:
            raise Violation("I3", f"a claim that found nothing was answered {told(answer)}")
        if after is not before:
            raise Violation("I4", f"a claim that won nothing changed the record: {told(answer)}")
        if is_over(before, now):
            raise Violation("I7", f"an expired record was answered {told(answer)}")
        if before.status is _RUNNING and before.nonce == claim.nonce:
            raise Violation("ownerless", f"a claim that was granted, sent again, was answered {told(answer)}")
        if not before.fingerprint:
            self._met_erased(before, answer)
            return
        same = before.fingerprint == claim.fingerprint
        if same is (kind is Reused):
            raise Violation("I5", f"a claim with {'the same' if same else 'another'} fingerprint got {told(answer)}")
        seen = self.sim.seen
        if kind is Reused:
            seen["reused"] += 1
        elif kind is Replay:
            self._replayed(before, answer)
        elif before.final:
            raise Violation("I7", f"a record that is {before.status} was answered {told(answer)}")
        elif kind is Running:
            if before.status is not _RUNNING or before.lease_us <= now:
                raise Violation("I8", "a key without a live lease was answered Running")
            seen["found running"] += 1
        elif kind is Doubtful:
            self._declined(claim, before, now, answer)

    def _replayed(self, before: Record, answer: Replay) -> None:
        if not before.final:
            raise Violation("I7", f"a record that is {before.status} was replayed")
        if (answer.record.nonce, answer.record.outcome) != (before.nonce, before.outcome):
            raise Violation("I2", "a replay does not tell what is recorded now")
        self.sim.seen["replayed"] += 1

    def _met_erased(self, before: Record, answer: Any) -> None:
        if type(answer) is not Replay or not before.final:
            raise Violation("erased", f"a claim that met an erased record was answered {told(answer)}")
        self.sim.seen["replayed, erased"] += 1

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
        if before is None or is_over(before, now):
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
        self.lead(claim.nonce, after)

    def _taken(self, claim: Claim, before: Record, after: Record, now: int, answer: Granted) -> None:
        if not _may_take(before, claim, now):
            raise Violation("I1", "a record in doubt was taken over though a policy does not allow it yet")
        if not after.doubtful or not answer.in_doubt:
            raise Violation("I10", "an attempt after a doubtful one was not told")
        if answer.reconcile is not (claim.terms.in_doubt == "reconcile"):
            raise Violation("I1", "whether to ask the hook first was not as the policy says")
        self.sim.witness.superseded(before)
        self.sim.seen["taken over to ask" if answer.reconcile else "taken over"] += 1

    def _born(self, claim: Claim, before: Record | None, after: Record) -> None:
        digest = claim.key.digest
        earlier = self.lives.get(digest)
        number = 1 if earlier is None else earlier.number + 1
        if claim.nonce in self.life_of and claim.nonce not in self.sim.faults.unknown:
            raise Violation("I4", "a nonce was used for a second generation")
        if before is None and earlier is not None and not earlier.ended:
            raise Violation("I7", "a record is gone that nobody deleted")
        if before is not None and after.fence <= before.fence:
            raise Violation("I4", "the fence did not rise over an expired record")
        if after.attempts != 1 or after.doubtful or after.steps:
            raise Violation("I7", "a new generation inherited something")
        if number > 1:
            self.sim.seen["next generation"] += 1
        life = self.lives[digest] = Life(digest, number, claim.fingerprint, after.fence)
        if earlier is not None and earlier.ended == "forgotten":
            life.line = earlier.line
        self.lead(claim.nonce, after)

    def forgotten(self, digest: bytes) -> None:
        """The server has forgotten writes to a record: what was granted and recorded by them is nobody's any more."""
        life, record = self.lives[digest], self.sim.store.table.records.get(digest)
        if record is None:
            life.ended = "forgotten"
            return
        then = self.life_of[record.nonce]
        if then is not life:
            life.ended = "forgotten"
            self.lives[digest] = then
        then.ended, then.fence = "", record.fence
        if then.outcome is not None and record.fingerprint and record.outcome != then.outcome:
            then.earlier.append(then.value)
            then.outcome = then.value = None

    def lead(self, nonce: bytes, record: Record) -> None:
        """Whoever made this nonce is the highest owner now."""
        life = self.lives[record.key.digest]
        life.fence = record.fence
        self.life_of[nonce] = life


def is_over(record: Record, now: int) -> bool:
    """Whether a record has expired; only settled ones do."""
    return record.status is not _RUNNING and record.status is not _IN_DOUBT and record.expires_us <= now


def _may_take(before: Record, claim: Claim, now: int) -> bool:
    """The design's words: both policies must allow it, the stricter counts, asking only after the quiet time."""
    words: set[Doubt] = {before.in_doubt_policy, claim.terms.in_doubt}
    if "hold" in words:
        return False
    if claim.terms.in_doubt == "reconcile":
        return now >= before.lease_us + max(before.reconcile_after_us, claim.terms.reconcile_after_us)
    return words == {"rerun"}
