"""Claims: who runs, what makes two keys one, how long an outcome is kept; concurrent and nested calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from semel.core.policy import Policy
from semel.core.record import Status
from semel.errors import FailedBefore, InProgress, KeyReentered, KeyReused
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World

HOUR = 3600.0
MICROSECOND = 1e-6
KEPT_ONE_HOUR = Policy(keep_for=timedelta(hours=1))
FINAL = Policy(final_errors=(ValueError,), keep_for=timedelta(hours=1))
RETRY = Policy(retry_errors=(ValueError,))


class ClaimContract(Contract):
    """One runs, the others replay."""

    async def test_the_first_caller_runs(self, world: World) -> None:
        assert await world.client().value() == "value"
        assert world.ran == ["value"]

    async def test_a_duplicate_gets_the_value_and_does_not_run(self, world: World) -> None:
        client = world.client()
        await client.run(handler=world.returning("first"))
        assert await client.value(handler=world.returning("second")) == "first"
        assert world.ran == ["first"]

    async def test_a_duplicate_in_another_process_does_not_run(self, world: World) -> None:
        await world.client().run(handler=world.returning("first"))
        assert await world.client().value(handler=world.returning("second")) == "first"
        assert world.ran == ["first"]

    async def test_an_outcome_survives_the_engine_that_recorded_it(self, world: World) -> None:
        client = world.client()
        await client.run(handler=world.returning("first"))
        await client.close()
        assert await world.client().value(handler=world.returning("second")) == "first"

    async def test_an_engine_can_be_used_again_after_it_was_closed(self, world: World) -> None:
        client = world.client()
        await client.run("a")
        await client.close()
        assert not (await client.run("b")).replayed

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"key": "a"}, {"key": "b"}),
            ({"key": "a"}, {"key": "A"}),
            ({"key": "a"}, {"key": "a "}),
            ({"key": "key"}, {"key": "kéy"}),
            ({"key": "k\u00e9y"}, {"key": "ke\u0301y"}),
            ({"key": "(a, b)"}, {"key": ("a", "b")}),
            ({"key": ("a", "b:c")}, {"key": ("a:b", "c")}),
            ({"key": (1,)}, {"key": ("1",)}),
            ({"key": (1,)}, {"key": (True,)}),
            ({"key": ("a", None)}, {"key": ("a", "None")}),
        ],
    )
    async def test_values_separate_keys(self, world: World, one: dict[str, Any], other: dict[str, Any]) -> None:
        client = world.client()
        await client.run(**one)
        assert not (await client.run(**other)).replayed

    async def test_scopes_separate_keys(self, world: World) -> None:
        client = world.client()
        results = [await client.run(scope=scope) for scope in ("acme", "zenith", ("acme", 1), ("acme", 2))]
        results.append(await client.run())
        assert [result.replayed for result in results] == [False] * 5

    async def test_operations_separate_keys(self, world: World) -> None:
        client = world.client()
        await client.run(operation="pay")
        assert not (await client.run(operation="refund")).replayed

    async def test_numbers_of_equal_value_are_one_key(self, world: World) -> None:
        client = world.client()
        await client.run((1500,))
        assert (await client.run((1500.0,))).replayed

    async def test_a_fresh_result_says_what_there_is_to_know(self, world: World) -> None:
        async def handler() -> str:
            world.clock.advance(2.5)
            return "value"

        result = await world.client().run(handler=handler)
        assert (result.replayed, result.protected) == (False, True)
        assert result.seconds == pytest.approx(2.5)

    async def test_a_replayed_result_says_so(self, world: World) -> None:
        client = world.client()
        await client.run()
        result = await client.run()
        assert (result.replayed, result.protected, result.seconds) == (True, True, 0.0)

    async def test_the_record_of_a_fresh_result_is_the_one_stored(self, world: World) -> None:
        client = world.client()
        result = await client.run("o-1", scope="acme", about={"subject": "order", "tags": {"till": "7"}})
        stored = await client.read("o-1", scope="acme")
        assert result.record is not None
        # The lease is over with the outcome; when it would have ended is of no interest any more.
        assert result.record == msgspec.structs.replace(stored, lease_until=result.record.lease_until)

    async def test_a_fresh_result_knows_how_long_it_is_kept(self, world: World) -> None:
        async def handler() -> None:
            world.clock.advance(0.8 * HOUR)

        client = world.client()
        result = await client.run(handler=handler, policy=KEPT_ONE_HOUR)
        assert result.record is not None
        assert result.record.expires_at == (await client.read()).expires_at

    async def test_a_record_tells_who_what_and_which(self, world: World) -> None:
        result = await world.client().run("o-1", scope="acme", operation="charge")
        record = result.record
        assert record is not None
        assert (record.key.scope, record.key.operation, record.key.value) == ("acme", "charge", "o-1")
        assert (record.status, record.attempts, record.fence) == (Status.COMPLETED, 1, 1)

    async def test_a_record_tells_when(self, world: World) -> None:
        async def handler() -> None:
            world.clock.advance(3.0)

        began = world.now()
        record = (await world.client().run(handler=handler, policy=KEPT_ONE_HOUR)).record
        assert record is not None
        assert (record.created_at, record.completed_at) == (began, began + timedelta(seconds=3))
        assert (record.expires_at, record.keep_for) == (began + timedelta(hours=1), timedelta(hours=1))
        assert record.duration == timedelta(seconds=3)


class FingerprintContract(Contract):
    """One key stands for one request, whatever became of it."""

    async def test_a_completed_key_is_not_replayed_for_another_request(self, world: World) -> None:
        client = world.client()
        await client.run(fingerprint={"amount": 10})
        assert isinstance(await client.error(fingerprint={"amount": 11}), KeyReused)
        assert len(world.ran) == 1, f"the handler ran {len(world.ran)} times"

    async def test_equal_numbers_are_the_same_request(self, world: World) -> None:
        client = world.client()
        await client.run(fingerprint={"amount": 10})
        assert (await client.run(fingerprint={"amount": 10.0})).replayed

    async def test_a_running_key_is_refused_at_once_for_another_request(self, world: World) -> None:
        gate = world.gate()
        owner = world.client().start(handler=world.stopping(gate), fingerprint=1)
        await gate.reached()
        assert isinstance(await world.client().error(fingerprint=2), KeyReused)
        assert world.clock.monotonic() == 0, f"the caller waited for {world.clock.monotonic()} s"
        gate.open()
        assert (await world.finish(owner)).value == "value"

    async def test_a_lapsed_lease_is_not_taken_over_for_another_request(self, world: World) -> None:
        await world.crash(asked=1)
        world.clock.advance(HOUR)
        assert isinstance(await world.client().error(fingerprint=2), KeyReused)
        assert world.ran == []

    async def test_a_retryable_failure_is_not_claimed_for_another_request(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(ValueError()), policy=RETRY, fingerprint=1)
        assert isinstance(await client.error(policy=RETRY, fingerprint=2), KeyReused)
        assert world.ran == ["ValueError"]

    async def test_a_final_failure_is_not_replayed_for_another_request(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(ValueError()), policy=FINAL, fingerprint=1)
        assert isinstance(await client.error(policy=FINAL, fingerprint=2), KeyReused)

    async def test_a_doubt_is_not_rerun_for_another_request(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(OSError()), fingerprint=1)
        assert isinstance(await client.error(fingerprint=2), KeyReused)
        assert world.ran == ["OSError"]

    async def test_a_refused_request_changes_nothing(self, world: World) -> None:
        await world.crash(asked=1)
        before = await world.stored()
        world.clock.advance(HOUR)
        await world.client().error(fingerprint=2)
        assert await world.stored() == before

    async def test_an_expired_key_is_free_for_another_request(self, world: World) -> None:
        client = world.client()
        await client.run(fingerprint=1, policy=KEPT_ONE_HOUR)
        world.clock.advance(HOUR)
        assert not (await client.run(fingerprint=2, policy=KEPT_ONE_HOUR)).replayed


class KeepingContract(Contract):
    """How long an outcome is replayed; nothing to do with how long a claim is leased."""

    async def test_an_outcome_is_replayed_until_just_before_its_expiry(self, world: World) -> None:
        client = world.client()
        await client.run(policy=KEPT_ONE_HOUR)
        world.clock.advance(HOUR - MICROSECOND)
        assert (await client.run(policy=KEPT_ONE_HOUR)).replayed

    async def test_an_outcome_is_over_at_the_instant_of_its_expiry(self, world: World) -> None:
        client = world.client()
        await client.run(policy=KEPT_ONE_HOUR)
        world.clock.advance(HOUR)
        assert not (await client.run(policy=KEPT_ONE_HOUR)).replayed

    async def test_an_outcome_outlives_many_leases(self, world: World) -> None:
        client = world.client()
        policy = Policy(lease_for=timedelta(seconds=1), keep_for=timedelta(days=400))
        await client.run(policy=policy)
        world.clock.advance(399 * 24 * HOUR)
        assert (await client.run(policy=policy)).replayed

    async def test_a_run_longer_than_keep_for_is_still_kept(self, world: World) -> None:
        client = world.client()
        gate = world.gate()
        policy = Policy(keep_for=timedelta(seconds=20))
        owner = client.start(handler=world.stopping(gate), policy=policy)
        await gate.reached()
        await world.pass_time(60)
        gate.open()
        await world.finish(owner)
        world.clock.advance(20 - MICROSECOND)
        assert (await client.run(policy=policy)).replayed

    async def test_a_running_key_does_not_expire(self, world: World) -> None:
        gate = world.gate()
        client = world.client()
        policy = Policy(keep_for=timedelta(seconds=20), when_running="reject")
        owner = client.start(handler=world.stopping(gate), policy=policy)
        await gate.reached()
        await world.pass_time(60)
        await client.error(policy=policy)
        gate.open()
        await world.finish(owner)
        assert world.ran == ["value"]

    async def test_a_final_failure_expires_too(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(ValueError("no")), policy=FINAL)
        world.clock.advance(HOUR - MICROSECOND)
        assert isinstance(await client.error(policy=FINAL), FailedBefore)
        world.clock.advance(MICROSECOND)
        assert not (await client.run(policy=FINAL)).replayed

    async def test_a_doubt_does_not_expire(self, world: World) -> None:
        await world.crash(policy=KEPT_ONE_HOUR)
        world.clock.advance(1000 * HOUR)
        client = world.client()
        seen: list[tuple[int, bool]] = []
        await client.run(handler=lambda: seen.append((client.current().number, client.current().in_doubt)))
        assert seen == [(2, True)]

    async def test_a_new_life_begins_with_a_higher_fence_and_no_history(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(ValueError("no")), policy=FINAL)
        world.clock.advance(HOUR)
        record = (await client.run(policy=FINAL)).record
        assert record is not None
        assert (record.fence, record.attempts, record.error) == (2, 1, None)
        assert record.created_at == world.now()

    async def test_two_policies_on_one_store_each_keep_their_own_time(self, world: World) -> None:
        client = world.client()
        long = Policy(keep_for=timedelta(hours=3))
        await client.run("short", policy=KEPT_ONE_HOUR)
        await client.run("long", policy=long)
        world.clock.advance(2 * HOUR)
        replayed = [
            (await client.run(key, policy=policy)).replayed
            for key, policy in [("short", KEPT_ONE_HOUR), ("long", long)]
        ]
        assert replayed == [False, True]


PATIENT = Policy(wait_for=timedelta(minutes=10))
FIFTY = 50


class ConcurrencyContract(Contract):
    """However many ask, one runs."""

    async def test_fifty_duplicates_over_two_processes_run_once(self, world: World) -> None:
        clients = [world.client(), world.client()]
        calls = [clients[number % 2].start(policy=PATIENT) for number in range(FIFTY)]
        await world.ended(*calls)
        assert [call.value for call in calls] == ["value"] * FIFTY
        assert sum(not call.result.replayed for call in calls) == 1, "not exactly one call ran"
        assert world.ran == ["value"]

    async def test_fifty_duplicates_of_a_long_handler_run_once(self, world: World) -> None:
        clients, gate = [world.client(), world.client()], world.gate()
        calls = [clients[number % 2].start(handler=world.stopping(gate), policy=PATIENT) for number in range(FIFTY)]
        await gate.reached()
        await world.pass_time(35)
        gate.open()
        await world.ended(*calls)
        assert [call.value for call in calls] == ["value"] * FIFTY
        assert world.ran == ["value"]

    async def test_different_keys_run_side_by_side(self, world: World) -> None:
        client, gate = world.client(), world.gate()
        calls = [client.start(f"k{number}", world.stopping(gate, number)) for number in range(FIFTY)]
        await gate.reached(FIFTY)
        gate.open()
        await world.ended(*calls)
        assert [call.value for call in calls] == list(range(FIFTY))

    async def test_one_request_of_two_under_one_key_wins(self, world: World) -> None:
        clients = [world.client(), world.client()]
        calls = [client.start(fingerprint=asked, policy=PATIENT) for client in clients for asked in ("a", "b")]
        await world.ended(*calls)
        assert sorted(type(call.error).__name__ for call in calls) == ["KeyReused", "KeyReused", "NoneType", "NoneType"]
        assert len(world.ran) == 1, f"the handler ran {len(world.ran)} times"

    async def test_fifty_duplicates_take_over_a_crashed_owner_once(self, world: World) -> None:
        await world.crash()
        world.clock.advance(60)
        clients = [world.client(), world.client()]
        calls = [clients[number % 2].start(policy=PATIENT) for number in range(FIFTY)]
        await world.ended(*calls)
        assert world.ran == ["value"]


class NestingContract(Contract):
    """Operations inside operations."""

    async def test_a_handler_may_run_another_key(self, world: World) -> None:
        client = world.client()

        async def outer() -> Any:
            return (await client.value("inner", world.returning("inner")), "outer")

        assert await client.value("outer", outer) == ("inner", "outer")

    async def test_a_handler_may_run_the_same_value_under_another_operation(self, world: World) -> None:
        client = world.client()

        async def outer() -> Any:
            return await client.value("k", world.returning("inner"), operation="reserve")

        assert await client.value("k", outer, operation="pay") == "inner"

    async def test_the_attempt_of_the_outer_operation_is_current_again_after_the_inner(self, world: World) -> None:
        client = world.client()
        seen: list[str] = []

        async def outer() -> None:
            await client.run("inner", lambda: seen.append(client.current().key.value))
            seen.append(client.current().key.value)

        await client.run("outer", outer)
        assert seen == ["inner", "outer"]

    async def test_an_inner_operation_is_not_run_again_when_the_outer_is(self, world: World) -> None:
        client = world.client()

        async def outer() -> Any:
            value = await client.value("inner", world.returning("inner"))
            if client.current().number == 1:
                raise OSError
            return value

        await client.error("outer", outer)
        assert await client.value("outer", outer) == "inner"
        assert world.ran == ["inner"]

    async def test_asking_for_the_key_that_is_running_is_an_error_at_once(self, world: World) -> None:
        client = world.client()

        async def outer() -> Any:
            return await client.error("k")

        assert isinstance(await client.value("k", outer, returns=object), KeyReentered)
        assert (world.clock.monotonic(), world.ran) == (0, [])

    async def test_asking_through_another_engine_on_the_same_store_is_an_error_too(self, world: World) -> None:
        client, other = world.client(), world.client()

        async def outer() -> Any:
            return await other.error("k")

        assert isinstance(await client.value("k", outer), KeyReentered)

    async def test_asking_for_the_key_two_levels_up_is_an_error_at_once(self, world: World) -> None:
        client = world.client()
        errors: list[BaseException] = []

        async def inner() -> None:
            errors.append(await client.error("k"))

        async def outer() -> None:
            await client.run("inner", inner)

        await client.run("k", outer)
        assert [type(error) for error in errors] == [KeyReentered]

    async def test_the_key_is_free_again_after_its_handler(self, world: World) -> None:
        client = world.client()

        async def outer() -> Any:
            await client.run("a")
            return (await client.run("a")).replayed

        assert await client.value("outer", outer) is True

    async def test_crossed_orders_do_not_deadlock(self, world: World) -> None:
        clients = [world.client(), world.client()]
        both = world.gate()
        policy = Policy(wait_for=timedelta(seconds=5))

        def crossing(client: Any, inner: str) -> Any:
            async def handler() -> Any:
                await both.passing()
                return await client.value(inner, world.returning(inner), policy=policy)

            return handler

        calls = [
            clients[0].start("a", crossing(clients[0], "b"), policy=policy),
            clients[1].start("b", crossing(clients[1], "a"), policy=policy),
        ]
        await both.reached(2)
        both.open()
        await world.ended(*calls)
        # Each waits for the other, and no longer than it was willing to.
        assert {type(call.error) for call in calls} <= {InProgress, type(None)}
        assert InProgress in {type(call.error) for call in calls}
        assert world.clock.monotonic() == pytest.approx(5, abs=0.5)
