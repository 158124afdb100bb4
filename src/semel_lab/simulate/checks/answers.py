"""What a claim may be answered: the rules of the design, written a second time and independently of `judge`.

What always holds: the judge of the judge shares no code with it, so that a mistake in one of them shows.

The ledger: what handlers did outside, and whether it was right to do it.

What always holds: an effect belongs to the generation of the lease under which it was done. The ledger is kept apart
from the store; only the reconcile hook, and whoever resolves a doubt, looks into it.

What the checker knows of one generation of a key: who was granted it, what was done, what was recorded and told.

What always holds: this is kept by watching alone; nothing of it is ever shown to the engine or to the store.

What callers were told, checked when they are told it.

What always holds: a value that was given is the recorded one, its effect is in the ledger under the same generation,
key and fingerprint, and every error a caller sees is one of its handler or of semel's tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from semel.core.operations import Claim, CountFailure, Granted, InDoubtAnswer, Replay, Reused, Running
from semel.core.policy import Doubt
from semel.core.record import NOTHING, About, Status, StoredRecord
from semel.engine.call_flow import Result
from semel.engine.context import AttemptState
from semel.errors import (
    FailedBefore,
    InDoubt,
    InProgress,
    KeyReused,
    LeaseLost,
    NotResolvable,
    RecordNotFound,
    ResultNotKept,
    SemelError,
    StoreUnavailable,
)
from semel_lab.simulate.checks.violation import Violation, told
from semel_lab.simulate.world import SECOND, Broken, Declined, NothingHappened, is_same_request

if TYPE_CHECKING:
    from semel_lab.simulate.caller import Caller
    from semel_lab.simulate.simulation import Simulation


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
            self._told(caller, state, current=current or lease.nonce in life.forced)
        if not current:
            sim.seen["zombie's effect"] += 1
        if sim.store_now() - state.granted.record.started_us > sim.setting.max_runtime_us:
            sim.faults.overrun(life.digest)
        caller.effects += 1
        value = caller.asker.key * 1_000_000 + caller.actor * 1_000 + caller.effects
        if life.line:
            self._repeated(life, len(life.line), untold=current and not state.in_doubt)
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

    def _repeated(self, life: Life, before: int, *, untold: bool) -> None:
        sim, digest = self.sim, life.digest
        words = sim.setting.policies.keys()
        explained = sim.faults.explained.get(digest, 0)
        if digest in sim.quirks.forgotten and before <= explained:
            sim.seen["effect repeated, its record was forgotten"] += 1
            return
        if life.decided and before <= explained:
            sim.seen["effect repeated, by decision"] += 1
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


EndKind = Literal["", "expired", "forgotten"]


class Effect:
    """One entry of the ledger: a value nobody else has, and when it becomes visible outside."""

    __slots__ = ("arrives_us", "value")

    def __init__(self, value: int, arrives_us: int) -> None:
        self.value = value
        self.arrives_us = arrives_us


class Life:
    """One generation of a key, from the claim that found nothing to the record's expiry."""

    __slots__ = (
        "about", "counted", "decided", "digest", "earlier", "effects", "ended", "erased", "failed", "fence",
        "fingerprint", "forced", "line", "number", "outcome", "stated", "value",
    )  # fmt: skip

    def __init__(self, digest: bytes, number: int, fingerprint: bytes, fence: int) -> None:
        self.digest = digest
        self.number = number
        self.fingerprint = fingerprint
        self.fence = fence
        self.effects: list[Effect] = []
        self.outcome: bytes | None = None
        self.value: Any = None
        self.about: About = NOTHING  # what its last claim said of it
        self.failed = False
        self.erased = False
        self.ended: EndKind = ""
        self.earlier: list[Any] = []  # values that were recorded, and forgotten by the server
        self.stated: dict[bytes, Any] = {}  # the values that operators stated, by the nonce of each statement
        self.decided = 0  # how often an operator let it run again, whatever was done before
        self.forced: set[bytes] = set()  # nonces of leases that were ended by force
        self.counted: set[bytes] = set()  # nonces of attempts that were rolled back, and counted
        self.line: list[Effect] = []  # what was done in this generation and in those that were forgotten before it

    def mark(self) -> tuple[object, ...]:
        """All of it, for telling states apart."""
        effects = tuple([(effect.value, effect.arrives_us) for effect in self.effects])
        forgotten = self.ended, len(self.earlier), len(self.line)
        operators = tuple(self.stated), self.decided, frozenset(self.forced), frozenset(self.counted)
        return self.number, self.fence, effects, self.outcome, self.failed, self.erased, forgotten, operators


