"""Faults of the store: errors before anything is applied, replies that are lost, and a store that stays silent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from semel.core.operations import Checkpoint, Claim, Complete, Fail, Read, Renew, Resolve
from semel.core.outcome import DidNotHappen, Happened
from semel.core.policy import Policy
from semel.core.record import Status
from semel.errors import FailedBefore, InProgress, StoreUnavailable
from semel.testing.contract.suite import Contract
from semel.testing.contract.watched import WatchedStore
from semel.testing.contract.world import World

FINAL = Policy(final_errors=(ValueError,))
RETRY = Policy(retry_errors=(ConnectionError,))
RUN = Policy(store_down="run")
REJECT = Policy(when_running="reject")
EVERYTHING = (Claim, Complete, Fail, Checkpoint, Read, Renew)


class LostReplyContract(Contract):
    """Applied, and the reply lost: no duplicate, no wedge."""

    @pytest.mark.parametrize("times", [1, 2])
    async def test_a_claim_whose_reply_was_lost_is_granted_when_sent_again(self, world: World, times: int) -> None:
        watched = world.watched()
        watched.lose(Claim, times=times)
        result = await world.door(watched).run()
        assert (result.value, result.replayed, world.ran) == ("value", False, ["value"])

    async def test_a_claim_sent_again_is_one_attempt(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Claim)
        door = world.door(watched)
        seen: list[tuple[int, bool, int]] = []

        def handler() -> None:
            attempt = door.current()
            seen.append((attempt.number, attempt.in_doubt, attempt.fence))

        await door.run(handler=handler)
        assert seen == [(1, False, 1)]

    async def test_a_take_over_whose_reply_was_lost_is_granted_when_sent_again(self, world: World) -> None:
        await world.crash()
        world.clock.advance(60)
        watched = world.watched()
        watched.lose(Claim)
        assert await world.door(watched).value() == "value"
        record = await world.stored()
        assert record is not None
        assert (record.attempts, record.fence) == (2, 2)

    async def test_a_lost_claim_does_not_wedge_the_key(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Claim, times=None)
        error = await world.door(watched).error()
        assert isinstance(error, StoreUnavailable)
        assert not error.ran
        world.clock.advance(30)
        assert await world.door().value(policy=REJECT) == "value"
        assert world.ran == ["value"]

    async def test_two_whose_replies_were_lost_do_not_both_run(self, world: World) -> None:
        stores = [world.watched(), world.watched()]
        for watched in stores:
            watched.lose(Claim, times=2)
        calls = [world.door(watched).start() for watched in stores]
        await world.ended(*calls)
        assert [call.value for call in calls] == ["value"] * 2
        assert world.ran == ["value"]

    @pytest.mark.parametrize("times", [1, 5])
    async def test_a_completion_whose_reply_was_lost_is_recorded_once(self, world: World, times: int) -> None:
        watched = world.watched()
        watched.lose(Complete, times=times)
        result = await world.door(watched).run()
        assert (result.value, result.replayed) == ("value", False)
        assert (await world.door().run()).replayed
        assert world.ran == ["value"]

    async def test_a_completion_whose_reply_was_lost_keeps_its_instant(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Complete)
        began = world.clock.store_clock()
        record = (await world.door(watched).run()).record
        assert record is not None
        assert record.completed_us == began

    async def test_a_final_failure_whose_reply_was_lost_is_recorded_once(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Fail)
        assert isinstance(
            await world.door(watched).error(handler=world.raising(ValueError("no")), policy=FINAL), ValueError
        )
        assert isinstance(await world.door().error(policy=FINAL), FailedBefore)

    async def test_a_retryable_failure_whose_reply_was_lost_counts_once(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Fail)
        await world.door(watched).error(handler=world.raising(ConnectionError()), policy=RETRY)
        record = await world.stored()
        assert record is not None
        assert (record.status, record.attempts) == (Status.FAILED, 1)

    async def test_a_doubt_whose_reply_was_lost_is_recorded_once(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Fail)
        assert isinstance(await world.door(watched).error(handler=world.raising(OSError())), OSError)
        record = await world.stored()
        assert record is not None
        assert (record.status, record.attempts) == (Status.IN_DOUBT, 1)

    async def test_a_checkpoint_whose_reply_was_lost_is_recorded_once(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Checkpoint)
        door = world.door(watched)

        async def handler() -> Any:
            return [await door.current().step(name, world.returning(name)) for name in ("a", "b")]

        assert await door.value(handler=handler) == ["a", "b"]
        assert [step.name for step in (await door.read()).steps] == ["a", "b"]
        assert world.ran == ["a", "b"]

    async def test_a_step_whose_record_is_locked_for_a_while_is_recorded(self, world: World) -> None:
        watched = world.watched()
        watched.lock(Checkpoint, times=7)
        door = world.door(watched)

        async def handler() -> Any:
            return await door.current().step("a", world.returning("a"))

        assert await door.value(handler=handler) == "a"
        assert [step.name for step in (await door.read()).steps] == ["a"]
        assert (world.ran, watched.count(Checkpoint)) == (["a"], 8)

    async def test_a_step_whose_record_stays_locked_is_given_up_with_the_lease(self, world: World) -> None:
        watched = world.watched()
        watched.lock(Checkpoint, Renew)
        door = world.door(watched)

        async def handler() -> Any:
            return await door.current().step("a", world.returning("a"))

        began = world.clock.monotonic()
        error = await door.error(handler=handler)
        assert isinstance(error, StoreUnavailable)
        assert error.conflict
        assert began + 30 <= world.clock.monotonic() <= began + 90

    async def test_a_renewal_whose_reply_was_lost_does_not_cost_the_lease(self, world: World) -> None:
        watched, gate = world.watched(), world.gate()
        watched.lose(Renew, times=2)
        call = world.door(watched).start(handler=world.stopping(gate))
        await gate.reached()
        await world.pass_time(90)
        assert isinstance(await world.door().error(policy=REJECT), InProgress)
        gate.open()
        assert (await world.finish(call)).value == "value"

    async def test_a_resolution_whose_reply_was_lost_is_kept(self, world: World) -> None:
        await world.crash(policy=Policy(in_doubt="hold"))
        world.clock.advance(60)
        watched = world.watched()
        watched.lose(Resolve)
        with pytest.raises(StoreUnavailable):
            await world.door(watched).resolve(Happened("seen"))
        assert await world.door().value() == "seen"


class RefusalContract(Contract):
    """The store fails before it applies anything."""

    async def test_a_claim_is_tried_again(self, world: World) -> None:
        watched = world.watched()
        watched.refuse(Claim, times=2)
        assert await world.door(watched).value() == "value"

    async def test_a_store_that_is_down_refuses_and_nothing_runs(self, world: World) -> None:
        error = await world.door(_down(world)).error()
        assert isinstance(error, StoreUnavailable)
        assert (error.ran, world.ran) == (False, [])

    async def test_a_store_that_is_back_serves_again(self, world: World) -> None:
        watched = _down(world)
        door = world.door(watched)
        await door.error()
        watched.mend()
        assert await door.value() == "value"

    async def test_store_down_run_runs_unprotected(self, world: World) -> None:
        result = await world.door(_down(world)).run(policy=RUN)
        assert (result.value, result.replayed, result.protected, result.record) == ("value", False, False, None)

    async def test_store_down_run_passes_the_error_of_the_handler_on(self, world: World) -> None:
        assert isinstance(await world.door(_down(world)).error(handler=world.raising(OSError()), policy=RUN), OSError)

    async def test_store_down_run_is_protected_while_the_store_answers(self, world: World) -> None:
        door = world.door()
        assert (await door.run(policy=RUN)).protected
        assert (await door.run(policy=RUN)).replayed

    async def test_store_down_run_still_refuses_a_duplicate(self, world: World) -> None:
        await world.crash()
        assert isinstance(await world.door().error(policy=Policy(store_down="run", when_running="reject")), InProgress)

    async def test_a_completion_is_tried_again_until_the_store_is_back(self, world: World) -> None:
        watched = world.watched()
        watched.refuse(Complete, times=8)
        assert await world.door(watched).value() == "value"
        assert (await world.door().run()).replayed

    async def test_an_outcome_that_cannot_be_recorded_says_that_it_ran(self, world: World) -> None:
        watched = world.watched()
        watched.refuse(Complete)
        error = await world.door(watched).error()
        assert isinstance(error, StoreUnavailable)
        assert (error.ran, world.ran) == (True, ["value"])

    async def test_an_outcome_that_was_not_recorded_is_in_doubt(self, world: World) -> None:
        watched = world.watched()
        watched.refuse(Complete, Renew)
        await world.door(watched).error(policy=Policy(in_doubt="hold"))
        world.clock.advance(60)
        door = world.door()
        await door.sweep()
        assert (await door.read()).status is Status.IN_DOUBT
        await door.resolve(DidNotHappen())

    async def test_a_checkpoint_is_tried_again(self, world: World) -> None:
        watched = world.watched()
        watched.refuse(Checkpoint, times=2)
        door = world.door(watched)

        async def handler() -> Any:
            return await door.current().step("a", world.returning("a"))

        assert await door.value(handler=handler) == "a"
        assert world.ran == ["a"]

    async def test_a_failing_operation_does_not_fail_its_neighbours(self, world: World) -> None:
        watched = world.watched()
        watched.refuse(Claim, times=1)
        hold = watched.hold(Claim)
        door = world.door(watched)
        calls = [door.start("first")]
        await hold.reached()
        calls += [door.start(f"k{number}", policy=Policy(wait_for=timedelta(minutes=1))) for number in range(5)]
        hold.release()
        await world.ended(*calls)
        assert [call.value for call in calls] == ["value"] * 6


def _down(world: World) -> WatchedStore:
    """A store that answers nothing."""
    watched = world.watched()
    watched.refuse(*EVERYTHING)
    return watched
