"""Waiting: what a duplicate does while the first runs, and what becomes of those who wait."""

from __future__ import annotations

from datetime import timedelta

import pytest

from semel.core.circuit import Limits
from semel.core.operations import Claim, Read
from semel.core.policy import Policy
from semel.errors import InDoubt, InProgress, StoreUnavailable, TooManyHandlers, TooManyWaiting
from semel.testing.contract.api_client import ApiClient
from semel.testing.contract.calls import Call, Gate
from semel.testing.contract.suite import Contract, only_async
from semel.testing.contract.world import World

PATIENT = Policy(wait_for=timedelta(minutes=10), retry_errors=(ConnectionError,))
REJECT = Policy(when_running="reject", lease_for=timedelta(seconds=30))
# Shorter than the time to the first look: such a waiter sees nothing before its last look.
BLINK = Policy(wait_for=timedelta(milliseconds=40))
EXPIRES_WITH_BLINK = Policy(keep_for=BLINK.wait_for)
THOUSAND = 1000


class WaitingContract(Contract):
    """Those who wait get what the owner gets."""

    async def test_a_waiter_gets_the_value_of_the_owner(self, world: World) -> None:
        client = world.client()
        owner, gate = await _owner(world, client)
        waiter = client.start(handler=world.returning("mine"))
        await world.waiting((client, 1))
        gate.open()
        await world.ended(owner, waiter)
        assert (waiter.value, waiter.result.replayed) == ("owner", True)
        assert world.ran == ["owner"]

    async def test_a_waiter_in_another_process_gets_the_value_of_the_owner(self, world: World) -> None:
        owner, gate = await _owner(world, world.client())
        client = world.client()
        waiter = client.start(handler=world.returning("mine"))
        await world.waiting((client, 1))
        gate.open()
        await world.ended(owner, waiter)
        assert (waiter.value, waiter.result.replayed) == ("owner", True)
        assert world.ran == ["owner"]

    async def test_a_waiter_in_the_same_process_is_told_at_once(self, world: World) -> None:
        client = world.client()
        owner, gate = await _owner(world, client)
        waiter = client.start()
        await world.waiting((client, 1))
        gate.open()
        await world.ended(owner, waiter)
        assert world.clock.monotonic() == 0, f"the caller waited for {world.clock.monotonic()} s"

    async def test_a_result_says_how_long_it_waited(self, world: World) -> None:
        owner, gate = await _owner(world, world.client())
        client = world.client()
        waiter = client.start()
        await world.waiting((client, 1))
        await world.pass_time(4)
        gate.open()
        await world.ended(owner, waiter)
        assert waiter.result.seconds == pytest.approx(4.3, abs=0.3)

    async def test_a_waiter_whose_time_is_over_is_told_to_come_back(self, world: World) -> None:
        await _owner(world, world.client())
        error = await world.client().error(policy=Policy(wait_for=timedelta(seconds=10)))
        assert isinstance(error, InProgress)
        assert error.retry_after > timedelta(0)
        assert world.clock.monotonic() == pytest.approx(10)
        assert world.ran == ["owner"]

    async def test_a_waiter_that_gives_up_looks_a_last_time(self, world: World) -> None:
        owner, gate = await _owner(world, world.client())
        client = world.client()
        waiter = client.start(policy=BLINK)
        await world.waiting((client, 1))
        gate.open()
        await world.ended(owner)
        await world.pass_time(0.04)
        await world.ended(waiter)
        assert waiter.value == "owner"

    async def test_a_waiter_that_gives_up_is_not_given_a_record_that_has_just_expired(self, world: World) -> None:
        owner, gate = await _owner(world, world.client(), EXPIRES_WITH_BLINK)
        client = world.client()
        waiter = client.start(policy=BLINK)
        await world.waiting((client, 1))
        gate.open()
        await world.ended(owner)
        assert (await world.client().read()).expires_at == world.now() + timedelta(milliseconds=40)
        await world.pass_time(0.04)
        await world.ended(waiter)
        assert isinstance(waiter.error, InProgress), f"the waiter was given {waiter.result}"
        assert waiter.error.retry_after < timedelta(seconds=1), "the key is free: there is nothing to wait for"

    async def test_a_waiter_that_gives_up_does_not_touch_the_record(self, world: World) -> None:
        await _owner(world, world.client())
        before = await world.stored()
        await world.client().error(policy=BLINK)
        assert await world.stored() == before

    async def test_a_waiter_without_time_is_told_at_once(self, world: World) -> None:
        await _owner(world, world.client())
        error = await world.client().error(policy=Policy(wait_for=timedelta(0)))
        assert isinstance(error, InProgress)
        assert world.clock.monotonic() == 0, f"the caller waited for {world.clock.monotonic()} s"

    async def test_reject_answers_at_once(self, world: World) -> None:
        watched = world.watched()
        await _owner(world, world.client())
        assert isinstance(await world.client(watched).error(policy=REJECT), InProgress)
        assert (world.clock.monotonic(), watched.count(Claim), watched.count(Read)) == (0, 1, 0)

    async def test_a_waiter_takes_over_when_the_lease_of_a_crashed_owner_ends(self, world: World) -> None:
        await world.crash()
        assert await world.client().value(policy=PATIENT) == "value"
        assert world.clock.monotonic() == pytest.approx(30, abs=1)

    async def test_a_waiter_is_told_that_the_owner_is_held_in_doubt(self, world: World) -> None:
        client, gate = world.client(), world.gate()
        held = Policy(in_doubt="hold")
        owner = client.start(handler=world.stopping(gate, error=OSError()), policy=held)
        await gate.reached()
        waiters = [client.start(policy=held) for _ in range(3)]
        await world.waiting((client, 3))
        gate.open()
        await world.ended(owner, *waiters)
        assert [type(waiter.error) for waiter in waiters] == [InDoubt] * 3
        assert world.ran == ["OSError"]

    async def test_waiting_survives_a_store_that_does_not_answer_reads(self, world: World) -> None:
        owner, gate = await _owner(world, world.client())
        watched = world.watched()
        watched.refuse(Read, times=5)
        client = world.client(watched)
        waiter = client.start(policy=PATIENT)
        await world.waiting((client, 1))
        await world.pass_time(0.5)
        gate.open()
        await world.ended(owner, waiter)
        assert waiter.value == "owner"