if TYPE_CHECKING:
    from semel_lab.simulate.caller import Caller
    from semel_lab.simulate.simulation import Simulation

_EXPECTED = (
    FailedBefore,
    InDoubt,
    InProgress,
    KeyReused,
    LeaseLost,
    ResultNotKept,
    StoreUnavailable,
    Broken,
    Declined,
    NothingHappened,
)


class Answers:
    """Judges how calls end."""

    __slots__ = ("sim",)

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim

    def ended(self, caller: Caller, result: Result[Any] | None, error: Exception | None) -> None:
        """A call is over, with a result or an error."""
        if self.sim.trace is not None:
            self.sim.note(f"caller {caller.actor}", f"gets {type(error).__name__ if result is None else result.value}")
        if result is not None:
            self._success(caller, result)
        elif not isinstance(error, _EXPECTED):
            raise Violation("broke", f"a call ended with {error!r}") from error
        else:
            self._failure(caller, error)

    def swept(self, report: object, error: Exception | None) -> None:
        """A sweep is over."""
        if error is not None and not isinstance(error, StoreUnavailable):
            raise Violation("broke", f"a sweep ended with {error!r}") from error
        if report is not None:
            self.sim.seen["swept"] += 1
            if report.reconciled:  # type: ignore[attr-defined]
                self.sim.seen["swept: reconciled"] += 1

    def erased(self, error: Exception | None) -> None:
        """Whoever erases has heard what became of it."""
        if error is not None and not isinstance(error, (NotResolvable, StoreUnavailable)):
            raise Violation("broke", f"erasing ended with {error!r}") from error
        self.sim.seen["erasing answered" if error is None else f"erasing answered: {type(error).__name__}"] += 1

    def resolved(self, error: Exception | None) -> None:
        """An operator has heard what became of its last statement."""
        if error is not None and not isinstance(error, (NotResolvable, StoreUnavailable)):
            raise Violation("broke", f"resolving ended with {error!r}") from error
        self.sim.seen["correcting answered" if error is None else f"correcting answered: {type(error).__name__}"] += 1

    def decided(self, what: str, error: Exception | None) -> None:
        """An operator, or a consumer, has heard what became of its last word."""
        if error is not None and not isinstance(error, (NotResolvable, RecordNotFound, StoreUnavailable)):
            raise Violation("broke", f"{what} ended with {error!r}") from error
        self.sim.seen[f"{what} answered" if error is None else f"{what} answered: {type(error).__name__}"] += 1

    def _success(self, caller: Caller, result: Result[Any]) -> None:
        sim = self.sim
        record = result._granted.record if result._granted is not None else result._found
        life = None if record is None else sim.store.claims.life_of.get(record.nonce)
        if life is None or caller.request is None:
            raise Violation("I3", "a value was given that no granted claim stands for")
        if not is_same_request(life.fingerprint, caller.request.fingerprint):
            raise Violation("I5", "a value was given for another fingerprint")
        if life.digest != caller.request.key.digest:
            raise Violation("I6", "a value was given for another key")
        if life.outcome is None and not life.earlier:
            raise Violation("I3", "a value was given that is not recorded")
        if record is not None and record.nonce in life.stated:
            self._stated(result, life.stated[record.nonce])
            return
        if result.value not in (life.value, *life.earlier):
            raise Violation("I2", f"{result.value} was given and {life.value} is recorded")
        if all(effect.value != result.value for effect in life.line):
            raise Violation("I3", f"{result.value} was given and no effect of this generation has it")
        sim.seen["answered: replay" if result.replayed else "answered: first"] += 1

    def _stated(self, result: Result[Any], stated: object) -> None:
        """A value is given that an operator stated: no effect has it, and it is the one of that very statement."""
        if not result.replayed or result.value != stated:
            raise Violation("I2", f"{result.value} was given and {stated} was stated")
        self.sim.seen["answered: stated"] += 1

    def _failure(self, caller: Caller, error: Exception | None) -> None:
        sim = self.sim
        assert caller.request is not None
        life: Life | None = sim.store.claims.lives.get(caller.request.key.digest)
        name = type(error).__name__
        sim.seen["answered: " + name] += 1
        if isinstance(error, InProgress) and caller.missed and sim.witness.has_answer(caller.request):
            raise Violation("waiters", "a waiter was sent away although the answer was there")
        if life is None or life.number > 1 or not isinstance(error, SemelError):
            return
        if isinstance(error, KeyReused) and is_same_request(life.fingerprint, caller.request.fingerprint):
            raise Violation("I5", "a caller was told that its own request is another one")
        if isinstance(error, ResultNotKept) and not life.erased:
            raise Violation("I3", "a value was said to be erased that nobody erased")
        if isinstance(error, FailedBefore):
            if not life.erased and life.fingerprint != caller.request.fingerprint:
                raise Violation("I5", "a failure was replayed for another fingerprint")
            if not life.failed:
                raise Violation("I3", "a failure was told that is not recorded")


