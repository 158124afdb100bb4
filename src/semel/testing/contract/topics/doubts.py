"""Doubts: it started and no outcome is known. Who may go on, who has to ask, and how a held one is ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import pytest

from semel.core.outcome import Cancelled, DidNotHappen, Happened, Resolution, Unknown
from semel.core.policy import Policy
from semel.core.record import Status
from semel.errors import FailedBefore, InDoubt, LeaseLost, NotResolvable, UsageError
from semel.testing.contract.door import Door
from semel.testing.contract.suite import Contract
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
        await world.door().error(handler=world.raising(OSError()), policy=_policy(world, owner))
        world.clock.advance(QUIET)
        world.ran.clear()
        assert await _met(world, claimer) == outcome

    async def test_a_held_doubt_is_never_rerun(self, world: World) -> None:
        await world.crash(policy=HOLD)
        for _ in range(3):
            world.clock.advance(24 * 3600)
            assert isinstance(await world.door().error(policy=HOLD), InDoubt)
        assert world.ran == []

    async def test_a_held_doubt_names_its_record(self, world: World) -> None:
        lease = await world.crash(policy=HOLD)
        world.clock.advance(LEASE)
        error = await world.door().error(policy=HOLD)
        assert isinstance(error, InDoubt)
        assert (error.reference, error.retry_after) == (lease.key.reference, None)

    async def test_a_held_doubt_is_found_by_its_reference(self, world: World) -> None:
        door = world.door()
        await door.error(handler=world.raising(OSError()), policy=HOLD)
        error = await door.error(policy=HOLD)
        assert isinstance(error, InDoubt)
        assert await door.keys(reference=error.reference) == ["k"]

    async def test_a_failure_of_a_known_kind_is_no_doubt_under_hold(self, world: World) -> None:
        door = world.door()
        policy = Policy(in_doubt="hold", retry_errors=(ConnectionError,))
        await door.error(handler=world.raising(ConnectionError()), policy=policy)
        assert await door.value(policy=policy) == "value"


class ResolvingContract(Contract):
    """Every held doubt has an exit, and the reason is kept."""

    async def test_happened_gives_its_value_to_duplicates(self, world: World) -> None:
        door = await _held(world)
        await door.resolve(Happened({"receipt": "r-1"}))
        result = await door.run(policy=HOLD)
        assert (result.value, result.replayed, world.ran) == ({"receipt": "r-1"}, True, [])

    async def test_happened_with_nothing_gives_none(self, world: World) -> None:
        door = await _held(world)
        await door.resolve(Happened())
        assert await door.value(policy=HOLD) is None

    async def test_happened_is_fitted_to_the_declared_result(self, world: World) -> None:
        door = await _held(world)
        await door.resolve(Happened("90"))
        assert await door.value(policy=HOLD, returns=timedelta | int) == 90

    async def test_did_not_happen_lets_it_run_without_doubt(self, world: World) -> None:
        door = await _held(world)
        await door.resolve(DidNotHappen())
        seen: list[tuple[int, bool]] = []
        await door.run(handler=lambda: seen.append((door.current().number, door.current().in_doubt)), policy=HOLD)
        assert seen == [(2, False)]

    async def test_cancelled_is_a_final_failure(self, world: World) -> None:
        door = await _held(world)
        await door.resolve(Cancelled(), reason="customer left")
        assert isinstance(await door.error(policy=HOLD), FailedBefore)
        assert world.ran == []

    async def test_a_cancelled_key_tells_why(self, world: World) -> None:
        door = await _held(world)
        await door.resolve(Cancelled(), reason="customer left")
        error = await door.error(policy=HOLD)
        assert isinstance(error, FailedBefore)
        assert error.error_message == "customer left"

    @pytest.mark.parametrize(
        ("resolution", "status"),
        [(Happened(1), Status.COMPLETED), (DidNotHappen(), Status.FAILED), (Cancelled(), Status.CANCELLED)],
    )
    async def test_a_resolved_record_says_how(self, world: World, resolution: Resolution, status: Status) -> None:
        door = await _held(world)
        resolved = await door.resolve(resolution)
        assert resolved.status is status
        assert (await door.read()).status is status

    @pytest.mark.parametrize("resolution", [Happened(1), DidNotHappen(), Cancelled()])
    async def test_the_reason_is_kept(self, world: World, resolution: Resolution) -> None:
        door = await _held(world)
        await door.resolve(resolution, reason="seen in the bank's list", by="ada")
        record = await door.read()
        assert record.resolution is not None
        assert all(text in record.resolution for text in ("seen in the bank's list", "ada", type(resolution).__name__))

    async def test_the_reason_is_kept_through_the_next_run(self, world: World) -> None:
        door = await _held(world)
        await door.resolve(DidNotHappen(), reason="not in the bank's list")
        await door.run(policy=HOLD)
        assert "not in the bank's list" in str((await door.read()).resolution)

    async def test_a_resolution_counts_in_every_process(self, world: World) -> None:
        await (await _held(world)).resolve(Happened("seen"))
        assert await world.door().value(policy=HOLD) == "seen"

    @pytest.mark.parametrize("resolution", [Happened("resolved"), DidNotHappen(), Cancelled()])
    async def test_a_zombie_does_not_undo_a_resolution(self, world: World, resolution: Resolution) -> None:
        watched, gate = world.watched(), world.gate()
        zombie = world.door(watched).start(handler=world.stopping(gate, "zombie"), policy=HOLD)
        await gate.reached()
        world.clock.advance(LEASE)
        resolved = await world.door().resolve(resolution)
        gate.open()
        await world.ended(zombie)
        assert await world.stored() == resolved
        assert zombie.error is None or isinstance(zombie.error, (LeaseLost, FailedBefore))

    async def test_the_caller_of_a_resolved_zombie_gets_what_was_resolved(self, world: World) -> None:
        gate = world.gate()
        zombie = world.door().start(handler=world.stopping(gate, "zombie"), policy=HOLD)
        await gate.reached()
        world.clock.advance(LEASE)
        await world.door().resolve(Happened("resolved"))
        gate.open()
        assert (await world.finish(zombie)).value == "resolved"

    async def test_a_lapsed_lease_can_be_resolved_before_anybody_marked_it(self, world: World) -> None:
        await world.crash(policy=HOLD)
        world.clock.advance(LEASE)
        await world.door().resolve(Happened("resolved"))
        assert await world.door().value(policy=HOLD) == "resolved"

    async def test_what_runs_cannot_be_resolved(self, world: World) -> None:
        await world.crash(policy=HOLD)
        world.clock.advance(LEASE - 1e-6)
        before = await world.stored()
        with pytest.raises(NotResolvable):
            await world.door().resolve(DidNotHappen())
        assert await world.stored() == before

    async def test_what_is_completed_cannot_be_resolved(self, world: World) -> None:
        door = world.door()
        await door.run()
        with pytest.raises(NotResolvable):
            await door.resolve(Cancelled())

    async def test_what_failed_cannot_be_resolved(self, world: World) -> None:
        door = world.door()
        await door.error(handler=world.raising(ValueError()), policy=Policy(final_errors=(ValueError,)))
        with pytest.raises(NotResolvable):
            await door.resolve(Cancelled())

    async def test_what_is_not_there_cannot_be_resolved(self, world: World) -> None:
        with pytest.raises(NotResolvable):
            await world.door().resolve(Cancelled())

    async def test_what_is_resolved_is_not_resolved_again(self, world: World) -> None:
        door = await _held(world)
        await door.resolve(Happened("first"))
        with pytest.raises(NotResolvable):
            await door.resolve(Happened("second"))
        assert await door.value(policy=HOLD) == "first"

    @pytest.mark.parametrize("reason", ["", "   ", None])
    async def test_a_resolution_needs_a_reason(self, world: World, reason: Any) -> None:
        door = await _held(world)
        before = await world.stored()
        with pytest.raises(UsageError):
            await door.resolve(DidNotHappen(), reason=reason)
        assert await world.stored() == before

    async def test_only_a_resolution_resolves(self, world: World) -> None:
        door = await _held(world)
        with pytest.raises(UsageError):
            await door.resolve(Unknown())  # type: ignore[arg-type]  # the mistake this is about
        assert (await door.read()).status is Status.IN_DOUBT


def _policy(world: World, word: Word) -> Policy:
    def hook(_attempt: Any) -> DidNotHappen:
        world.ran.append("asked")
        return DidNotHappen()

    return Policy(in_doubt=word, reconcile=hook if word == "reconcile" else None)


async def _met(world: World, claimer: Word) -> str:
    call = world.door().start(handler=world.returning("ran"), policy=_policy(world, claimer))
    await world.ended(call)
    if isinstance(call.error, InDoubt):
        assert world.ran == []
        return "held"
    assert call.value == "ran"
    return "asked" if world.ran == ["asked", "ran"] else str(world.ran[0])


async def _held(world: World) -> Door:
    """A door to a world in which a process crashed under the policy to hold."""
    await world.crash(policy=HOLD)
    world.clock.advance(LEASE)
    door = world.door()
    await door.sweep()
    return door
