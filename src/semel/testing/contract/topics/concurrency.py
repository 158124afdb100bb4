"""Concurrency: many at once, operations inside operations, and orders that would deadlock elsewhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from semel.core.policy import Policy
from semel.errors import InProgress, KeyReentered
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World

PATIENT = Policy(wait_for=timedelta(minutes=10))
FIFTY = 50


class ConcurrencyContract(Contract):
    """However many ask, one runs."""

    async def test_fifty_duplicates_over_two_processes_run_once(self, world: World) -> None:
        doors = [world.door(), world.door()]
        calls = [doors[number % 2].start(policy=PATIENT) for number in range(FIFTY)]
        await world.ended(*calls)
        assert [call.value for call in calls] == ["value"] * FIFTY
        assert sum(not call.result.replayed for call in calls) == 1, "not exactly one call ran"
        assert world.ran == ["value"]

    async def test_fifty_duplicates_of_a_long_handler_run_once(self, world: World) -> None:
        doors, gate = [world.door(), world.door()], world.gate()
        calls = [doors[number % 2].start(handler=world.stopping(gate), policy=PATIENT) for number in range(FIFTY)]
        await gate.reached()
        await world.pass_time(35)
        gate.open()
        await world.ended(*calls)
        assert [call.value for call in calls] == ["value"] * FIFTY
        assert world.ran == ["value"]

    async def test_different_keys_run_side_by_side(self, world: World) -> None:
        door, gate = world.door(), world.gate()
        calls = [door.start(f"k{number}", world.stopping(gate, number)) for number in range(FIFTY)]
        await gate.reached(FIFTY)
        gate.open()
        await world.ended(*calls)
        assert [call.value for call in calls] == list(range(FIFTY))

    async def test_one_request_of_two_under_one_key_wins(self, world: World) -> None:
        doors = [world.door(), world.door()]
        calls = [door.start(fingerprint=asked, policy=PATIENT) for door in doors for asked in ("a", "b")]
        await world.ended(*calls)
        assert sorted(type(call.error).__name__ for call in calls) == ["KeyReused", "KeyReused", "NoneType", "NoneType"]
        assert len(world.ran) == 1, f"the handler ran {len(world.ran)} times"

    async def test_fifty_duplicates_take_over_a_crashed_owner_once(self, world: World) -> None:
        await world.crash()
        world.clock.advance(60)
        doors = [world.door(), world.door()]
        calls = [doors[number % 2].start(policy=PATIENT) for number in range(FIFTY)]
        await world.ended(*calls)
        assert world.ran == ["value"]


class NestingContract(Contract):
    """Operations inside operations."""

    async def test_a_handler_may_run_another_key(self, world: World) -> None:
        door = world.door()

        async def outer() -> Any:
            return (await door.value("inner", world.returning("inner")), "outer")

        assert await door.value("outer", outer) == ("inner", "outer")

    async def test_a_handler_may_run_the_same_value_under_another_operation(self, world: World) -> None:
        door = world.door()

        async def outer() -> Any:
            return await door.value("k", world.returning("inner"), operation="reserve")

        assert await door.value("k", outer, operation="pay") == "inner"

    async def test_the_attempt_of_the_outer_operation_is_current_again_after_the_inner(self, world: World) -> None:
        door = world.door()
        seen: list[str] = []

        async def outer() -> None:
            await door.run("inner", lambda: seen.append(door.current().key.value))
            seen.append(door.current().key.value)

        await door.run("outer", outer)
        assert seen == ["inner", "outer"]

    async def test_an_inner_operation_is_not_run_again_when_the_outer_is(self, world: World) -> None:
        door = world.door()

        async def outer() -> Any:
            value = await door.value("inner", world.returning("inner"))
            if door.current().number == 1:
                raise OSError
            return value

        await door.error("outer", outer)
        assert await door.value("outer", outer) == "inner"
        assert world.ran == ["inner"]

    async def test_asking_for_the_key_that_is_running_is_an_error_at_once(self, world: World) -> None:
        door = world.door()

        async def outer() -> Any:
            return await door.error("k")

        assert isinstance(await door.value("k", outer, returns=object), KeyReentered)
        assert (world.clock.monotonic(), world.ran) == (0, [])

    async def test_asking_through_another_engine_on_the_same_store_is_an_error_too(self, world: World) -> None:
        door, other = world.door(), world.door()

        async def outer() -> Any:
            return await other.error("k")

        assert isinstance(await door.value("k", outer), KeyReentered)

    async def test_asking_for_the_key_two_levels_up_is_an_error_at_once(self, world: World) -> None:
        door = world.door()
        errors: list[BaseException] = []

        async def inner() -> None:
            errors.append(await door.error("k"))

        async def outer() -> None:
            await door.run("inner", inner)

        await door.run("k", outer)
        assert [type(error) for error in errors] == [KeyReentered]

    async def test_the_key_is_free_again_after_its_handler(self, world: World) -> None:
        door = world.door()

        async def outer() -> Any:
            await door.run("a")
            return (await door.run("a")).replayed

        assert await door.value("outer", outer) is True

    async def test_crossed_orders_do_not_deadlock(self, world: World) -> None:
        doors = [world.door(), world.door()]
        both = world.gate()
        policy = Policy(wait_for=timedelta(seconds=5))

        def crossing(door: Any, inner: str) -> Any:
            async def handler() -> Any:
                await both.passing()
                return await door.value(inner, world.returning(inner), policy=policy)

            return handler

        calls = [
            doors[0].start("a", crossing(doors[0], "b"), policy=policy),
            doors[1].start("b", crossing(doors[1], "a"), policy=policy),
        ]
        await both.reached(2)
        both.open()
        await world.ended(*calls)
        # Each waits for the other, and no longer than it was willing to.
        assert {type(call.error) for call in calls} <= {InProgress, type(None)}
        assert InProgress in {type(call.error) for call in calls}
        assert world.clock.monotonic() == pytest.approx(5, abs=0.5)
