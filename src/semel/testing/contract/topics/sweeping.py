"""Sweeping what can be reconciled: the hooks that the engine knows are asked, and nothing is run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from semel.core.outcome import DidNotHappen, Happened, Unknown
from semel.core.policy import Policy
from semel.core.record import Status
from semel.engine.administration import SweepReport
from semel.errors import InProgress
from semel.testing.contract.door import OPERATION, Door
from semel.testing.contract.suite import Contract, only_async
from semel.testing.contract.world import World

LEASE, QUIET = 30, 30


class SweepingReconcileContract(Contract):
    """A sweep asks on behalf of callers who never came back."""

    async def test_a_sweep_records_what_happened(self, world: World) -> None:
        door = await _ready(world, Happened("found"))
        assert await door.sweep() == SweepReport(deleted=0, lapsed=1, reconciled=1, held=0)
        record = await world.stored()
        assert record is not None
        assert (record.status, world.ran) == (Status.COMPLETED, ["asked"])

    async def test_what_a_sweep_found_is_replayed(self, world: World) -> None:
        door = await _ready(world, Happened("found"))
        await door.sweep()
        assert await world.door().value(policy=Policy()) == "found"

    async def test_a_sweep_frees_what_did_not_happen(self, world: World) -> None:
        door = await _ready(world, DidNotHappen())
        assert (await door.sweep()).reconciled == 1
        seen: list[tuple[int, bool]] = []
        other = world.door()
        await other.run(handler=lambda: seen.append((other.current().number, other.current().in_doubt)))
        assert (world.ran, seen) == (["asked"], [(2, False)])

    async def test_a_sweep_never_runs_the_handler(self, world: World) -> None:
        door = await _ready(world, DidNotHappen())
        await door.sweep()
        await door.sweep()
        assert world.ran == ["asked"]

    async def test_a_sweep_leaves_what_nobody_knows(self, world: World) -> None:
        door = await _ready(world, Unknown())
        assert await door.sweep() == SweepReport(deleted=0, lapsed=1, reconciled=0, held=1)
        assert (await door.read()).status is Status.IN_DOUBT

    async def test_a_sweep_survives_a_hook_that_raises(self, world: World) -> None:
        door = await _ready(world, OSError("bank is closed"))
        assert await door.sweep() == SweepReport(deleted=0, lapsed=1, reconciled=0, held=1)
        assert (await door.read()).status is Status.IN_DOUBT

    async def test_a_hook_that_raises_does_not_keep_the_others_from_being_asked(self, world: World) -> None:
        door = await _ready(world, OSError(), Happened("found"), keys=("a", "b"))
        report = await door.sweep()
        assert (report.reconciled, report.held) == (1, 1)

    async def test_a_sweep_does_not_ask_before_the_quiet_time_is_over(self, world: World) -> None:
        door = await _ready(world, Happened("found"), elapsed=LEASE + QUIET - 1e-6)
        assert await door.sweep() == SweepReport(deleted=0, lapsed=1, reconciled=0, held=1)
        assert world.ran == []

    async def test_a_sweep_does_not_ask_about_what_its_owner_holds(self, world: World) -> None:
        await world.crash(policy=Policy(in_doubt="hold"))
        world.clock.advance(600)
        door = _door(world, Happened("found"))
        assert await door.sweep() == SweepReport(deleted=0, lapsed=1, reconciled=0, held=1)
        assert world.ran == []

    async def test_a_sweep_does_not_ask_about_operations_it_does_not_know(self, world: World) -> None:
        await world.crash(operation="refund", policy=_policy(world, [Happened("found")]))
        world.clock.advance(600)
        assert (await _door(world, Happened("found")).sweep()).held == 1
        assert world.ran == []

    async def test_two_sweeps_at_once_ask_once(self, world: World) -> None:
        doors = [await _ready(world, Happened("found")), _door(world, Happened("found"))]
        calls = [world.start(door.engine.sweep) for door in doors]
        await world.ended(*calls)
        assert [call.error for call in calls] == [None, None]
        assert world.ran == ["asked"]

    async def test_a_sweep_knows_operations_that_were_only_run(self, world: World) -> None:
        policy = _policy(world, [Happened("found")])
        await world.crash("k", policy=policy)
        door = world.door()
        await door.run("another", policy=policy)
        world.ran.clear()
        world.clock.advance(600)
        assert (await door.sweep()).reconciled == 1
        assert world.ran == ["asked"]

    @only_async
    async def test_a_cancelled_sweep_leaves_no_ownerless_claim(self, world: World) -> None:
        gate = world.gate()
        policy = Policy(in_doubt="reconcile", reconcile=world.finding(gate))
        await world.crash(policy=policy)
        world.clock.advance(600)
        door = world.door()
        _declare(door, policy)
        call = world.start(door.engine.sweep)
        await gate.reached()
        await call.cancel()
        await world.ended(call)
        await door.close()
        assert (await door.read()).status is Status.IN_DOUBT

    @only_async
    async def test_a_slow_hook_of_a_sweep_keeps_its_lease(self, world: World) -> None:
        gate = world.gate()
        policy = Policy(in_doubt="reconcile", reconcile=world.finding(gate), when_running="reject")
        await world.crash(policy=policy)
        world.clock.advance(600)
        door = world.door()
        _declare(door, policy)
        call = world.start(door.engine.sweep)
        await gate.reached()
        await world.pass_time(300)
        assert isinstance(await world.door().error(policy=policy), InProgress)
        gate.open()
        assert (await world.finish(call)).reconciled == 1


def _policy(world: World, verdicts: list[Any]) -> Policy:
    def hook(_attempt: Any) -> Any:
        world.ran.append("asked")
        verdict = verdicts.pop(0) if len(verdicts) > 1 else verdicts[0]
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    return Policy(in_doubt="reconcile", reconcile=hook, reconcile_after=timedelta(seconds=QUIET))


def _door(world: World, *verdicts: Any) -> Door:
    """A process that knows the operation, as a service does that declares it and then sweeps."""
    door = world.door()
    _declare(door, _policy(world, list(verdicts)))
    return door


def _declare(door: Door, policy: Policy) -> None:
    def pay(order: str) -> Any:
        door.world.ran.append(order)

    door.once(key="order", operation=OPERATION, policy=policy)(pay)


async def _ready(world: World, *verdicts: Any, keys: tuple[str, ...] = ("k",), elapsed: float = LEASE + QUIET) -> Door:
    """A world in which processes crashed so long ago, and a door that can ask about them."""
    for key in keys:
        await world.crash(key, policy=_policy(world, [Unknown()]))
    world.clock.advance(elapsed)
    return _door(world, *verdicts)
