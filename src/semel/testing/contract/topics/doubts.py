"""Doubts: it started and no outcome is known. Who may go on, reconcile hooks, resolving by hand, corrections."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import msgspec
import pytest

from semel.core.operations import (
    Checkpoint,
    Complete,
    Erase,
    Fail,
    Granted,
    Lost,
    Operation,
    Renew,
    Reopen,
    Reopened,
    Replay,
    Resolve,
    Resolved,
    StateMismatch,
)
from semel.core.policy import Policy
from semel.core.record import (
    Cancelled,
    DidNotHappen,
    Failed,
    Failure,
    Happened,
    Lease,
    Note,
    Resolution,
    Status,
    Step,
    Unknown,
)
from semel.errors import FailedBefore, InDoubt, LeaseLost, NotResolvable, RecordNotFound, UsageError
from semel.testing.contract.api_client import ApiClient
from semel.testing.contract.suite import Contract, only_async
from semel.testing.contract.world import World

HOLD = Policy(in_doubt="hold")
LEASE = 30
QUIET = 30
Word = Literal["rerun", "reconcile", "hold"]
# The stricter of the two counts, and asking needs a claimer with a hook.
PAIRS = [
    ("rerun", "rerun", "ran"),
    ("rerun", "reconcile", "asked"),
    ("rerun", "hold", "held"),
    ("reconcile", "rerun", "held"),
    ("reconcile", "reconcile", "asked"),
    ("reconcile", "hold", "held"),
    ("hold", "rerun", "held"),
    ("hold", "reconcile", "held"),
    ("hold", "hold", "held"),
]


class HoldContract(Contract):
    """The owner's policy and the claimer's both count."""

    @pytest.mark.parametrize(("owner", "claimer", "outcome"), PAIRS)
    async def test_both_policies_decide_about_a_crashed_owner(
        self, world: World, owner: Word, claimer: Word, outcome: str
    ) -> None:
        await world.crash(policy=_policy(world, owner))
        world.clock.advance(LEASE + QUIET)
        assert await _met(world, claimer) == outcome

    @pytest.mark.parametrize(("owner", "claimer", "outcome"), PAIRS)
    async def test_both_policies_decide_about_an_owner_that_raised(
        self, world: World, owner: Word, claimer: Word, outcome: str
    ) -> None:
        await world.client().error(handler=world.raising(OSError()), policy=_policy(world, owner))
        world.clock.advance(QUIET)
        world.ran.clear()
        assert await _met(world, claimer) == outcome

    async def test_a_held_doubt_is_never_rerun(self, world: World) -> None:
        await world.crash(policy=HOLD)
        for _ in range(3):
            world.clock.advance(24 * 3600)
            assert isinstance(await world.client().error(policy=HOLD), InDoubt)
        assert world.ran == []

    async def test_a_held_doubt_names_its_record(self, world: World) -> None:
        lease = await world.crash(policy=HOLD)
        world.clock.advance(LEASE)
        error = await world.client().error(policy=HOLD)
        assert isinstance(error, InDoubt)
        assert (error.reference, error.retry_after) == (lease.key.reference, None)

    async def test_a_held_doubt_is_found_by_its_reference(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(OSError()), policy=HOLD)
        error = await client.error(policy=HOLD)
        assert isinstance(error, InDoubt)
        assert await client.keys(reference=error.reference) == ["k"]

    async def test_a_failure_of_a_known_kind_is_no_doubt_under_hold(self, world: World) -> None:
        client = world.client()
        policy = Policy(in_doubt="hold", retry_errors=(ConnectionError,))
        await client.error(handler=world.raising(ConnectionError()), policy=policy)
        assert await client.value(policy=policy) == "value"


class ResolvingContract(Contract):
    """Every held doubt has an exit, and the reason is kept."""

    async def test_happened_gives_its_value_to_duplicates(self, world: World) -> None:
        client = await _held(world)
        await client.resolve(Happened({"receipt": "r-1"}))
        result = await client.run(policy=HOLD)
        assert (result.value, result.replayed, world.ran) == ({"receipt": "r-1"}, True, [])

    async def test_happened_with_nothing_gives_none(self, world: World) -> None:
        client = await _held(world)
        await client.resolve(Happened())
        assert await client.value(policy=HOLD) is None

    async def test_happened_is_fitted_to_the_declared_result(self, world: World) -> None:
        client = await _held(world)
        await client.resolve(Happened("90"))
        assert await client.value(policy=HOLD, returns=timedelta | int) == 90

    async def test_did_not_happen_lets_it_run_without_doubt(self, world: World) -> None:
        client = await _held(world)
        await client.resolve(DidNotHappen())
        seen: list[tuple[int, bool]] = []
        await client.run(handler=lambda: seen.append((client.current().number, client.current().in_doubt)), policy=HOLD)
        assert seen == [(2, False)]

    async def test_cancelled_is_a_final_failure(self, world: World) -> None:
        client = await _held(world)
        await client.resolve(Cancelled(), reason="customer left")
        assert isinstance(await client.error(policy=HOLD), FailedBefore)
        assert world.ran == []

    async def test_a_cancelled_key_tells_why(self, world: World) -> None:
        client = await _held(world)
        await client.resolve(Cancelled(), reason="customer left")
        error = await client.error(policy=HOLD)
        assert isinstance(error, FailedBefore)
        assert error.error_message == "customer left"

    @pytest.mark.parametrize(
        ("resolution", "status"),
        [(Happened(1), Status.COMPLETED), (DidNotHappen(), Status.FAILED), (Cancelled(), Status.CANCELLED)],
    )
    async def test_a_resolved_record_says_how(self, world: World, resolution: Resolution, status: Status) -> None:
        client = await _held(world)
        resolved = await client.resolve(resolution)
        assert resolved.status is status
        assert (await client.read()).status is status

    @pytest.mark.parametrize("resolution", [Happened(1), DidNotHappen(), Cancelled()])
    async def test_the_reason_is_kept(self, world: World, resolution: Resolution) -> None:
        client = await _held(world)
        await client.resolve(resolution, reason="seen in the bank's list", by="ada")
        record = await client.read()
        assert record.note == Note(type(resolution).__name__, "seen in the bank's list", "ada")

    async def test_the_reason_is_kept_through_the_next_run(self, world: World) -> None:
        client = await _held(world)
        await client.resolve(DidNotHappen(), reason="not in the bank's list")
        await client.run(policy=HOLD)
        note = (await client.read()).note
        assert note is not None
        assert note.reason == "not in the bank's list"

    async def test_a_resolution_counts_in_every_process(self, world: World) -> None:
        await (await _held(world)).resolve(Happened("seen"))
        assert await world.client().value(policy=HOLD) == "seen"

    @pytest.mark.parametrize("resolution", [Happened("resolved"), DidNotHappen(), Cancelled()])
    async def test_a_zombie_does_not_undo_a_resolution(self, world: World, resolution: Resolution) -> None:
        watched, gate = world.watched(), world.gate()
        zombie = world.client(watched).start(handler=world.stopping(gate, "zombie"), policy=HOLD)
        await gate.reached()
        world.clock.advance(LEASE)
        shown = await world.client().resolve(resolution)
        stored = await world.stored()
        gate.open()
        await world.ended(zombie)
        assert await world.stored() == stored
        assert await world.client().read() == shown
        assert zombie.error is None or isinstance(zombie.error, (LeaseLost, FailedBefore))

    async def test_the_caller_of_a_resolved_zombie_gets_what_was_resolved(self, world: World) -> None:
        gate = world.gate()
        zombie = world.client().start(handler=world.stopping(gate, "zombie"), policy=HOLD)
        await gate.reached()
        world.clock.advance(LEASE)
        await world.client().resolve(Happened("resolved"))
        gate.open()
        assert (await world.finish(zombie)).value == "resolved"

    async def test_a_lapsed_lease_can_be_resolved_before_anybody_marked_it(self, world: World) -> None:
        await world.crash(policy=HOLD)
        world.clock.advance(LEASE)
        await world.client().resolve(Happened("resolved"))
        assert await world.client().value(policy=HOLD) == "resolved"

    async def test_what_runs_cannot_be_resolved(self, world: World) -> None:
        await world.crash(policy=HOLD)
        world.clock.advance(LEASE - 1e-6)
        before = await world.stored()
        with pytest.raises(NotResolvable):
            await world.client().resolve(DidNotHappen())
        assert await world.stored() == before

    async def test_what_is_completed_cannot_be_resolved(self, world: World) -> None:
        client = world.client()
        await client.run()
        with pytest.raises(NotResolvable):
            await client.resolve(Cancelled())

    async def test_what_failed_cannot_be_resolved(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(ValueError()), policy=Policy(final_errors=(ValueError,)))
        with pytest.raises(NotResolvable):
            await client.resolve(Cancelled())

    async def test_what_is_not_there_cannot_be_resolved(self, world: World) -> None:
        with pytest.raises(NotResolvable):
            await world.client().resolve(Cancelled())

    async def test_what_is_resolved_is_not_resolved_again(self, world: World) -> None:
        client = await _held(world)
        await client.resolve(Happened("first"))
        with pytest.raises(NotResolvable):
            await client.resolve(Happened("second"))
        assert await client.value(policy=HOLD) == "first"

    @pytest.mark.parametrize("reason", ["", "   ", None])
    async def test_a_resolution_needs_a_reason(self, world: World, reason: Any) -> None:
        client = await _held(world)
        before = await world.stored()
        with pytest.raises(UsageError):
            await client.resolve(DidNotHappen(), reason=reason)
        assert await world.stored() == before

    async def test_only_a_resolution_resolves(self, world: World) -> None:
        client = await _held(world)
        with pytest.raises(UsageError):
            await client.resolve(Unknown())  # type: ignore[arg-type]  # the mistake this is about
        assert (await client.read()).status is Status.IN_DOUBT


def _policy(world: World, word: Word) -> Policy:
    def hook(_attempt: Any) -> DidNotHappen:
        world.ran.append("asked")
        return DidNotHappen()

    return Policy(in_doubt=word, reconcile=hook if word == "reconcile" else None)


async def _met(world: World, claimer: Word) -> str:
    call = world.client().start(handler=world.returning("ran"), policy=_policy(world, claimer))
    await world.ended(call)
    if isinstance(call.error, InDoubt):
        assert world.ran == []
        return "held"
    assert call.value == "ran"
    return "asked" if world.ran == ["asked", "ran"] else str(world.ran[0])


async def _held(world: World) -> ApiClient:
    """A client to a world in which a process crashed under the policy to hold."""
    await world.crash(policy=HOLD)
    world.clock.advance(LEASE)
    client = world.client()
    await client.sweep()
    return client


MICROSECOND = 1e-6
RECONCILE_LEASE, RECONCILE_QUIET = 30, 45


class ReconcileContract(Contract):
    """What each answer of the hook leads to."""

    async def test_the_hook_is_not_asked_before_the_quiet_time_is_over(self, world: World) -> None:
        policy = _asking(world, Happened("found"))
        await world.crash(policy=policy)
        world.clock.advance(RECONCILE_LEASE + RECONCILE_QUIET - MICROSECOND)
        error = await world.client().error(policy=policy)
        assert isinstance(error, InDoubt)
        assert error.retry_after is not None
        assert world.ran == []

    async def test_the_hook_is_asked_at_the_end_of_the_quiet_time(self, world: World) -> None:
        policy = _asking(world, Happened("found"))
        await world.crash(policy=policy)
        world.clock.advance(RECONCILE_LEASE + RECONCILE_QUIET)
        await world.client().run(policy=policy)
        assert world.ran == ["asked"]

    async def test_who_comes_too_early_learns_when_to_come_back(self, world: World) -> None:
        policy = _asking(world, Happened("found"))
        await world.crash(policy=policy)
        world.clock.advance(RECONCILE_LEASE + 5)
        error = await world.client().error(policy=policy)
        assert isinstance(error, InDoubt)
        assert error.retry_after == timedelta(seconds=RECONCILE_QUIET - 5)

    @pytest.mark.parametrize("quiet", [100, QUIET], ids=["set", "default"])
    async def test_the_longer_quiet_time_of_the_two_counts(self, world: World, quiet: int) -> None:
        await world.crash(policy=_asking(world, Unknown(), quiet=quiet))
        world.clock.advance(RECONCILE_LEASE + quiet - 1)
        policy = _asking(world, Happened("found"), quiet=1)
        assert isinstance(await world.client().error(policy=policy), InDoubt)
        world.clock.advance(1)
        assert await world.client().value(policy=policy) == "found"

    async def test_a_policy_of_defaults_is_waited_for_as_well(self, world: World) -> None:
        await world.crash(policy=Policy())
        world.clock.advance(RECONCILE_LEASE + QUIET - 1)
        policy = _asking(world, Happened("found"), quiet=1)
        assert isinstance(await world.client().error(policy=policy), InDoubt)
        world.clock.advance(1)
        assert await world.client().value(policy=policy) == "found"

    async def test_the_quiet_time_of_a_raised_error_counts_from_the_error(self, world: World) -> None:
        policy = _asking(world, Happened("found"))
        await world.client().error(handler=world.raising(OSError()), policy=policy)
        world.clock.advance(RECONCILE_QUIET - MICROSECOND)
        assert isinstance(await world.client().error(policy=policy), InDoubt)
        world.clock.advance(MICROSECOND)
        assert await world.client().value(policy=policy) == "found"

    async def test_happened_gives_the_value_without_running(self, world: World) -> None:
        policy = await _ready(world, Happened("found"))
        result = await world.client().run(policy=policy)
        assert (result.value, result.replayed, world.ran) == ("found", True, ["asked"])

    async def test_happened_is_recorded_for_everybody(self, world: World) -> None:
        policy = await _ready(world, Happened("found"))
        await world.client().run(policy=policy)
        assert await world.client().value(policy=policy) == "found"
        assert world.ran == ["asked"]

    async def test_did_not_happen_runs_without_doubt(self, world: World) -> None:
        policy = await _ready(world, DidNotHappen())
        client = world.client()
        seen: list[bool] = []
        await client.run(handler=lambda: seen.append(client.current().in_doubt), policy=policy)
        assert (world.ran, seen) == (["asked"], [False])

    async def test_the_hook_is_asked_although_the_attempts_are_used_up(self, world: World) -> None:
        policy = (await _ready(world, Happened(7))).replace(max_attempts=1)
        assert await world.client().value(policy=policy) == 7

    async def test_what_did_not_happen_is_not_run_once_the_attempts_are_used_up(self, world: World) -> None:
        policy = (await _ready(world, DidNotHappen())).replace(max_attempts=1)
        assert isinstance(await world.client().error(policy=policy), FailedBefore)
        assert world.ran == ["asked"]

    async def test_unknown_stays_in_doubt(self, world: World) -> None:
        policy = await _ready(world, Unknown())
        client = world.client()
        assert isinstance(await client.error(policy=policy), InDoubt)
        assert (await client.read()).status is Status.IN_DOUBT
        assert world.ran == ["asked"]

    async def test_unknown_is_asked_again_after_another_quiet_time(self, world: World) -> None:
        policy = await _ready(world, Unknown())
        client = world.client()
        await client.error(policy=policy)
        await client.error(policy=policy)
        assert world.ran == ["asked"]
        world.clock.advance(RECONCILE_QUIET)
        await client.error(policy=policy)
        assert world.ran == ["asked", "asked"]

    async def test_a_hook_that_raises_leaves_the_doubt(self, world: World) -> None:
        policy = await _ready(world, OSError("bank is closed"))
        client = world.client()
        assert isinstance(await client.error(policy=policy), OSError)
        assert (await client.read()).status is Status.IN_DOUBT
        assert world.ran == ["asked"]

    async def test_a_hook_that_answers_something_else_leaves_the_doubt(self, world: World) -> None:
        policy = await _ready(world, "yes")
        client = world.client()
        assert isinstance(await client.error(policy=policy), UsageError)
        assert (await client.read()).status is Status.IN_DOUBT

    async def test_asking_in_vain_is_no_attempt(self, world: World) -> None:
        policy = await _ready(world, Unknown())
        client = world.client()
        await client.error(policy=policy)
        assert (await client.read()).attempts == 1

    async def test_the_hook_knows_the_attempt_it_is_asked_about(self, world: World) -> None:
        seen: list[Any] = []

        def hook(attempt: Any) -> Happened:
            seen.append((attempt.key.value, attempt.derive("charge"), attempt.in_doubt))
            return Happened("found")

        policy = Policy(in_doubt="reconcile", reconcile=hook)
        lease = await world.crash(policy=policy)
        world.clock.advance(60)
        await world.client().run(policy=policy)
        assert seen == [("k", lease.key.derive("charge"), True)]

    async def test_two_who_come_at_once_ask_once(self, world: World) -> None:
        policy = await _ready(world, Happened("found"))
        calls = [world.client().start(policy=policy) for _ in range(2)]
        await world.ended(*calls)
        assert [call.value for call in calls] == ["found"] * 2
        assert world.ran == ["asked"]

    @only_async
    async def test_a_hook_may_be_a_coroutine(self, world: World) -> None:
        gate = world.gate()
        policy = Policy(in_doubt="reconcile", reconcile=world.finding(gate))
        await world.crash(policy=policy)
        world.clock.advance(60)
        call = world.client().start(policy=policy)
        await gate.reached()
        gate.open()
        assert (await world.finish(call)).value == "found"

    @only_async
    async def test_a_slow_hook_keeps_its_lease(self, world: World) -> None:
        gate = world.gate()
        policy = Policy(in_doubt="reconcile", reconcile=world.finding(gate), wait_for=timedelta(minutes=10))
        await world.crash(policy=policy)
        world.clock.advance(60)
        calls = [world.client().start(policy=policy) for _ in range(2)]
        await gate.reached()
        await world.pass_time(70)
        gate.open()
        await world.ended(*calls)
        assert (world.ran, [call.value for call in calls]) == (["asked"], ["found"] * 2)

    async def test_a_reconciled_zombie_gets_what_was_found(self, world: World) -> None:
        gate = world.gate()
        policy = _asking(world, Happened("found"))
        zombie = world.client().start(handler=world.stopping(gate, "zombie"), policy=policy)
        await gate.reached()
        world.clock.advance(RECONCILE_LEASE + RECONCILE_QUIET)
        await world.client().run(policy=policy)
        gate.open()
        await world.ended(zombie)
        assert zombie.error is None or isinstance(zombie.error, LeaseLost)
        assert await world.client().value(policy=policy) == "found"


def _asking(world: World, verdict: Any, quiet: float = RECONCILE_QUIET) -> Policy:
    """A policy whose hook notes that it was asked, then answers or raises `verdict`."""

    def hook(_attempt: Any) -> Any:
        world.ran.append("asked")
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    asked: Callable[[Any], Any] = hook
    return Policy(in_doubt="reconcile", reconcile=asked, reconcile_after=timedelta(seconds=quiet))


async def _ready(world: World, verdict: Any) -> Policy:
    """A world in which a process crashed long enough ago to be asked about."""
    policy = _asking(world, verdict)
    await world.crash(policy=policy)
    world.clock.advance(RECONCILE_LEASE + RECONCILE_QUIET)
    return policy


_AFTER_LEASE = 60
_FIRST, _SECOND, _THIRD = b"1" * 16, b"2" * 16, b"3" * 16


async def _stated(world: World, value: Any = "wrong") -> ApiClient:
    await world.crash(policy=HOLD)
    world.clock.advance(_AFTER_LEASE)
    client = world.client()
    await client.resolve(Happened(value))
    return client


def _stating(lease: Lease, nonce: bytes, outcome: bytes, corrects: bytes | None = None) -> Resolve:
    return Resolve(lease.key.digest, nonce, Status.COMPLETED, outcome, "note", corrects=corrects)


async def _stated_lease(world: World) -> Lease:
    lease = await world.crash(policy=HOLD)
    world.clock.advance(_AFTER_LEASE)
    (answer,) = await world.perform(_stating(lease, _FIRST, b"wrong"))
    assert isinstance(answer, Resolved)
    return lease


class CorrectingContract(Contract):
    """Corrections replace what was stated about the very record that was seen."""

    async def test_a_stated_value_can_be_corrected(self, world: World) -> None:
        client = await _stated(world)
        assert await client.value(policy=HOLD) == "wrong"
        await client.resolve(Happened("right"), correct=True, reason="mistyped", by="ada")
        result = await client.run(policy=HOLD)
        assert (result.value, result.replayed, world.ran) == ("right", True, [])

    async def test_a_correction_says_who_and_why(self, world: World) -> None:
        client = await _stated(world)
        record = await client.resolve(Happened("right"), correct=True, reason="mistyped", by="ada")
        assert record.note is not None
        assert (record.note.resolution, record.note.reason, record.note.by) == ("Happened", "mistyped", "ada")

    async def test_a_correction_can_be_corrected(self, world: World) -> None:
        client = await _stated(world)
        await client.resolve(Happened("better"), correct=True)
        await client.resolve(Happened("best"), correct=True)
        assert await client.value(policy=HOLD) == "best"

    async def test_what_a_handler_returned_is_not_corrected(self, world: World) -> None:
        client = world.client()
        await client.run()
        before = await world.stored()
        with pytest.raises(NotResolvable):
            await client.resolve(Happened("other"), correct=True)
        assert await world.stored() == before

    @pytest.mark.parametrize("resolution", [DidNotHappen(), Cancelled()])
    async def test_a_correction_never_says_that_it_did_not_happen(self, world: World, resolution: Any) -> None:
        client = await _stated(world)
        before = await world.stored()
        with pytest.raises(UsageError):
            await client.resolve(resolution, correct=True)
        assert await world.stored() == before

    @pytest.mark.parametrize("resolution", [DidNotHappen(), Cancelled()])
    async def test_what_was_not_stated_to_have_happened_is_not_corrected(self, world: World, resolution: Any) -> None:
        await world.crash(policy=HOLD)
        world.clock.advance(_AFTER_LEASE)
        client = world.client()
        await client.resolve(resolution)
        before = await world.stored()
        with pytest.raises(NotResolvable):
            await client.resolve(Happened("other"), correct=True)
        assert await world.stored() == before

    async def test_what_is_in_doubt_is_resolved_and_not_corrected(self, world: World) -> None:
        await world.crash(policy=HOLD)
        world.clock.advance(_AFTER_LEASE)
        before = await world.stored()
        with pytest.raises(NotResolvable):
            await world.client().resolve(Happened("other"), correct=True)
        assert await world.stored() == before

    async def test_a_store_corrects_only_what_is_completed(self, world: World) -> None:
        lease = await world.crash(policy=HOLD)
        world.clock.advance(_AFTER_LEASE)
        before = await world.stored()
        (answer,) = await world.perform(_stating(lease, _SECOND, b"right", corrects=lease.nonce))
        assert isinstance(answer, StateMismatch)
        assert await world.stored() == before

    async def test_what_was_erased_is_not_filled_in_again(self, world: World) -> None:
        lease = await _stated_lease(world)
        client = world.client()
        shown, erased = await client.erase(), await world.stored()
        with pytest.raises(NotResolvable):
            await client.resolve(Happened("other"), correct=True)
        (answer,) = await world.perform(_stating(lease, _SECOND, b"right", corrects=_FIRST))
        assert isinstance(answer, StateMismatch)
        assert await world.stored() == erased
        assert await client.read() == shown

    async def test_a_correction_sent_again_answers_as_the_first_time(self, world: World) -> None:
        lease = await _stated_lease(world)
        correction = _stating(lease, _SECOND, b"right", corrects=_FIRST)
        (first,) = await world.perform(correction)
        world.clock.advance(1)
        (second,) = await world.perform(correction)
        assert isinstance(first, Resolved)
        assert first.record.outcome == b"right"
        assert second == first

    async def test_of_two_corrections_of_one_record_the_second_changes_nothing(self, world: World) -> None:
        lease = await _stated_lease(world)
        (first,) = await world.perform(_stating(lease, _SECOND, b"right", corrects=_FIRST))
        (second,) = await world.perform(_stating(lease, _THIRD, b"other", corrects=_FIRST))
        assert isinstance(first, Resolved)
        assert isinstance(second, StateMismatch)
        assert await world.stored() == first.record

    async def test_a_correction_raises_the_fence(self, world: World) -> None:
        lease = await _stated_lease(world)
        before = await world.stored()
        (answer,) = await world.perform(_stating(lease, _SECOND, b"right", corrects=_FIRST))
        assert isinstance(answer, Resolved)
        assert before is not None
        assert answer.record.fence == before.fence + 1

    @pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
    async def test_a_correction_that_reopens_the_key_is_refused_by_the_store(self, world: World, status: Any) -> None:
        lease = await _stated_lease(world)
        before = await world.stored()
        reopening = msgspec.structs.replace(_stating(lease, _SECOND, b"", corrects=_FIRST), status=status, outcome=None)
        (answer,) = await world.perform(reopening)
        assert isinstance(answer, StateMismatch)
        assert await world.stored() == before


class SeenContract(Contract):
    """A decision names the record that was looked at, and what has gone on since is left alone."""

    async def test_a_store_leaves_alone_what_has_another_fence_than_was_seen(self, world: World) -> None:
        lease = await world.crash(policy=HOLD)
        world.clock.advance(_AFTER_LEASE)
        before = await world.stored()
        decision = msgspec.structs.replace(_stating(lease, _FIRST, b"late"), fence=lease.fence + 1)
        for force in (False, True):
            (answer,) = await world.perform(msgspec.structs.replace(decision, force=force))
            assert isinstance(answer, StateMismatch)
        assert await world.stored() == before

    async def test_a_decision_sent_again_is_answered_although_the_fence_has_moved(self, world: World) -> None:
        lease = await world.crash(policy=HOLD)
        world.clock.advance(_AFTER_LEASE)
        decision = msgspec.structs.replace(_stating(lease, _FIRST, b"once"), fence=lease.fence)
        (first,) = await world.perform(decision)
        (second,) = await world.perform(decision)
        assert isinstance(first, Resolved)
        assert second == first

    async def test_a_record_that_was_released_and_is_in_doubt_again_is_not_decided_about(self, world: World) -> None:
        lease = await world.crash(policy=HOLD)
        world.clock.advance(_AFTER_LEASE)
        await world.client().resolve(DidNotHappen())
        await world.crash(policy=HOLD)
        world.clock.advance(_AFTER_LEASE)
        before = await world.stored()
        (answer,) = await world.perform(msgspec.structs.replace(_stating(lease, _FIRST, b"late"), fence=lease.fence))
        assert isinstance(answer, StateMismatch)
        assert await world.stored() == before


_OOPS = Failure("shop.CardDeclined", "no")
_FINAL = Policy(final_errors=(ValueError,))
_REOPEN, _AGAIN = b"r" * 16, b"s" * 16


def _reopening(lease: Lease, seen: bytes, nonce: bytes = _REOPEN) -> Reopen:
    return Reopen(lease.key.digest, nonce, seen, "looked")


async def _failed(world: World, *before: Operation) -> Lease:
    """A key whose failure is final."""
    lease = await world.crash()
    for operation in (*before, Fail(lease, "final", _OOPS, doubtful=False)):
        await world.perform(operation)
    return lease


class ReopeningContract(Contract):
    """What is final may be run again by decision; what is completed, running or in doubt never."""

    async def test_a_final_failure_may_run_again(self, world: World) -> None:
        lease = await _failed(world)
        (answer,) = await world.perform(_reopening(lease, lease.nonce))
        assert isinstance(answer, Reopened)
        record = answer.record
        assert (record.status, record.retryable, record.attempts) == (Status.FAILED, True, 0)
        (claimed,) = await world.perform(world.claim())
        assert isinstance(claimed, Granted)
        assert claimed.record.attempts == 1

    async def test_what_was_cancelled_may_run_again(self, world: World) -> None:
        lease = await world.crash(policy=HOLD)
        world.clock.advance(_AFTER_LEASE)
        await world.perform(Resolve(lease.key.digest, _FIRST, Status.CANCELLED, None, "note"))
        (answer,) = await world.perform(_reopening(lease, _FIRST))
        assert isinstance(answer, Reopened)
        (claimed,) = await world.perform(world.claim(policy=HOLD))
        assert isinstance(claimed, Granted)

    async def test_fence_fingerprint_and_error_stay(self, world: World) -> None:
        lease = await _failed(world)
        before = await world.stored()
        (answer,) = await world.perform(_reopening(lease, lease.nonce))
        assert isinstance(answer, Reopened)
        assert before is not None
        kept = (before.fence, before.fingerprint, before.error, before.created_us)
        after = answer.record
        assert (after.fence, after.fingerprint, after.error, after.created_us) == kept

    async def test_finished_steps_stay(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Checkpoint(lease, Step(0, "reserve", b"1")))
        await world.perform(Fail(lease, "final", _OOPS, doubtful=False))
        await world.perform(_reopening(lease, lease.nonce))
        record = await world.stored()
        assert record is not None
        assert [step.name for step in record.steps] == ["reserve"]

    async def test_whoever_failed_before_can_record_nothing_any_more(self, world: World) -> None:
        lease = await _failed(world)
        await world.perform(_reopening(lease, lease.nonce))
        before = await world.stored()
        assert await world.perform(Complete(lease, b"late")) == [Lost()]
        assert await world.stored() == before

    async def test_a_reopening_sent_again_answers_as_the_first_time(self, world: World) -> None:
        lease = await _failed(world)
        (first,) = await world.perform(_reopening(lease, lease.nonce))
        world.clock.advance(1)
        (second,) = await world.perform(_reopening(lease, lease.nonce))
        assert isinstance(first, Reopened)
        assert second == first

    async def test_of_two_decisions_about_one_record_the_second_changes_nothing(self, world: World) -> None:
        lease = await _failed(world)
        (first,) = await world.perform(_reopening(lease, lease.nonce))
        (second,) = await world.perform(_reopening(lease, lease.nonce, _AGAIN))
        assert isinstance(first, Reopened)
        assert isinstance(second, StateMismatch)
        assert await world.stored() == first.record

    @pytest.mark.parametrize(
        "state",
        ["running", "retryable", "in doubt", "completed", "erased"],
    )
    async def test_a_record_of_any_other_state_is_not_reopened(self, world: World, state: str) -> None:
        lease = await world.crash()
        ends: dict[str, tuple[Operation, ...]] = {
            "running": (),
            "retryable": (Fail(lease, "retry", _OOPS, doubtful=False),),
            "in doubt": (Fail(lease, "doubt", _OOPS, doubtful=True),),
            "completed": (Complete(lease, b"done"),),
            "erased": (Fail(lease, "final", _OOPS, doubtful=False), Erase(lease.key.digest, "note")),
        }
        for operation in ends[state]:
            await world.perform(operation)
        before = await world.stored()
        (answer,) = await world.perform(_reopening(lease, lease.nonce))
        assert answer == StateMismatch(before)
        assert await world.stored() == before

    async def test_the_next_call_runs_and_the_record_says_who_let_it_and_why(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(ValueError()), policy=_FINAL)
        record = await client.reopen(reason="their fault", by="ada")
        assert record.note == Note("Reopened", "their fault", "ada")
        result = await client.run(policy=_FINAL)
        assert (result.value, result.replayed) == ("value", False)

    @pytest.mark.parametrize("reason", ["", "   ", None])
    async def test_reopening_needs_a_reason(self, world: World, reason: Any) -> None:
        client = world.client()
        await client.error(handler=world.raising(ValueError()), policy=_FINAL)
        with pytest.raises(UsageError):
            await client.reopen(reason=reason)
        assert isinstance(await client.error(policy=_FINAL), FailedBefore)

    async def test_what_is_completed_is_refused_and_replayed_as_before(self, world: World) -> None:
        client = world.client()
        await client.run()
        with pytest.raises(NotResolvable, match="completed"):
            await client.reopen()
        assert (await client.run()).replayed

    async def test_what_may_be_tried_again_anyway_is_refused(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(OSError()), policy=Policy(retry_errors=(OSError,)))
        with pytest.raises(NotResolvable, match="anyway"):
            await client.reopen()

    async def test_an_expired_record_is_not_brought_back(self, world: World) -> None:
        await _failed(world)
        world.clock.advance(timedelta(days=2).total_seconds())
        before = await world.stored()
        with pytest.raises(RecordNotFound):
            await world.client().reopen()
        assert await world.stored() == before

    async def test_a_key_without_a_record_is_not_reopened(self, world: World) -> None:
        with pytest.raises(RecordNotFound):
            await world.client().reopen()

    async def test_a_key_that_nobody_has_cannot_be_reopened(self, world: World) -> None:
        (answer,) = await world.perform(Reopen(world.claim().key.digest, _REOPEN, _FIRST, "looked"))
        assert answer == StateMismatch(None)


class ForcingContract(Contract):
    """A decision may end a live lease, if it says so; whoever held it can record nothing any more."""

    async def test_a_live_lease_is_left_alone_without_force(self, world: World) -> None:
        lease = await world.crash()
        before = await world.stored()
        (answer,) = await world.perform(Resolve(lease.key.digest, _FIRST, Status.CANCELLED, None, "note"))
        assert answer == StateMismatch(before)

    async def test_a_lease_that_was_ended_by_force_cannot_complete(self, world: World) -> None:
        lease = await world.crash()
        (forced,) = await world.perform(Resolve(lease.key.digest, _FIRST, Status.CANCELLED, None, "note", force=True))
        assert isinstance(forced, Resolved)
        assert forced.record.fence > lease.fence
        assert await world.perform(Complete(lease, b"late")) == [Lost()]
        assert await world.perform(Renew(lease, 30_000_000)) == [Lost()]
        assert await world.stored() == forced.record

    async def test_force_does_not_change_what_is_settled(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Complete(lease, b"done"))
        before = await world.stored()
        (answer,) = await world.perform(Resolve(lease.key.digest, _FIRST, Status.CANCELLED, None, "note", force=True))
        assert answer == StateMismatch(before)

    async def test_a_doubt_can_end_as_a_failure_for_good(self, world: World) -> None:
        lease = await world.crash(policy=HOLD)
        world.clock.advance(_AFTER_LEASE)
        (answer,) = await world.perform(Resolve(lease.key.digest, _FIRST, Status.FAILED, None, "note", error=_OOPS))
        assert isinstance(answer, Resolved)
        assert (answer.record.retryable, answer.record.error) == (False, _OOPS)
        (replay,) = await world.perform(world.claim(policy=HOLD))
        assert isinstance(replay, Replay)

    async def test_duplicates_are_told_the_failure_that_was_stated(self, world: World) -> None:
        client = await _held(world)
        await client.resolve(Failed("the bank is gone"))
        error = await client.error(policy=HOLD)
        assert isinstance(error, FailedBefore)
        assert error.error_message == "the bank is gone"

    @pytest.mark.parametrize("resolution", [Happened("forced"), DidNotHappen(), Cancelled(), Failed("stopped")])
    async def test_whoever_runs_cannot_record_what_it_gives(self, world: World, resolution: Resolution) -> None:
        gate = world.gate()
        running = world.client(world.watched()).start(handler=world.stopping(gate, "late"), policy=HOLD)
        await gate.reached()
        shown = await world.client().resolve(resolution, force=True)
        stored = await world.stored()
        gate.open()
        await world.ended(running)
        assert await world.stored() == stored
        assert await world.client().read() == shown
        assert running.error is None or isinstance(running.error, (LeaseLost, FailedBefore))

    async def test_the_record_says_that_a_live_lease_was_ended(self, world: World) -> None:
        await world.crash(policy=HOLD)
        record = await world.client().resolve(Cancelled(), force=True, reason="its host is gone", by="ada")
        assert record.note == Note("Cancelled", "its host is gone", "ada", forced=True)

    async def test_force_that_was_not_needed_is_not_told(self, world: World) -> None:
        await world.crash(policy=HOLD)
        world.clock.advance(LEASE)
        record = await world.client().resolve(Cancelled(), force=True)
        assert record.note is not None
        assert not record.note.forced

    async def test_a_value_is_not_corrected_by_force(self, world: World) -> None:
        client = await _held(world)
        await client.resolve(Happened("first"))
        with pytest.raises(UsageError):
            await client.resolve(Happened("second"), correct=True, force=True)
        assert await client.value(policy=HOLD) == "first"