_RUNNING, _IN_DOUBT = Status.RUNNING, Status.IN_DOUBT


class Claims:
    """Judges the answers to claims, and knows which generation every granted claim belongs to."""

    __slots__ = ("life_of", "lives", "sim")

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.lives: dict[bytes, Life] = {}  # the latest generation of each key
        self.life_of: dict[bytes, Life] = {}  # the generation that a nonce was granted

    def answered(
        self, claim: Claim, before: StoredRecord | None, after: StoredRecord | None, now: int, answer: Any
    ) -> None:
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
        elif kind is InDoubtAnswer:
            self._declined(claim, before, now, answer)

    def _replayed(self, before: StoredRecord, answer: Replay) -> None:
        if not before.final:
            raise Violation("I7", f"a record that is {before.status} was replayed")
        if (answer.record.nonce, answer.record.outcome) != (before.nonce, before.outcome):
            raise Violation("I2", "a replay does not tell what is recorded now")
        self.sim.seen["replayed"] += 1

    def _met_erased(self, before: StoredRecord, answer: Any) -> None:
        if type(answer) is not Replay or not before.final:
            raise Violation("erased", f"a claim that met an erased record was answered {told(answer)}")
        self.sim.seen["replayed, erased"] += 1

    def _declined(self, claim: Claim, before: StoredRecord, now: int, answer: InDoubtAnswer) -> None:
        if before.settled and not before.doubtful:
            raise Violation("I8", "a record without doubt was answered in doubt")
        if before.status is _RUNNING and before.lease_us > now:
            raise Violation("I8", "a running record was answered in doubt")
        if _may_take(before, claim, now):
            raise Violation("I8", "a record that both policies allow to take over was answered in doubt")
        self.sim.seen["held back" if answer.remaining_us is None else "too early to ask"] += 1

    def _granted(
        self, claim: Claim, before: StoredRecord | None, after: StoredRecord | None, now: int, answer: Granted
    ) -> None:
        if after is None or after.nonce != claim.nonce or after.status is not _RUNNING or answer.record != after:
            raise Violation("I4", "a claim was granted that the record does not hold")
        if before is None or is_over(before, now):
            self.begin(claim, before, after)
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
        self.lives[after.key.digest].about = claim.about

    def _taken(self, claim: Claim, before: StoredRecord, after: StoredRecord, now: int, answer: Granted) -> None:
        if not _may_take(before, claim, now):
            raise Violation("I1", "a record in doubt was taken over though a policy does not allow it yet")
        if not after.doubtful or not answer.in_doubt:
            raise Violation("I10", "an attempt after a doubtful one was not told")
        if answer.reconcile is not (claim.terms.in_doubt == "reconcile"):
            raise Violation("I1", "whether to ask the hook first was not as the policy says")
        self.sim.witness.superseded(before)
        self.sim.seen["taken over to ask" if answer.reconcile else "taken over"] += 1

    def begin(self, claim: Claim | CountFailure, before: StoredRecord | None, after: StoredRecord) -> None:
        """A generation begins: with a claim, or with an attempt that was counted afterwards."""
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
        life.about = claim.about
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

    def lead(self, nonce: bytes, record: StoredRecord) -> None:
        """Whoever made this nonce is the highest owner now."""
        life = self.lives[record.key.digest]
        life.fence = record.fence
        self.life_of[nonce] = life


def is_over(record: StoredRecord, now: int) -> bool:
    """Whether a record has expired; only settled ones do."""
    return record.status is not _RUNNING and record.status is not _IN_DOUBT and record.expires_us <= now


def _may_take(before: StoredRecord, claim: Claim, now: int) -> bool:
    """The design's words: both policies must allow it, the stricter counts, asking only after the quiet time."""
    words: set[Doubt] = {before.in_doubt_policy, claim.terms.in_doubt}
    if "hold" in words:
        return False
    if claim.terms.in_doubt == "reconcile":
        return now >= before.lease_us + max(before.reconcile_after_us, claim.terms.reconcile_after_us)
    return words == {"rerun"}