class CrowdContract(Contract):
    """The number of waiters is bounded; one more is refused at once, and costs the store one claim."""

    async def test_one_too_many_for_a_key_is_told_at_once(self, world: World) -> None:
        await _owner(world, world.client())
        watched = world.watched()
        client = world.client(watched, limits=Limits(waiters_per_key=2))
        for _ in range(2):
            client.start(policy=PATIENT)
        await world.waiting((client, 2))
        error = await client.error(policy=PATIENT)
        assert type(error) is InProgress, f"the third caller heard {error!r}"
        assert error.retry_after > timedelta(0)
        assert (world.clock.monotonic(), watched.count(Claim), watched.count(Read)) == (0, 3, 0)

    async def test_those_who_wait_are_served_although_others_were_turned_away(self, world: World) -> None:
        client = world.client(limits=Limits(waiters_per_key=2))
        owner, gate = await _owner(world, client)
        waiters = [client.start(policy=PATIENT) for _ in range(2)]
        await world.waiting((client, 2))
        await client.error(policy=PATIENT)
        gate.open()
        await world.ended(owner, *waiters)
        assert [waiter.value for waiter in waiters] == ["owner"] * 2
        assert world.ran == ["owner"]

    async def test_a_full_room_of_one_key_leaves_the_others_alone(self, world: World) -> None:
        client, gate = world.client(limits=Limits(waiters_per_key=1)), world.gate()
        owners = [client.start(key, world.stopping(gate, key)) for key in ("a", "b")]
        await gate.reached(2)
        waiters = [client.start(key, policy=PATIENT) for key in ("a", "b")]
        await world.waiting((client, 2))
        gate.open()
        await world.ended(*owners, *waiters)
        assert [waiter.value for waiter in waiters] == ["a", "b"]

    async def test_one_too_many_for_the_process_is_told_at_once(self, world: World) -> None:
        gate, owners = world.gate(), world.client()
        for key in ("a", "b", "c"):
            owners.start(key, world.stopping(gate, key))
        await gate.reached(3)
        watched = world.watched()
        client = world.client(watched, limits=Limits(waiters=2))
        for key in ("a", "b"):
            client.start(key, policy=PATIENT)
        await world.waiting((client, 2))
        error = await client.error("c", policy=PATIENT)
        assert isinstance(error, TooManyWaiting), f"the third caller heard {error!r}"
        assert (world.clock.monotonic(), watched.count(Claim), watched.count(Read)) == (0, 3, 0)

    async def test_a_place_is_free_again_once_somebody_gave_up(self, world: World) -> None:
        owner, gate = await _owner(world, world.client())
        client = world.client(limits=Limits(waiters=1, waiters_per_key=1))
        await client.error(policy=BLINK)
        waiter = client.start(policy=PATIENT)
        await world.waiting((client, 1))
        gate.open()
        await world.ended(owner, waiter)
        assert waiter.value == "owner"


