"""Cancelling: wherever a caller is cancelled, no claim is left without an owner and there are never two runners."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from semel.core.operations import Checkpoint, Claim, Complete, Fail
from semel.core.policy import Policy
from semel.core.record import Status, StoredRecord
from semel.errors import InProgress
from semel.testing.contract.api_client import ApiClient, Handler
from semel.testing.contract.calls import Call, until
from semel.testing.contract.suite import Contract, only_async
from semel.testing.contract.world import World

REJECT = Policy(when_running="reject")
sides = pytest.mark.parametrize("after", [False, True], ids=["before it is applied", "after it was applied"])


class CancellationContract(Contract):
    """Tasks can be cancelled at every await; threads cannot."""

    @only_async
    @sides
    async def test_cancelled_with_the_claim_on_its_way_leaves_no_ownerless_claim(
        self, world: World, *, after: bool
    ) -> None:
        call, client = await _cancelled_at(world, Claim, after=after)
        await _released(world, client)
        assert isinstance(call.error, asyncio.CancelledError)
        assert await world.client().value(handler=world.returning("next"), policy=REJECT) == "next"
        assert world.ran == ["next"]

    @only_async
    @sides
    async def test_a_claim_that_was_given_back_is_no_attempt(self, world: World, *, after: bool) -> None:
        _, client = await _cancelled_at(world, Claim, after=after)
        await _released(world, client)
        seen: list[tuple[int, bool]] = []
        await client.run(handler=lambda: seen.append((client.current().number, client.current().in_doubt)))
        assert seen == [(1, False)]

    @only_async
    async def test_a_take_over_that_was_given_back_stays_in_doubt(self, world: World) -> None:
        await world.crash()
        world.clock.advance(60)
        _, client = await _cancelled_at(world, Claim, after=True)
        assert (await _released(world, client)).status is Status.IN_DOUBT
        seen: list[bool] = []
        await client.run(handler=lambda: seen.append(client.current().in_doubt))
        assert seen == [True]

    @only_async
    async def test_cancelling_one_of_several_in_a_round_leaves_the_others(self, world: World) -> None:
        watched = world.watched()
        hold = watched.hold(Claim)
        client = world.client(watched)
        first = client.start("first")
        await hold.reached()
        calls = [client.start(f"k{number}") for number in range(3)]
        await asyncio.sleep(0)
        await calls[1].cancel()
        hold.release()
        await world.ended(first, *calls)
        assert [type(call.error) for call in calls] == [type(None), asyncio.CancelledError, type(None)]
        assert len(world.ran) == 3, f"the handler ran {len(world.ran)} times"

    @only_async
    async def test_a_cancelled_waiter_does_not_touch_the_owner(self, world: World) -> None:
        client, gate = world.client(), world.gate()
        owner = client.start(handler=world.stopping(gate))
        await gate.reached()
        waiters = [client.start() for _ in range(3)]
        await world.waiting((client, 3))
        await waiters[0].cancel()
        await world.ended(waiters[0])
        gate.open()
        await world.ended(owner, *waiters)
        assert [waiter.value for waiter in waiters[1:]] == ["value"] * 2
        assert world.ran == ["value"]

    @only_async
    async def test_a_cancelled_heir_hands_its_turn_on(self, world: World) -> None:
        watched = world.watched()
        client, gate = world.client(watched), world.gate()
        policy = Policy(retry_errors=(ConnectionError,), wait_for=timedelta(minutes=5))
        owner = client.start(handler=world.stopping(gate, error=ConnectionError()), policy=policy)
        await gate.reached()
        waiters = [client.start(handler=world.returning("heir"), policy=policy) for _ in range(3)]
        await world.waiting((client, 3))
        hold = watched.hold(Claim)
        gate.open()
        await hold.reached()
        promoted = next(waiter for waiter in waiters if not waiter.done)
        await promoted.cancel()
        hold.release()
        await world.ended(owner, *waiters)
        assert sorted(type(waiter.error).__name__ for waiter in waiters) == ["CancelledError", "NoneType", "NoneType"]
        assert world.ran == ["ConnectionError", "heir"]

    @only_async
    async def test_a_cancelled_handler_is_in_doubt(self, world: World) -> None:
        client, gate = world.client(), world.gate()
        call = client.start(handler=world.stopping(gate))
        await gate.reached()
        await call.cancel()
        await world.ended(call)
        assert isinstance(call.error, asyncio.CancelledError)
        assert (await client.read()).status is Status.IN_DOUBT

    @only_async
    async def test_a_cancelled_handler_is_rerun_and_told(self, world: World) -> None:
        client, gate = world.client(), world.gate()
        call = client.start(handler=world.stopping(gate))
        await gate.reached()
        await call.cancel()
        await world.ended(call)
        seen: list[tuple[int, bool]] = []
        await client.run(handler=lambda: seen.append((client.current().number, client.current().in_doubt)))
        assert seen == [(2, True)]

    @only_async
    async def test_waiters_of_a_cancelled_owner_go_on_with_one_of_them(self, world: World) -> None:
        client, gate = world.client(), world.gate()
        owner = client.start(handler=world.stopping(gate, "owner"))
        await gate.reached()
        waiters = [client.start(handler=world.returning("heir")) for _ in range(3)]
        await world.waiting((client, 3))
        await owner.cancel()
        await world.ended(owner, *waiters)
        assert [waiter.value for waiter in waiters] == ["heir"] * 3
        assert world.ran == ["owner", "heir"]

    @only_async
    async def test_a_handler_that_finishes_in_spite_of_being_cancelled_is_recorded(self, world: World) -> None:
        client, gate = world.client(), world.gate()

        async def stubborn() -> str:
            try:
                await gate.passing()
            except asyncio.CancelledError:
                return "done all the same"
            return "done"

        call = client.start(handler=stubborn)
        await gate.reached()
        await call.cancel()
        await world.ended(call)
        assert await client.value() == "done all the same"

    @only_async
    @sides
    async def test_cancelled_with_the_completion_on_its_way_is_recorded_all_the_same(
        self, world: World, *, after: bool
    ) -> None:
        call, _ = await _cancelled_at(world, Complete, world.returning("done"), after=after)
        assert isinstance(call.error, asyncio.CancelledError)
        assert await world.client().value(handler=world.returning("again")) == "done"
        assert world.ran == ["done"]

    @only_async
    async def test_cancelled_again_while_cleaning_up_is_recorded_all_the_same(self, world: World) -> None:
        watched = world.watched()
        hold = watched.hold(Complete)
        client = world.client(watched)
        call = client.start(handler=world.returning("done"))
        await hold.reached()
        for _ in range(3):
            await call.cancel()
        hold.release()
        await world.ended(call)
        await _released(world, client)
        assert await world.client().value() == "done"

    @only_async
    @sides
    async def test_cancelled_with_a_failure_on_its_way_is_recorded_all_the_same(
        self, world: World, *, after: bool
    ) -> None:
        _, client = await _cancelled_at(world, Fail, world.raising(ConnectionError("down")), after=after)
        record = await _released(world, client)
        assert (record.status, record.error and record.error.message) == (Status.IN_DOUBT, "down")

    @only_async
    @sides
    async def test_cancelled_with_a_checkpoint_on_its_way_keeps_the_step(self, world: World, *, after: bool) -> None:
        watched = world.watched()
        hold = watched.hold(Checkpoint, after=after)
        client = world.client(watched)

        async def handler() -> Any:
            return await client.current().step("a", world.returning("a"))

        call = client.start(handler=handler)
        await hold.reached()
        await call.cancel()
        hold.release()
        await _released(world, client)
        assert await client.value(handler=handler) == "a"
        assert world.ran == ["a"]

    @only_async
    async def test_cancelled_between_two_tries_of_a_claim_leaves_no_ownerless_claim(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Claim)
        client = world.client(watched)
        call = client.start()
        await world.settled()
        await call.cancel()
        await world.ended(call)
        await _released(world, client)
        assert await world.client().value(policy=REJECT) == "value"

    @only_async
    async def test_a_cancelled_handler_in_a_thread_keeps_its_lease_until_the_thread_ends(self, world: World) -> None:
        client, other = world.client(), world.client()
        call, release = await _in_a_thread(world, client)
        await call.cancel()
        await world.ended(call)
        for _ in range(5):
            await world.pass_time(30)
            assert isinstance(await other.error(policy=REJECT), InProgress)
        release.set()
        assert (await _released(world, client)).status is Status.IN_DOUBT
        assert world.ran == ["thread"]

    @only_async
    async def test_the_caller_of_a_handler_in_a_thread_does_not_wait_for_the_thread(self, world: World) -> None:
        client = world.client()
        call, release = await _in_a_thread(world, client)
        await call.cancel()
        await world.ended(call)
        assert isinstance(call.error, asyncio.CancelledError)
        release.set()
        await _released(world, client)


async def _cancelled_at(
    world: World, kind: type, handler: Handler | None = None, *, after: bool
) -> tuple[Call, ApiClient]:
    """A caller that was cancelled while an operation of this kind was on its way, and the process it was in."""
    watched = world.watched()
    hold = watched.hold(kind, after=after)
    client = world.client(watched)
    call = client.start(handler=handler)
    await hold.reached()
    await call.cancel()
    hold.release()
    await world.ended(call)
    return call, client


async def _in_a_thread(world: World, client: ApiClient) -> tuple[Call, threading.Event]:
    """A handler whose work is done by a thread that ends only when it is told to."""
    began, release = threading.Event(), threading.Event()

    def work() -> None:
        world.ran.append("thread")
        began.set()
        release.wait(60)

    async def handler() -> None:
        await asyncio.to_thread(work)

    call = client.start(handler=handler)
    await until(began.is_set, "the thread to begin")
    return call, release


async def _released(world: World, client: ApiClient) -> StoredRecord:
    """The record, once all that a cancelled caller left behind has come to its end."""
    await client.close()
    record = await world.stored()
    assert record is not None, "there is no record"
    assert record.status is not Status.RUNNING, "the claim was left without an owner"
    return record
