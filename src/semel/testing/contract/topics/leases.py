"""Leases: how long a claim lasts, who keeps it alive, and when somebody else may have the key."""

from __future__ import annotations

from datetime import timedelta

import pytest

from semel.core.operations import Renew, Running
from semel.core.policy import Policy
from semel.errors import InProgress, LeaseLost
from semel.testing.clock import START, VirtualClock
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World

MICROSECOND = 1e-6
LEASE = 30.0
REJECT = Policy(when_running="reject", lease_for=timedelta(seconds=LEASE))
SHORT = Policy(when_running="reject", lease_for=timedelta(seconds=3), max_runtime=timedelta(seconds=60))


class LeaseContract(Contract):
    """A lease ends at its instant, not before and not after."""

    async def test_a_crashed_owner_blocks_its_key_until_the_lease_ends(self, world: World) -> None:
        await world.crash(policy=REJECT)
        world.clock.advance(LEASE - MICROSECOND)
        assert isinstance(await world.door().error(policy=REJECT), InProgress)
        assert world.ran == []

    async def test_a_lease_is_over_at_its_very_instant(self, world: World) -> None:
        await world.crash(policy=REJECT)
        world.clock.advance(LEASE)
        assert await world.door().value(policy=REJECT) == "value"

    async def test_a_take_over_is_told_that_it_is_in_doubt(self, world: World) -> None:
        await world.crash(policy=REJECT)
        world.clock.advance(LEASE)
        door = world.door()
        seen: list[tuple[int, bool, int]] = []

        def handler() -> None:
            attempt = door.current()
            seen.append((attempt.number, attempt.in_doubt, attempt.fence))

        await door.run(handler=handler, policy=REJECT)
        assert seen == [(2, True, 2)]

    async def test_who_is_refused_learns_how_long_the_lease_lasts(self, world: World) -> None:
        await world.crash(policy=REJECT)
        world.clock.advance(10)
        error = await world.door().error(policy=REJECT)
        assert isinstance(error, InProgress)
        assert error.retry_after == pytest.approx(20.0)

    async def test_the_length_of_a_lease_is_the_owners_affair(self, world: World) -> None:
        await world.crash(policy=SHORT)
        (answer,) = await world.perform(world.claim(policy=REJECT))
        assert answer == Running(3_000_000)

    @pytest.mark.parametrize("skew", [-86_400, 86_400], ids=["a day behind", "a day ahead"])
    async def test_the_clock_of_a_worker_decides_nothing(self, world: World, skew: float) -> None:
        skewed = VirtualClock(START + timedelta(seconds=skew))
        skewed.advance(86_400)
        await world.crash(policy=REJECT)
        world.clock.advance(LEASE - MICROSECOND)
        assert isinstance(await world.door(clock=skewed).error(policy=REJECT), InProgress)
        world.clock.advance(MICROSECOND)
        assert await world.door(clock=skewed).value(policy=REJECT) == "value"

    async def test_an_ended_operation_holds_no_lease(self, world: World) -> None:
        door = world.door()
        await door.run(policy=REJECT)
        assert (await door.read()).lease_us <= world.clock.store_clock()


class RenewalContract(Contract):
    """A handler may take its time: somebody renews for it, but not for ever."""

    async def test_a_long_handler_keeps_its_key_over_many_leases(self, world: World) -> None:
        gate = world.gate()
        owner = world.door().start(handler=world.stopping(gate), policy=SHORT)
        await gate.reached()
        other = world.door()
        for _ in range(10):
            await world.pass_time(3)
            assert isinstance(await other.error(policy=SHORT), InProgress)
        gate.open()
        assert (await world.finish(owner)).value == "value"
        assert world.ran == ["value"]

    async def test_a_lease_is_renewed_at_a_third_of_its_length(self, world: World) -> None:
        watched = world.watched()
        gate = world.gate()
        world.door(watched).start(handler=world.stopping(gate), policy=SHORT)
        await gate.reached()
        await world.pass_time(30)
        await world.settled()
        assert watched.count(Renew) in (29, 30)

    async def test_all_leases_of_a_process_are_renewed_together(self, world: World) -> None:
        watched = world.watched()
        door = world.door(watched)
        gate = world.gate()
        for number in range(20):
            door.start(f"k{number}", world.stopping(gate), policy=SHORT)
        await gate.reached(20)
        await world.pass_time(9)
        await world.settled()
        assert {len(renewals) for renewals in watched.lists(Renew)} == {20}

    async def test_a_short_silence_of_the_store_does_not_cost_the_lease(self, world: World) -> None:
        watched = world.watched()
        gate = world.gate()
        watched.refuse(Renew, times=2)
        owner = world.door(watched).start(handler=world.stopping(gate), policy=SHORT)
        await gate.reached()
        await world.pass_time(9)
        assert isinstance(await world.door().error(policy=SHORT), InProgress)
        gate.open()
        assert (await world.finish(owner)).value == "value"

    async def test_renewal_ends_with_the_handler(self, world: World) -> None:
        watched = world.watched()
        gate = world.gate()
        door = world.door(watched)
        owner = door.start(handler=world.stopping(gate), policy=SHORT)
        await gate.reached()
        await world.pass_time(5)
        gate.open()
        await world.finish(owner)
        before = watched.count(Renew)
        await world.pass_time(30)
        assert watched.count(Renew) == before, f"the store was sent {watched.count(Renew)} operations of the kind Renew"

    async def test_renewal_stops_at_max_runtime(self, world: World) -> None:
        gate = world.gate()
        world.door().start(handler=world.stopping(gate, "wedged"), policy=SHORT)
        await gate.reached()
        await world.pass_time(63)
        assert await world.door().value(handler=world.returning("successor"), policy=SHORT) == "successor"

    async def test_a_handler_past_max_runtime_is_told(self, world: World) -> None:
        door = world.door()
        gate = world.gate()
        told: list[BaseException] = []

        async def wedged() -> None:
            await gate.passing()
            try:
                door.current()
            except LeaseLost as error:
                told.append(error)
                raise

        owner = door.start(handler=wedged, policy=SHORT)
        await gate.reached()
        await world.pass_time(60)
        await world.settled()
        gate.open()
        await world.ended(owner)
        assert len(told) == 1
