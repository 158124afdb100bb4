"""Steps and derived keys: recovery points inside a handler, and keys for the next service that never change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from semel.core import codec
from semel.core.codec import PlainAdapter, same
from semel.core.key import is_key
from semel.core.operations import Checkpoint, Renew
from semel.core.policy import Policy
from semel.core.record import Step
from semel.errors import LeaseLost, ResultNotKept, StepsChanged, UsageError
from semel.testing.contract.api_client import ApiClient, Handler
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World

SHORT_KEPT = Policy(keep_for=timedelta(hours=1))


@dataclass(frozen=True)
class Hold:
    """What a step may give."""

    room: int
    price: Decimal


class StepContract(Contract):
    """A finished step is not run again, whatever becomes of the attempt."""

    async def test_a_step_gives_the_value_of_its_function(self, world: World) -> None:
        client = world.client()
        assert await client.value(handler=_stepping(world, client, "a", "b")) == ["a", "b"]
        assert world.ran == ["a", "b"]

    async def test_finished_steps_are_not_run_again_after_an_error(self, world: World) -> None:
        client = world.client()
        await client.error(handler=_stepping(world, client, "a", "b", error=OSError()))
        assert await client.value(handler=_stepping(world, client, "a", "b", "c")) == ["a", "b", "c"]
        assert world.ran == ["a", "b", "c"]

    async def test_finished_steps_are_not_run_again_after_a_retryable_failure(self, world: World) -> None:
        client = world.client()
        policy = Policy(retry_errors=(ConnectionError,))
        await client.error(handler=_stepping(world, client, "a", error=ConnectionError()), policy=policy)
        await client.run(handler=_stepping(world, client, "a", "b"), policy=policy)
        assert world.ran == ["a", "b"]

    async def test_finished_steps_are_not_run_again_after_a_crash(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Checkpoint(lease, Step(0, "a", codec.encode("kept", PlainAdapter(), 1000))))
        world.clock.advance(60)
        client = world.client()
        assert await client.value(handler=_stepping(world, client, "a", "b")) == ["kept", "b"]
        assert world.ran == ["b"]

    async def test_a_step_that_raised_is_run_again(self, world: World) -> None:
        client = world.client()

        async def failing() -> None:
            await client.current().step("a", world.raising(OSError()))

        assert isinstance(await client.error(handler=failing), OSError)
        await client.run(handler=_stepping(world, client, "a"))
        assert world.ran == ["OSError", "a"]

    async def test_a_step_comes_back_in_value_and_type(self, world: World) -> None:
        client = world.client()

        def hold(room: int) -> Hold:
            return Hold(room, Decimal("9.90"))

        async def handler() -> Hold:
            value: Hold = await client.current().step("hold", hold, 12)
            if client.current().number == 1:
                raise OSError
            return value

        await client.error(handler=handler)
        assert await client.value(handler=handler) == Hold(12, Decimal("9.90"))

    @pytest.mark.parametrize("value", [None, 0, "", False, []])
    async def test_a_step_with_a_falsy_value_is_finished_too(self, world: World, value: Any) -> None:
        client = world.client()

        async def handler() -> Any:
            found = await client.current().step("a", world.returning(value, note="ran"))
            if client.current().number == 1:
                raise OSError
            return found

        await client.error(handler=handler)
        assert same(await client.value(handler=handler), value)
        assert world.ran == ["ran"]

    async def test_a_step_whose_value_cannot_be_kept_is_not_run_twice(self, world: World) -> None:
        client = world.client()

        async def handler() -> None:
            await client.current().step("a", world.returning(object(), note="ran"))
            raise OSError

        await client.error(handler=handler)
        assert isinstance(await client.error(handler=handler), ResultNotKept)
        assert world.ran == ["ran"]

    async def test_a_step_may_stop_for_long(self, world: World) -> None:
        client, gate = world.client(), world.gate()

        async def handler() -> Any:
            return await client.current().step("a", world.stopping(gate))

        call = client.start(handler=handler)
        await gate.reached()
        await world.pass_time(300)
        gate.open()
        assert (await world.finish(call)).value == "value"

    async def test_finished_steps_are_shown_in_the_record(self, world: World) -> None:
        client = world.client()
        await client.run(handler=_stepping(world, client, "a", "b"))
        assert [(step.index, step.name) for step in (await client.read()).steps] == [(0, "a"), (1, "b")]

    async def test_a_new_life_of_the_key_begins_without_steps(self, world: World) -> None:
        client = world.client()
        await client.run(handler=_stepping(world, client, "a"), policy=SHORT_KEPT)
        world.clock.advance(3600)
        await client.run(handler=_stepping(world, client, "a"), policy=SHORT_KEPT)
        assert world.ran == ["a", "a"]

    async def test_the_steps_of_a_new_life_are_finished_like_those_of_the_first(self, world: World) -> None:
        client = world.client()
        await client.run(handler=_stepping(world, client, "a"), policy=SHORT_KEPT)
        world.clock.advance(3600)
        await client.error(handler=_stepping(world, client, "a", error=OSError()), policy=SHORT_KEPT)
        await client.run(handler=_stepping(world, client, "a"), policy=SHORT_KEPT)
        assert world.ran == ["a", "a"]

    async def test_steps_of_different_keys_are_apart(self, world: World) -> None:
        client = world.client()
        for key in ("k1", "k2"):
            await client.run(key, _stepping(world, client, "a"))
        assert world.ran == ["a", "a"]

    @pytest.mark.parametrize(
        "now",
        [("x", "b"), ("b", "a"), ("b",), ("a",), ("a", "c"), ("x", "a", "b"), ()],
        ids=["renamed", "reordered", "first dropped", "last dropped", "last renamed", "inserted", "all dropped"],
    )
    async def test_changed_steps_are_refused(self, world: World, now: tuple[str, ...]) -> None:
        client = world.client()
        await client.error(handler=_stepping(world, client, "a", "b", error=OSError()))
        error = await client.error(handler=_stepping(world, client, *now))
        assert isinstance(error, StepsChanged)
        assert "a" in error.message or "b" in error.message
        assert not {"x", "c"} & set(world.ran)

    async def test_refused_steps_leave_what_was_finished(self, world: World) -> None:
        client = world.client()
        await client.error(handler=_stepping(world, client, "a", "b", error=OSError()))
        await client.error(handler=_stepping(world, client, "x"))
        assert await client.value(handler=_stepping(world, client, "a", "b", "c")) == ["a", "b", "c"]
        assert world.ran == ["a", "b", "c"]

    async def test_a_name_is_used_once(self, world: World) -> None:
        client = world.client()
        assert isinstance(await client.error(handler=_stepping(world, client, "a", "a")), StepsChanged)
        assert world.ran == ["a"]

    async def test_steps_that_were_not_reached_may_change(self, world: World) -> None:
        client = world.client()
        await client.error(handler=_stepping(world, client, "a", error=OSError()))
        assert await client.value(handler=_stepping(world, client, "a", "anything")) == ["a", "anything"]

    async def test_a_step_after_the_lease_was_lost_does_not_run(self, world: World) -> None:
        watched, gate = world.watched(), world.gate()
        watched.refuse(Renew)
        client = world.client(watched)

        async def handler() -> None:
            attempt = client.current()
            await gate.passing()
            await attempt.step("a", world.returning("a"))

        zombie = client.start(handler=handler)
        await gate.reached()
        await world.pass_time(60)
        await world.settled()
        gate.open()
        await world.ended(zombie)
        assert isinstance(zombie.error, LeaseLost)
        assert world.ran == []

    async def test_a_step_that_outlives_its_lease_is_not_recorded(self, world: World) -> None:
        gate = world.gate()
        client = world.client()

        async def handler() -> None:
            await client.current().step("a", world.stopping(gate, "zombie"))

        zombie = client.start(handler=handler)
        await gate.reached()
        world.clock.advance(60)
        await world.crash()
        gate.open()
        await world.ended(zombie)
        record = await world.stored()
        assert record is not None
        assert record.steps == ()
        assert isinstance(zombie.error, LeaseLost)

    async def test_there_is_no_attempt_outside_a_handler(self, world: World) -> None:
        with pytest.raises(UsageError):
            world.client().current()


class DeriveContract(Contract):
    """A key for the next service."""

    async def test_a_derived_key_is_the_same_on_every_attempt(self, world: World) -> None:
        client, other = world.client(), world.client()
        await client.error(handler=_deriving(world, client, error=OSError()))
        await other.run(handler=_deriving(world, other))
        assert len(world.ran) == 2, f"the handler ran {len(world.ran)} times"
        assert len(set(world.ran)) == 1

    async def test_a_derived_key_has_the_form_of_make_key(self, world: World) -> None:
        client = world.client()
        assert is_key(await client.value(handler=_deriving(world, client)))

    async def test_derived_keys_differ_by_scope_operation_value_and_step(self, world: World) -> None:
        client = world.client()
        await client.run("k", _deriving(world, client))
        await client.run("k", _deriving(world, client), scope="acme")
        await client.run("k", _deriving(world, client), operation="refund")
        await client.run("k2", _deriving(world, client))
        await client.run("k3", _deriving(world, client, "settle"))
        await client.run("k4", _deriving(world, client, "charge", "settle"))
        assert len(set(world.ran)) == len(world.ran)


def _stepping(world: World, client: ApiClient, *names: str, error: Exception | None = None) -> Handler:
    """A handler that takes these steps, each giving its name, then returns them all or raises."""

    async def handler() -> Any:
        attempt = client.current()
        values = [await attempt.step(name, world.returning(name)) for name in names]
        if error is not None:
            raise error
        return values

    return handler


def _deriving(world: World, client: ApiClient, *steps: str, error: Exception | None = None) -> Handler:
    """A handler that notes a derived key for each step."""

    def handler() -> Any:
        derived = [client.current().derive(step) for step in steps or ("charge",)]
        world.ran.extend(derived)
        if error is not None:
            raise error
        return derived[-1]

    return handler
