"""Reconciling: a hook is asked whether it happened, late enough for the answer to be true, and only then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from semel.core.outcome import DidNotHappen, Happened, Unknown
from semel.core.policy import Policy
from semel.core.record import Status
from semel.errors import FailedBefore, InDoubt, LeaseLost, UsageError
from semel.testing.contract.suite import Contract, only_async
from semel.testing.contract.world import World

MICROSECOND = 1e-6
LEASE, QUIET = 30, 45


class ReconcileContract(Contract):
    """What each answer of the hook leads to."""

    async def test_the_hook_is_not_asked_before_the_quiet_time_is_over(self, world: World) -> None:
        policy = _asking(world, Happened("found"))
        await world.crash(policy=policy)
        world.clock.advance(LEASE + QUIET - MICROSECOND)
        error = await world.door().error(policy=policy)
        assert isinstance(error, InDoubt)
        assert error.retry_after is not None
        assert world.ran == []

    async def test_the_hook_is_asked_at_the_end_of_the_quiet_time(self, world: World) -> None:
        policy = _asking(world, Happened("found"))
        await world.crash(policy=policy)
        world.clock.advance(LEASE + QUIET)
        await world.door().run(policy=policy)
        assert world.ran == ["asked"]

    async def test_who_comes_too_early_learns_when_to_come_back(self, world: World) -> None:
        policy = _asking(world, Happened("found"))
        await world.crash(policy=policy)
        world.clock.advance(LEASE + 5)
        error = await world.door().error(policy=policy)
        assert isinstance(error, InDoubt)
        assert error.retry_after == pytest.approx(QUIET - 5)

    async def test_the_longer_quiet_time_of_the_two_counts(self, world: World) -> None:
        await world.crash(policy=_asking(world, Unknown(), quiet=100))
        world.clock.advance(LEASE + 99)
        policy = _asking(world, Happened("found"), quiet=1)
        assert isinstance(await world.door().error(policy=policy), InDoubt)
        world.clock.advance(1)
        assert await world.door().value(policy=policy) == "found"

    async def test_the_quiet_time_of_a_raised_error_counts_from_the_error(self, world: World) -> None:
        policy = _asking(world, Happened("found"))
        await world.door().error(handler=world.raising(OSError()), policy=policy)
        world.clock.advance(QUIET - MICROSECOND)
        assert isinstance(await world.door().error(policy=policy), InDoubt)
        world.clock.advance(MICROSECOND)
        assert await world.door().value(policy=policy) == "found"

    async def test_happened_gives_the_value_without_running(self, world: World) -> None:
        policy = await _ready(world, Happened("found"))
        result = await world.door().run(policy=policy)
        assert (result.value, result.replayed, world.ran) == ("found", True, ["asked"])

    async def test_happened_is_recorded_for_everybody(self, world: World) -> None:
        policy = await _ready(world, Happened("found"))
        await world.door().run(policy=policy)
        assert await world.door().value(policy=policy) == "found"
        assert world.ran == ["asked"]

    async def test_did_not_happen_runs_without_doubt(self, world: World) -> None:
        policy = await _ready(world, DidNotHappen())
        door = world.door()
        seen: list[bool] = []
        await door.run(handler=lambda: seen.append(door.current().in_doubt), policy=policy)
        assert (world.ran, seen) == (["asked"], [False])

    async def test_the_hook_is_asked_although_the_attempts_are_used_up(self, world: World) -> None:
        policy = (await _ready(world, Happened(7))).replace(max_attempts=1)
        assert await world.door().value(policy=policy) == 7

    async def test_what_did_not_happen_is_not_run_once_the_attempts_are_used_up(self, world: World) -> None:
        policy = (await _ready(world, DidNotHappen())).replace(max_attempts=1)
        assert isinstance(await world.door().error(policy=policy), FailedBefore)
        assert world.ran == ["asked"]

    async def test_unknown_stays_in_doubt(self, world: World) -> None:
        policy = await _ready(world, Unknown())
        door = world.door()
        assert isinstance(await door.error(policy=policy), InDoubt)
        assert (await door.read()).status is Status.IN_DOUBT
        assert world.ran == ["asked"]

    async def test_unknown_is_asked_again_after_another_quiet_time(self, world: World) -> None:
        policy = await _ready(world, Unknown())
        door = world.door()
        await door.error(policy=policy)
        await door.error(policy=policy)
        assert world.ran == ["asked"]
        world.clock.advance(QUIET)
        await door.error(policy=policy)
        assert world.ran == ["asked", "asked"]

    async def test_a_hook_that_raises_leaves_the_doubt(self, world: World) -> None:
        policy = await _ready(world, OSError("bank is closed"))
        door = world.door()
        assert isinstance(await door.error(policy=policy), OSError)
        assert (await door.read()).status is Status.IN_DOUBT
        assert world.ran == ["asked"]

    async def test_a_hook_that_answers_something_else_leaves_the_doubt(self, world: World) -> None:
        policy = await _ready(world, "yes")
        door = world.door()
        assert isinstance(await door.error(policy=policy), UsageError)
        assert (await door.read()).status is Status.IN_DOUBT

    async def test_asking_in_vain_is_no_attempt(self, world: World) -> None:
        policy = await _ready(world, Unknown())
        door = world.door()
        await door.error(policy=policy)
        assert (await door.read()).attempts == 1

    async def test_the_hook_knows_the_attempt_it_is_asked_about(self, world: World) -> None:
        seen: list[Any] = []

        def hook(attempt: Any) -> Happened:
            seen.append((attempt.key.value, attempt.derive("charge"), attempt.in_doubt))
            return Happened("found")

        policy = Policy(in_doubt="reconcile", reconcile=hook)
        lease = await world.crash(policy=policy)
        world.clock.advance(60)
        await world.door().run(policy=policy)
        assert seen == [("k", lease.key.derive("charge"), True)]

    async def test_two_who_come_at_once_ask_once(self, world: World) -> None:
        policy = await _ready(world, Happened("found"))
        calls = [world.door().start(policy=policy) for _ in range(2)]
        await world.ended(*calls)
        assert [call.value for call in calls] == ["found"] * 2
        assert world.ran == ["asked"]

    @only_async
    async def test_a_hook_may_be_a_coroutine(self, world: World) -> None:
        gate = world.gate()
        policy = Policy(in_doubt="reconcile", reconcile=world.finding(gate))
        await world.crash(policy=policy)
        world.clock.advance(60)
        call = world.door().start(policy=policy)
        await gate.reached()
        gate.open()
        assert (await world.finish(call)).value == "found"

    @only_async
    async def test_a_slow_hook_keeps_its_lease(self, world: World) -> None:
        gate = world.gate()
        policy = Policy(in_doubt="reconcile", reconcile=world.finding(gate), wait_for=timedelta(minutes=10))
        await world.crash(policy=policy)
        world.clock.advance(60)
        calls = [world.door().start(policy=policy) for _ in range(2)]
        await gate.reached()
        await world.pass_time(70)
        gate.open()
        await world.ended(*calls)
        assert (world.ran, [call.value for call in calls]) == (["asked"], ["found"] * 2)

    async def test_a_reconciled_zombie_gets_what_was_found(self, world: World) -> None:
        gate = world.gate()
        policy = _asking(world, Happened("found"))
        zombie = world.door().start(handler=world.stopping(gate, "zombie"), policy=policy)
        await gate.reached()
        world.clock.advance(LEASE + QUIET)
        await world.door().run(policy=policy)
        gate.open()
        await world.ended(zombie)
        assert zombie.error is None or isinstance(zombie.error, LeaseLost)
        assert await world.door().value(policy=policy) == "found"


def _asking(world: World, verdict: Any, quiet: float = QUIET) -> Policy:
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
    world.clock.advance(LEASE + QUIET)
    return policy