class HandlerLimitContract(Contract):
    """No more handlers run in a process than its limits allow; one more is told before anything is claimed."""

    async def test_one_handler_too_many_is_told_before_it_claims(self, world: World) -> None:
        watched, gate = world.watched(), world.gate()
        client = world.client(watched, limits=Limits(max_handlers=2))
        for key in ("a", "b"):
            client.start(key, world.stopping(gate, key))
        await gate.reached(2)
        error = await client.error("c")
        assert isinstance(error, TooManyHandlers), f"the third caller heard {error!r}"
        assert (watched.count(Claim), await client.find("c")) == (2, None)
        assert error.retry_after

    async def test_a_handler_that_returned_makes_room(self, world: World) -> None:
        client = world.client(limits=Limits(max_handlers=1))
        assert [await client.value(key) for key in ("a", "b", "b", "c")] == ["value"] * 4
        assert len(world.ran) == 3, f"the handler ran {len(world.ran)} times"

    @pytest.mark.parametrize("error", [ConnectionError, OSError])
    async def test_a_handler_that_raised_makes_room(self, world: World, error: type[Exception]) -> None:
        client = world.client(limits=Limits(max_handlers=1))
        await client.error("a", world.raising(error()), policy=PATIENT)
        assert await client.value("b") == "value"

    @only_async
    async def test_a_handler_that_was_cancelled_makes_room(self, world: World) -> None:
        client, gate = world.client(limits=Limits(max_handlers=1)), world.gate()
        call = client.start("a", world.stopping(gate))
        await gate.reached()
        await call.cancel()
        await world.ended(call)
        assert await client.value("b") == "value"

    @only_async
    async def test_a_claim_that_was_cancelled_makes_room(self, world: World) -> None:
        watched = world.watched()
        client = world.client(watched, limits=Limits(max_handlers=1))
        hold = watched.hold(Claim)
        call = client.start("a")
        await hold.reached()
        await call.cancel()
        hold.release()
        await world.ended(call)
        await world.settled()
        assert await client.value("b") == "value"

    async def test_a_claim_that_failed_makes_room(self, world: World) -> None:
        watched = world.watched()
        client = world.client(watched, limits=Limits(max_handlers=1, retry_budget=0))
        watched.refuse(Claim)
        assert isinstance(await client.error("a"), StoreUnavailable)
        watched.mend()
        assert await client.value("b") == "value"

    async def test_those_who_wait_for_another_are_not_counted(self, world: World) -> None:
        owner, gate = await _owner(world, world.client())
        client = world.client(limits=Limits(max_handlers=1))
        waiters = [client.start(policy=PATIENT)]
        await world.waiting((client, 1))
        waiters.append(client.start(policy=PATIENT))
        await world.waiting((client, 2))
        assert await client.value("other") == "value"
        gate.open()
        await world.ended(owner, *waiters)
        assert [waiter.value for waiter in waiters] == ["owner"] * 2

    async def test_what_a_handler_calls_is_not_counted(self, world: World) -> None:
        client = world.client(limits=Limits(max_handlers=1))

        async def outer() -> str:
            return str(await client.value("inner"))

        assert await client.value("outer", outer) == "value"

    async def test_each_process_has_its_own_limit(self, world: World) -> None:
        gate = world.gate()
        first, second = (world.client(limits=Limits(max_handlers=1)) for _ in range(2))
        call = first.start("a", world.stopping(gate))
        await gate.reached()
        assert await second.value("b") == "value"
        gate.open()
        await world.ended(call)


