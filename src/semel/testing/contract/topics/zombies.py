"""Zombies: attempts that lost their lease and do not know it yet. Whatever they try changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from semel.core import codec
from semel.core.operations import Checkpoint, Complete, Fail, Lost, Operation, Purge, Renew
from semel.core.policy import Policy
from semel.core.record import Failure, Lease, Record, Status, Step
from semel.core.shape import AsIs
from semel.errors import FailedBefore, LeaseLost, ResultNotKept
from semel.testing.contract.calls import Call, Gate
from semel.testing.contract.door import Door
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World

LEASE = Policy(lease_for=timedelta(seconds=30))
FINAL = Policy(final_errors=(ValueError,))
VALUE = codec.encode("zombie", AsIs(), 1000)
OOPS = Failure("builtins.OSError", "too late")
LATE: dict[str, Callable[[Lease], Operation]] = {
    "renew": lambda lease: Renew(lease, 30_000_000),
    "complete": lambda lease: Complete(lease, VALUE),
    "fail final": lambda lease: Fail(lease, "final", OOPS, doubtful=False),
    "fail retry": lambda lease: Fail(lease, "retry", OOPS, doubtful=False),
    "fail doubt": lambda lease: Fail(lease, "doubt", OOPS, doubtful=True),
    "give back": lambda lease: Fail(lease, "retry", OOPS, doubtful=False, started=False),
    "checkpoint": lambda lease: Checkpoint(lease, Step(0, "reserve", VALUE)),
}
late = pytest.mark.parametrize("attempted", LATE.values(), ids=LATE.keys())


class LateWriteContract(Contract):
    """The store itself refuses every write under an old lease."""

    @late
    async def test_a_late_write_changes_nothing_while_the_successor_runs(
        self, world: World, attempted: Callable[[Lease], Operation]
    ) -> None:
        zombie = await world.crash()
        world.clock.advance(60)
        await world.crash()
        await _is_refused(world, attempted(zombie))

    @late
    async def test_a_late_write_changes_nothing_after_the_successor_completed(
        self, world: World, attempted: Callable[[Lease], Operation]
    ) -> None:
        zombie = await world.crash()
        world.clock.advance(60)
        await world.door().run()
        await _is_refused(world, attempted(zombie))

    @late
    async def test_a_late_write_changes_nothing_after_the_successor_failed(
        self, world: World, attempted: Callable[[Lease], Operation]
    ) -> None:
        zombie = await world.crash()
        world.clock.advance(60)
        await world.door().error(handler=world.raising(ConnectionError()))
        await _is_refused(world, attempted(zombie))

    @late
    async def test_a_late_write_does_not_reach_into_a_new_life_of_the_key(
        self, world: World, attempted: Callable[[Lease], Operation]
    ) -> None:
        zombie = await world.crash()
        world.clock.advance(60)
        await world.door().run(policy=Policy(keep_for=timedelta(hours=1)))
        world.clock.advance(3600)
        await world.perform(Purge(100))
        # The fence begins at 1 again, so only the nonce tells the two lives apart.
        assert (await world.crash()).fence == zombie.fence
        await _is_refused(world, attempted(zombie))

    @late
    async def test_a_late_write_makes_no_record_where_there_is_none(
        self, world: World, attempted: Callable[[Lease], Operation]
    ) -> None:
        zombie = await world.crash()
        world.clock.advance(60)
        await world.door().run(policy=Policy(keep_for=timedelta(hours=1)))
        world.clock.advance(3600)
        await world.perform(Purge(100))
        await _is_refused(world, attempted(zombie))

    async def test_a_late_renewal_does_not_revive_a_doubt(self, world: World) -> None:
        zombie = await world.crash()
        world.clock.advance(60)
        await world.door().sweep()
        await _is_refused(world, Renew(zombie, 30_000_000))


class ZombieContract(Contract):
    """A handler that outlives its lease: its caller gets what is recorded, never the handler's own value."""

    async def test_the_caller_of_a_zombie_gets_the_recorded_value(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world)
        await world.door().run(handler=world.returning("successor"))
        gate.open()
        result = await world.finish(zombie)
        assert (result.value, result.replayed) == ("successor", True)

    async def test_a_late_completion_leaves_the_recorded_value(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world)
        await world.door().run(handler=world.returning("successor"))
        before = await world.stored()
        gate.open()
        await world.ended(zombie)
        assert await world.stored() == before

    async def test_the_caller_of_a_zombie_gets_a_recorded_failure(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world)
        await world.door().error(handler=world.raising(ValueError("no")), policy=FINAL)
        gate.open()
        await world.ended(zombie)
        assert isinstance(zombie.error, FailedBefore)

    async def test_the_caller_of_a_zombie_is_told_that_the_recorded_value_was_erased(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world)
        successor = world.door()
        await successor.run(handler=world.returning("successor"))
        await successor.erase()
        gate.open()
        await world.ended(zombie)
        assert isinstance(zombie.error, ResultNotKept), f"the late worker's caller got {zombie.error!r}"

    async def test_the_caller_of_a_zombie_is_told_when_there_is_no_outcome_yet(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world)
        await world.crash()
        gate.open()
        await world.ended(zombie)
        assert isinstance(zombie.error, LeaseLost)

    @pytest.mark.parametrize("error", [None, OSError("late")], ids=["returned", "raised"])
    async def test_the_caller_of_a_zombie_is_not_given_the_outcome_of_another_request(
        self, world: World, error: Exception | None
    ) -> None:
        zombie, gate, _ = await _cut_off(world, error=error, fingerprint={"amount": 1})
        await world.door().run(fingerprint={"amount": 1}, policy=Policy(keep_for=timedelta(hours=1)))
        world.clock.advance(3600)
        stranger = await world.door().run(handler=world.returning("stranger"), fingerprint={"amount": 2})
        assert (stranger.value, stranger.replayed) == ("stranger", False), "the key was not free for another request"
        gate.open()
        await world.ended(zombie)
        assert isinstance(zombie.error, LeaseLost), f"the zombie was given {zombie.result}"

    async def test_the_caller_of_a_zombie_that_raised_gets_the_recorded_value(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world, error=OSError("late"))
        await world.door().run(handler=world.returning("successor"))
        gate.open()
        assert (await world.finish(zombie)).value == "successor"

    async def test_a_late_failure_does_not_disturb_the_successor(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world, error=OSError("late"))
        successor_gate = world.gate()
        successor = world.door().start(handler=world.stopping(successor_gate, "successor"))
        await successor_gate.reached()
        gate.open()
        await world.ended(zombie)
        assert isinstance(zombie.error, LeaseLost)
        successor_gate.open()
        assert (await world.finish(successor)).value == "successor"

    async def test_a_completion_that_nobody_overtook_is_recorded(self, world: World) -> None:
        slow, gate, _ = await _cut_off(world)
        gate.open()
        assert (await world.finish(slow)).value == "zombie"
        assert await world.door().value() == "zombie"

    async def test_a_doubt_that_was_reported_is_not_completed_behind_its_back(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world)
        await world.door().sweep()
        gate.open()
        await world.ended(zombie)
        assert isinstance(zombie.error, LeaseLost)
        assert (await world.door().read()).status is Status.IN_DOUBT

    @pytest.mark.parametrize("touch", ["current", "fence", "derive", "step"])
    async def test_a_zombie_that_touches_its_attempt_is_stopped(self, world: World, touch: str) -> None:
        watched = world.watched()
        watched.refuse(Renew)
        door, gate = world.door(watched), world.gate()

        async def handler() -> str:
            attempt = door.current()
            await gate.passing()
            match touch:
                case "current":
                    door.current()
                case "fence":
                    world.ran.append(attempt.fence)
                case "derive":
                    world.ran.append(attempt.derive("charge"))
                case "step":
                    await attempt.step("reserve", world.returning("step"))
            world.ran.append("went on")
            return "zombie"

        zombie = door.start(handler=handler, policy=LEASE)
        await gate.reached()
        await world.pass_time(60)
        await world.settled()
        await world.door().run(handler=world.returning("successor"))
        gate.open()
        assert (await world.finish(zombie)).value == "successor"
        assert world.ran == ["successor"]


async def _cut_off(world: World, error: Exception | None = None, fingerprint: object = None) -> tuple[Call, Gate, Door]:
    """A process whose handler runs on while its renewals reach nobody, and whose lease is over by now."""
    watched = world.watched()
    watched.refuse(Renew)
    door, gate = world.door(watched), world.gate()
    call = door.start(handler=world.stopping(gate, "zombie", error), policy=LEASE, fingerprint=fingerprint)
    await gate.reached()
    await world.pass_time(60)
    await world.settled()
    return call, gate, door


async def _is_refused(world: World, operation: Operation) -> None:
    before: Record | None = await world.stored()
    (answer,) = await world.perform(operation)
    assert answer == Lost()
    assert await world.stored() == before
