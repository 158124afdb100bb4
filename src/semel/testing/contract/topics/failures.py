"""Failures of handlers (final, retryable, in doubt, how many attempts) and of the store (errors, lost replies)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from semel.core.operations import (
    Checkpoint,
    Claim,
    Complete,
    Counted,
    CountFailure,
    Fail,
    Granted,
    Read,
    Renew,
    Replay,
    Resolve,
    StateMismatch,
)
from semel.core.policy import Policy
from semel.core.record import DidNotHappen, Failure, Happened, Status, Step
from semel.errors import FailedBefore, InProgress, StoreUnavailable
from semel.testing.contract.api_client import ApiClient, Handler
from semel.testing.contract.instrumented_store import InstrumentedStore
from semel.testing.contract.suite import Contract, only_sync
from semel.testing.contract.world import World

FINAL = Policy(final_errors=(ValueError,))
RETRY = Policy(retry_errors=(ConnectionError,))


class Declined(ValueError):
    """A kind of `ValueError`."""


class FailureContract(Contract):
    """Each error means one of three things, and the policy says which."""

    async def test_the_first_caller_of_a_final_failure_gets_the_error_itself(self, world: World) -> None:
        error = Declined("no funds")
        assert await world.client().error(handler=world.raising(error), policy=FINAL) is error

    async def test_a_final_failure_is_replayed_with_type_and_message(self, world: World) -> None:
        await world.client().error(handler=world.raising(Declined("no funds")), policy=FINAL)
        replay = await world.client().error(policy=FINAL)
        assert isinstance(replay, FailedBefore)
        assert (replay.error_type, replay.error_message) == (f"{__name__}.Declined", "no funds")
        assert world.ran == ["Declined"]

    async def test_a_final_failure_stays_final_for_a_caller_with_another_policy(self, world: World) -> None:
        await world.client().error(handler=world.raising(Declined()), policy=FINAL)
        assert isinstance(await world.client().error(policy=RETRY), FailedBefore)
        assert world.ran == ["Declined"]

    async def test_the_record_of_a_final_failure_says_so(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(Declined("no funds")), policy=FINAL)
        record = await client.read()
        assert (record.status, record.retryable) == (Status.FAILED, False)
        assert record.error == Failure(f"{__name__}.Declined", "no funds")

    async def test_a_waiter_gets_a_final_failure(self, world: World) -> None:
        gate = world.gate()
        owner = world.client().start(handler=world.stopping(gate, error=Declined("no")), policy=FINAL)
        await gate.reached()
        other = world.client()
        waiter = other.start(policy=FINAL)
        await world.waiting((other, 1))
        gate.open()
        await world.ended(owner, waiter)
        assert isinstance(waiter.error, FailedBefore)

    async def test_a_retryable_failure_may_be_claimed_at_once(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(ConnectionError()), policy=RETRY)
        assert await client.value(policy=RETRY) == "value"
        assert world.clock.monotonic() == 0, f"the caller waited for {world.clock.monotonic()} s"

    async def test_a_retryable_failure_keeps_its_row(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(ConnectionError("down")), policy=RETRY)
        record = await client.read()
        assert (record.status, record.retryable, record.attempts) == (Status.FAILED, True, 1)
        assert record.error == Failure("builtins.ConnectionError", "down")

    async def test_attempts_are_counted_over_retryable_failures(self, world: World) -> None:
        client = world.client()
        for _ in range(3):
            await client.error(handler=world.raising(ConnectionError()), policy=RETRY)
        record = (await world.client().run(policy=RETRY)).record
        assert record is not None
        assert (record.attempts, record.fence) == (4, 4)

    async def test_a_retry_knows_its_number_and_is_not_in_doubt(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(ConnectionError()), policy=RETRY)
        assert await client.value(handler=_told(client), policy=RETRY) == (2, False)

    async def test_a_first_attempt_has_number_one_and_is_not_in_doubt(self, world: World) -> None:
        client = world.client()
        assert await client.value(handler=_told(client)) == (1, False)

    async def test_any_other_error_reaches_its_caller_as_itself(self, world: World) -> None:
        error = OSError("cut off")
        assert await world.client().error(handler=world.raising(error)) is error

    async def test_any_other_error_leaves_the_record_in_doubt(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(OSError("cut off")))
        record = await client.read()
        assert (record.status, record.attempts, record.completed_at) == (Status.IN_DOUBT, 1, None)
        assert record.error == Failure("builtins.OSError", "cut off")

    async def test_a_doubt_is_rerun_and_the_handler_is_told(self, world: World) -> None:
        await world.client().error(handler=world.raising(OSError()))
        client = world.client()
        assert await client.value(handler=_told(client)) == (2, True)

    async def test_a_doubt_stays_through_a_retryable_failure(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(OSError()), policy=RETRY)
        await client.error(handler=world.raising(ConnectionError()), policy=RETRY)
        assert await client.value(handler=_told(client), policy=RETRY) == (3, True)

    async def test_a_retryable_failure_does_not_settle_a_doubt(self, world: World) -> None:
        client = world.client()
        policy = Policy(retry_errors=(ConnectionError,), keep_for=timedelta(hours=1))
        await client.error(handler=world.raising(OSError()), policy=policy)
        await client.error(handler=world.raising(ConnectionError()), policy=policy)
        world.clock.advance(24 * 3600)
        assert (await client.sweep()).deleted == 0
        assert (await client.read()).status is Status.IN_DOUBT

    async def test_a_success_ends_the_doubt(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(OSError()))
        await client.run()
        record = await client.read()
        assert (record.status, record.error, (await client.run()).replayed) == (Status.COMPLETED, None, True)

    @only_sync
    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
    async def test_an_interrupted_handler_is_in_doubt(self, world: World, interrupt: type[BaseException]) -> None:
        client = world.client()
        assert isinstance(await client.error(handler=world.raising(interrupt())), interrupt)
        assert (await client.read()).status is Status.IN_DOUBT

    @only_sync
    async def test_an_interrupted_handler_is_rerun_and_told(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(KeyboardInterrupt()))
        assert await client.value(handler=_told(client)) == (2, True)


class AttemptContract(Contract):
    """`max_attempts` ends in a final failure, however the attempts ended."""

    async def test_the_last_retryable_failure_is_final(self, world: World) -> None:
        client = world.client()
        policy = Policy(retry_errors=(ConnectionError,), max_attempts=2)
        errors = [await client.error(handler=world.raising(ConnectionError("down")), policy=policy) for _ in range(3)]
        assert [type(error) for error in errors] == [ConnectionError, ConnectionError, FailedBefore]
        assert world.ran == ["ConnectionError"] * 2

    async def test_the_final_failure_keeps_the_last_error(self, world: World) -> None:
        client = world.client()
        policy = Policy(retry_errors=(ConnectionError,), max_attempts=1)
        await client.error(handler=world.raising(ConnectionError("down")), policy=policy)
        replay = await client.error(policy=policy)
        assert isinstance(replay, FailedBefore)
        assert replay.error_message == "down"

    async def test_the_last_error_of_any_kind_is_final_under_rerun(self, world: World) -> None:
        client = world.client()
        policy = Policy(max_attempts=2)
        for _ in range(2):
            await client.error(handler=world.raising(OSError()), policy=policy)
        assert isinstance(await client.error(policy=policy), FailedBefore)
        assert world.ran == ["OSError"] * 2

    async def test_the_last_error_stays_in_doubt_under_hold(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(OSError()), policy=Policy(max_attempts=1, in_doubt="hold"))
        assert (await client.read()).status is Status.IN_DOUBT

    async def test_crashes_count_as_attempts(self, world: World) -> None:
        policy = Policy(max_attempts=2)
        for _ in range(2):
            await world.crash(policy=policy)
            world.clock.advance(60)
        assert isinstance(await world.client().error(policy=policy), FailedBefore)
        assert world.ran == []

    async def test_a_failure_by_crashes_is_recorded_with_the_attempts_there_were(self, world: World) -> None:
        policy = Policy(max_attempts=2)
        for _ in range(2):
            await world.crash(policy=policy)
            world.clock.advance(60)
        client = world.client()
        await client.error(policy=policy)
        record = await client.read()
        assert (record.status, record.retryable, record.attempts) == (Status.FAILED, False, 2)

    async def test_an_attempt_within_the_limit_runs(self, world: World) -> None:
        policy = Policy(max_attempts=2)
        await world.crash(policy=policy)
        world.clock.advance(60)
        assert await world.client().value(policy=policy) == "value"


def _told(client: ApiClient) -> Handler:
    """A handler that returns what it is told about earlier attempts."""

    def handler() -> tuple[int, bool]:
        attempt = client.current()
        return attempt.number, attempt.in_doubt

    return handler


RUN = Policy(store_down="run")
REJECT = Policy(when_running="reject")
EVERYTHING = (Claim, Complete, Fail, Checkpoint, Read, Renew)


class LostReplyContract(Contract):
    """Applied, and the reply lost: no duplicate, no wedge."""

    @pytest.mark.parametrize("times", [1, 2])
    async def test_a_claim_whose_reply_was_lost_is_granted_when_sent_again(self, world: World, times: int) -> None:
        watched = world.watched()
        watched.lose(Claim, times=times)
        result = await world.client(watched).run()
        assert (result.value, result.replayed, world.ran) == ("value", False, ["value"])

    async def test_a_claim_sent_again_is_one_attempt(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Claim)
        client = world.client(watched)
        seen: list[tuple[int, bool, int]] = []

        def handler() -> None:
            attempt = client.current()
            seen.append((attempt.number, attempt.in_doubt, attempt.fence))

        await client.run(handler=handler)
        assert seen == [(1, False, 1)]

    async def test_a_take_over_whose_reply_was_lost_is_granted_when_sent_again(self, world: World) -> None:
        await world.crash()
        world.clock.advance(60)
        watched = world.watched()
        watched.lose(Claim)
        assert await world.client(watched).value() == "value"
        record = await world.stored()
        assert record is not None
        assert (record.attempts, record.fence) == (2, 2)

    async def test_a_lost_claim_does_not_wedge_the_key(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Claim, times=None)
        error = await world.client(watched).error()
        assert isinstance(error, StoreUnavailable)
        assert not error.ran
        world.clock.advance(30)
        assert await world.client().value(policy=REJECT) == "value"
        assert world.ran == ["value"]

    async def test_two_whose_replies_were_lost_do_not_both_run(self, world: World) -> None:
        stores = [world.watched(), world.watched()]
        for watched in stores:
            watched.lose(Claim, times=2)
        calls = [world.client(watched).start() for watched in stores]
        await world.ended(*calls)
        assert [call.value for call in calls] == ["value"] * 2
        assert world.ran == ["value"]

    @pytest.mark.parametrize("times", [1, 5])
    async def test_a_completion_whose_reply_was_lost_is_recorded_once(self, world: World, times: int) -> None:
        watched = world.watched()
        watched.lose(Complete, times=times)
        result = await world.client(watched).run()
        assert (result.value, result.replayed) == ("value", False)
        assert (await world.client().run()).replayed
        assert world.ran == ["value"]

    async def test_a_completion_whose_reply_was_lost_keeps_its_instant(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Complete)
        began = world.now()
        record = (await world.client(watched).run()).record
        assert record is not None
        assert record.completed_at == began

    async def test_a_final_failure_whose_reply_was_lost_is_recorded_once(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Fail)
        assert isinstance(
            await world.client(watched).error(handler=world.raising(ValueError("no")), policy=FINAL), ValueError
        )
        assert isinstance(await world.client().error(policy=FINAL), FailedBefore)

    async def test_a_retryable_failure_whose_reply_was_lost_counts_once(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Fail)
        await world.client(watched).error(handler=world.raising(ConnectionError()), policy=RETRY)
        record = await world.stored()
        assert record is not None
        assert (record.status, record.attempts) == (Status.FAILED, 1)

    async def test_a_doubt_whose_reply_was_lost_is_recorded_once(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Fail)
        assert isinstance(await world.client(watched).error(handler=world.raising(OSError())), OSError)
        record = await world.stored()
        assert record is not None
        assert (record.status, record.attempts) == (Status.IN_DOUBT, 1)

    async def test_a_checkpoint_whose_reply_was_lost_is_recorded_once(self, world: World) -> None:
        watched = world.watched()
        watched.lose(Checkpoint)
        client = world.client(watched)

        async def handler() -> Any:
            return [await client.current().step(name, world.returning(name)) for name in ("a", "b")]

        assert await client.value(handler=handler) == ["a", "b"]
        assert [step.name for step in (await client.read()).steps] == ["a", "b"]
        assert world.ran == ["a", "b"]

    async def test_a_step_whose_record_is_locked_for_a_while_is_recorded(self, world: World) -> None:
        watched = world.watched()
        watched.lock(Checkpoint, times=7)
        client = world.client(watched)

        async def handler() -> Any:
            return await client.current().step("a", world.returning("a"))

        assert await client.value(handler=handler) == "a"
        assert [step.name for step in (await client.read()).steps] == ["a"]
        assert (world.ran, watched.count(Checkpoint)) == (["a"], 8)

    async def test_a_step_whose_record_stays_locked_is_given_up_with_the_lease(self, world: World) -> None:
        watched = world.watched()
        watched.lock(Checkpoint, Renew)
        client = world.client(watched)

        async def handler() -> Any:
            return await client.current().step("a", world.returning("a"))

        began = world.clock.monotonic()
        error = await client.error(handler=handler)
        assert isinstance(error, StoreUnavailable)
        assert error.conflict
        assert began + 30 <= world.clock.monotonic() <= began + 90

    async def test_a_renewal_whose_reply_was_lost_does_not_cost_the_lease(self, world: World) -> None:
        watched, gate = world.watched(), world.gate()
        watched.lose(Renew, times=2)
        call = world.client(watched).start(handler=world.stopping(gate))
        await gate.reached()
        await world.pass_time(90)
        assert isinstance(await world.client().error(policy=REJECT), InProgress)
        gate.open()
        assert (await world.finish(call)).value == "value"

    async def test_a_resolution_whose_reply_was_lost_is_kept(self, world: World) -> None:
        await world.crash(policy=Policy(in_doubt="hold"))
        world.clock.advance(60)
        watched = world.watched()
        watched.lose(Resolve)
        with pytest.raises(StoreUnavailable):
            await world.client(watched).resolve(Happened("seen"))
        assert await world.client().value() == "seen"


class RefusalContract(Contract):
    """The store fails before it applies anything."""

    async def test_a_claim_is_tried_again(self, world: World) -> None:
        watched = world.watched()
        watched.refuse(Claim, times=2)
        assert await world.client(watched).value() == "value"

    async def test_a_store_that_is_down_refuses_and_nothing_runs(self, world: World) -> None:
        error = await world.client(_down(world)).error()
        assert isinstance(error, StoreUnavailable)
        assert (error.ran, world.ran) == (False, [])

    async def test_a_store_that_is_back_serves_again(self, world: World) -> None:
        watched = _down(world)
        client = world.client(watched)
        await client.error()
        watched.mend()
        assert await client.value() == "value"

    async def test_store_down_run_runs_unprotected(self, world: World) -> None:
        result = await world.client(_down(world)).run(policy=RUN)
        assert (result.value, result.replayed, result.protected, result.record) == ("value", False, False, None)

    async def test_store_down_run_passes_the_error_of_the_handler_on(self, world: World) -> None:
        assert isinstance(await world.client(_down(world)).error(handler=world.raising(OSError()), policy=RUN), OSError)

    async def test_store_down_run_is_protected_while_the_store_answers(self, world: World) -> None:
        client = world.client()
        assert (await client.run(policy=RUN)).protected
        assert (await client.run(policy=RUN)).replayed

    async def test_store_down_run_still_refuses_a_duplicate(self, world: World) -> None:
        await world.crash()
        assert isinstance(
            await world.client().error(policy=Policy(store_down="run", when_running="reject")), InProgress
        )

    async def test_a_completion_is_tried_again_until_the_store_is_back(self, world: World) -> None:
        watched = world.watched()
        watched.refuse(Complete, times=8)
        assert await world.client(watched).value() == "value"
        assert (await world.client().run()).replayed

    async def test_an_outcome_that_cannot_be_recorded_says_that_it_ran(self, world: World) -> None:
        watched = world.watched()
        watched.refuse(Complete)
        error = await world.client(watched).error()
        assert isinstance(error, StoreUnavailable)
        assert (error.ran, world.ran) == (True, ["value"])

    async def test_an_outcome_that_was_not_recorded_is_in_doubt(self, world: World) -> None:
        watched = world.watched()
        watched.refuse(Complete, Renew)
        await world.client(watched).error(policy=Policy(in_doubt="hold"))
        world.clock.advance(60)
        client = world.client()
        await client.sweep()
        assert (await client.read()).status is Status.IN_DOUBT
        await client.resolve(DidNotHappen())

    async def test_a_checkpoint_is_tried_again(self, world: World) -> None:
        watched = world.watched()
        watched.refuse(Checkpoint, times=2)
        client = world.client(watched)

        async def handler() -> Any:
            return await client.current().step("a", world.returning("a"))

        assert await client.value(handler=handler) == "a"
        assert world.ran == ["a"]

    async def test_a_failing_operation_does_not_fail_its_neighbours(self, world: World) -> None:
        watched = world.watched()
        watched.refuse(Claim, times=1)
        hold = watched.hold(Claim)
        client = world.client(watched)
        calls = [client.start("first")]
        await hold.reached()
        calls += [client.start(f"k{number}", policy=Policy(wait_for=timedelta(minutes=1))) for number in range(5)]
        hold.release()
        await world.ended(*calls)
        assert [call.value for call in calls] == ["value"] * 6


def _down(world: World) -> InstrumentedStore:
    """A store that answers nothing."""
    watched = world.watched()
    watched.refuse(*EVERYTHING)
    return watched


_DECLINED = Failure("shop.CardDeclined", "no")
_MOST = 3


def _counting(world: World, nonce: bytes = b"1" * 16, *, asked: Any = None, most: int | None = _MOST) -> CountFailure:
    claim = world.claim(asked=asked)
    return CountFailure(claim.key, claim.fingerprint, nonce, _DECLINED, claim.terms, claim.about, most)


class CountingContract(Contract):
    """An attempt that was rolled back with its caller's transaction left nothing behind, and is counted afterwards."""

    async def test_the_first_one_leaves_a_failure_that_may_be_tried_again(self, world: World) -> None:
        (answer,) = await world.perform(_counting(world))
        assert isinstance(answer, Counted)
        record = answer.record
        assert (record.status, record.retryable, record.attempts, record.error) == (Status.FAILED, True, 1, _DECLINED)
        assert await world.stored() == record

    async def test_a_counted_failure_is_claimed_as_the_next_attempt(self, world: World) -> None:
        await world.perform(_counting(world))
        (answer,) = await world.perform(world.claim())
        assert isinstance(answer, Granted)
        assert (answer.record.attempts, answer.in_doubt) == (2, False)

    async def test_each_one_adds_to_the_count(self, world: World) -> None:
        for number in range(1, _MOST):
            (answer,) = await world.perform(_counting(world, bytes([number]) * 16))
            assert isinstance(answer, Counted)
            assert (answer.record.attempts, answer.record.retryable) == (number, True)

    async def test_the_last_one_is_final(self, world: World) -> None:
        for number in range(1, _MOST):
            await world.perform(_counting(world, bytes([number]) * 16))
        (answer,) = await world.perform(_counting(world, b"l" * 16))
        assert isinstance(answer, Counted)
        assert (answer.record.attempts, answer.record.retryable) == (_MOST, False)
        (replay,) = await world.perform(world.claim())
        assert isinstance(replay, Replay)

    async def test_the_only_one_that_is_allowed_is_final(self, world: World) -> None:
        (answer,) = await world.perform(_counting(world, most=1))
        assert isinstance(answer, Counted)
        assert not answer.record.retryable

    async def test_without_a_limit_none_is_final(self, world: World) -> None:
        for number in range(1, 6):
            await world.perform(_counting(world, bytes([number]) * 16, most=None))
        record = await world.stored()
        assert record is not None
        assert (record.attempts, record.retryable) == (5, True)

    async def test_one_that_is_sent_again_counts_once(self, world: World) -> None:
        (first,) = await world.perform(_counting(world))
        world.clock.advance(1)
        (second,) = await world.perform(_counting(world))
        assert isinstance(first, Counted)
        assert second == first

    async def test_it_counts_on_top_of_attempts_that_failed_by_themselves(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Fail(lease, "retry", _DECLINED, doubtful=False))
        (answer,) = await world.perform(_counting(world))
        assert isinstance(answer, Counted)
        assert (answer.record.attempts, answer.record.fence) == (2, lease.fence + 1)

    @pytest.mark.parametrize("state", ["running", "lapsed", "final", "in doubt", "completed"])
    async def test_a_failure_is_counted_in_no_other_state(self, world: World, state: str) -> None:
        lease = await world.crash()
        ends: dict[str, Fail | Complete] = {
            "final": Fail(lease, "final", _DECLINED, doubtful=False),
            "in doubt": Fail(lease, "doubt", _DECLINED, doubtful=True),
            "completed": Complete(lease, b"done"),
        }
        if state in ends:
            await world.perform(ends[state])
        if state == "lapsed":
            world.clock.advance(60)
        before = await world.stored()
        (answer,) = await world.perform(_counting(world))
        assert answer == StateMismatch(before)
        assert await world.stored() == before

    @pytest.mark.parametrize("state", ["running", "in doubt", "completed"])
    async def test_an_attempt_that_was_not_rolled_back_is_not_counted(self, world: World, state: str) -> None:
        lease = await world.crash()
        ends: dict[str, Fail | Complete] = {
            "in doubt": Fail(lease, "doubt", _DECLINED, doubtful=True),
            "completed": Complete(lease, b"done"),
        }
        if state in ends:
            await world.perform(ends[state])
        before = await world.stored()
        (answer,) = await world.perform(_counting(world, lease.nonce))
        assert answer == StateMismatch(before)

    async def test_an_attempt_whose_failure_was_recorded_after_all_counts_once(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Fail(lease, "retry", _DECLINED, doubtful=False))
        before = await world.stored()
        assert before is not None
        assert await world.perform(_counting(world, lease.nonce)) == [Counted(before)]

    async def test_a_failure_of_another_request_is_left_alone(self, world: World) -> None:
        await world.perform(_counting(world))
        before = await world.stored()
        (answer,) = await world.perform(_counting(world, b"2" * 16, asked="something else"))
        assert answer == StateMismatch(before)

    async def test_an_expired_record_counts_as_none(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Checkpoint(lease, Step(0, "reserve", b"1")))
        await world.perform(Complete(lease, b"done"))
        world.clock.advance(timedelta(days=2).total_seconds())
        (answer,) = await world.perform(_counting(world))
        assert isinstance(answer, Counted)
        assert (answer.record.attempts, answer.record.steps, answer.record.outcome) == (1, (), None)