class PromotionContract(Contract):
    """When the owner is gone, exactly one of those who wait comes next."""

    async def test_one_waiter_runs_after_a_retryable_failure_and_the_others_get_its_value(self, world: World) -> None:
        watched, gate = world.watched(), world.gate()
        client = world.client(watched)
        owner = client.start(handler=world.stopping(gate, error=ConnectionError()), policy=PATIENT)
        await gate.reached()
        heirs_gate = world.gate()
        waiters = [client.start(handler=world.stopping(heirs_gate, "heir"), policy=PATIENT) for _ in range(5)]
        await world.waiting((client, 5))
        gate.open()
        await heirs_gate.reached()
        await world.pass_time(5)
        assert world.ran == ["ConnectionError", "heir"]
        assert client.waiters() == 4, f"{client.waiters()} callers wait"
        assert watched.count(Claim) == 1 + 5 + 1
        heirs_gate.open()
        await world.ended(owner, *waiters)
        assert [waiter.value for waiter in waiters] == ["heir"] * 5
        assert world.ran == ["ConnectionError", "heir"]

    async def test_one_waiter_of_two_processes_runs(self, world: World) -> None:
        clients, gate = [world.client(), world.client()], world.gate()
        owner = clients[0].start(handler=world.stopping(gate, error=ConnectionError()), policy=PATIENT)
        await gate.reached()
        waiters = [
            client.start(handler=world.returning("heir"), policy=PATIENT) for client in clients for _ in range(3)
        ]
        await world.waiting((clients[0], 3), (clients[1], 3))
        gate.open()
        await world.ended(owner, *waiters)
        assert [waiter.value for waiter in waiters] == ["heir"] * 6
        assert world.ran == ["ConnectionError", "heir"]

    async def test_waiters_come_one_after_the_other_while_each_fails(self, world: World) -> None:
        client, gate = world.client(), world.gate()
        owner = client.start(handler=world.stopping(gate, error=ConnectionError()), policy=PATIENT)
        await gate.reached()
        waiters = [client.start(handler=world.raising(ConnectionError()), policy=PATIENT) for _ in range(4)]
        await world.waiting((client, 4))
        gate.open()
        await world.ended(owner, *waiters)
        assert [type(waiter.error) for waiter in waiters] == [ConnectionError] * 4
        assert (await client.read()).attempts == 5

    async def test_one_waiter_reruns_what_is_in_doubt(self, world: World) -> None:
        client, gate = world.client(), world.gate()
        owner = client.start(handler=world.stopping(gate, error=OSError()), policy=PATIENT)
        await gate.reached()
        waiters = [client.start(handler=world.returning("heir"), policy=PATIENT) for _ in range(3)]
        await world.waiting((client, 3))
        gate.open()
        await world.ended(owner, *waiters)
        assert world.ran == ["OSError", "heir"]

    async def test_a_thousand_waiters_cost_five_reads_a_second(self, world: World) -> None:
        await _owner(world, world.client())
        watched = world.watched()
        client = world.client(watched)
        for _ in range(THOUSAND):
            client.start(policy=PATIENT)
        await world.waiting((client, THOUSAND))
        before = watched.count(Read)
        await world.pass_time(10)
        assert 0 < watched.count(Read) - before <= 5 * 10

    async def test_waiters_of_many_keys_are_served_by_one_list(self, world: World) -> None:
        gate, owners = world.gate(), world.client()
        for number in range(20):
            owners.start(f"k{number}", world.stopping(gate, number))
        await gate.reached(20)
        watched = world.watched()
        client = world.client(watched)
        waiters = [client.start(f"k{number}", policy=PATIENT) for number in range(20)]
        await world.waiting((client, 20))
        await world.pass_time(5)
        assert {len(reads) for reads in watched.lists(Read)} == {20}
        gate.open()
        await world.ended(*waiters)
        assert [waiter.value for waiter in waiters] == list(range(20))


async def _owner(world: World, client: ApiClient, policy: Policy | None = None) -> tuple[Call, Gate]:
    """Somebody who runs, and stops inside the handler."""
    gate = world.gate()
    call = client.start(handler=world.stopping(gate, "owner"), policy=policy)
    await gate.reached()
    return call, gate
