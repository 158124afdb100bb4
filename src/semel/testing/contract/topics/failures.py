"""Failures and attempts: what is final, what may be tried again, what is in doubt, and when it is enough."""

from __future__ import annotations

from datetime import timedelta

import pytest

from semel.core.policy import Policy
from semel.core.record import Failure, Status
from semel.errors import FailedBefore
from semel.testing.contract.door import Door, Handler
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
        assert await world.door().error(handler=world.raising(error), policy=FINAL) is error

    async def test_a_final_failure_is_replayed_with_type_and_message(self, world: World) -> None:
        await world.door().error(handler=world.raising(Declined("no funds")), policy=FINAL)
        replay = await world.door().error(policy=FINAL)
        assert isinstance(replay, FailedBefore)
        assert (replay.error_type, replay.error_message) == (f"{__name__}.Declined", "no funds")
        assert world.ran == ["Declined"]

    async def test_a_final_failure_stays_final_for_a_caller_with_another_policy(self, world: World) -> None:
        await world.door().error(handler=world.raising(Declined()), policy=FINAL)
        assert isinstance(await world.door().error(policy=RETRY), FailedBefore)
        assert world.ran == ["Declined"]

    async def test_the_record_of_a_final_failure_says_so(self, world: World) -> None:
        door = world.door()
        await door.error(handler=world.raising(Declined("no funds")), policy=FINAL)
        record = await door.read()
        assert (record.status, record.retryable) == (Status.FAILED, False)
        assert record.error == Failure(f"{__name__}.Declined", "no funds")

    async def test_a_waiter_gets_a_final_failure(self, world: World) -> None:
        gate = world.gate()
        owner = world.door().start(handler=world.stopping(gate, error=Declined("no")), policy=FINAL)
        await gate.reached()
        other = world.door()
        waiter = other.start(policy=FINAL)
        await world.waiting((other, 1))
        gate.open()
        await world.ended(owner, waiter)
        assert isinstance(waiter.error, FailedBefore)

    async def test_a_retryable_failure_may_be_claimed_at_once(self, world: World) -> None:
        door = world.door()
        await door.error(handler=world.raising(ConnectionError()), policy=RETRY)
        assert await door.value(policy=RETRY) == "value"
        assert world.clock.monotonic() == 0, f"the caller waited for {world.clock.monotonic()} s"

    async def test_a_retryable_failure_keeps_its_row(self, world: World) -> None:
        door = world.door()
        await door.error(handler=world.raising(ConnectionError("down")), policy=RETRY)
        record = await door.read()
        assert (record.status, record.retryable, record.attempts) == (Status.FAILED, True, 1)
        assert record.error == Failure("builtins.ConnectionError", "down")

    async def test_attempts_are_counted_over_retryable_failures(self, world: World) -> None:
        door = world.door()
        for _ in range(3):
            await door.error(handler=world.raising(ConnectionError()), policy=RETRY)
        record = (await world.door().run(policy=RETRY)).record
        assert record is not None
        assert (record.attempts, record.fence) == (4, 4)

    async def test_a_retry_knows_its_number_and_is_not_in_doubt(self, world: World) -> None:
        door = world.door()
        await door.error(handler=world.raising(ConnectionError()), policy=RETRY)
        assert await door.value(handler=_told(door), policy=RETRY) == (2, False)

    async def test_a_first_attempt_has_number_one_and_is_not_in_doubt(self, world: World) -> None:
        door = world.door()
        assert await door.value(handler=_told(door)) == (1, False)

    async def test_any_other_error_reaches_its_caller_as_itself(self, world: World) -> None:
        error = OSError("cut off")
        assert await world.door().error(handler=world.raising(error)) is error

    async def test_any_other_error_leaves_the_record_in_doubt(self, world: World) -> None:
        door = world.door()
        await door.error(handler=world.raising(OSError("cut off")))
        record = await door.read()
        assert (record.status, record.attempts, record.completed_us) == (Status.IN_DOUBT, 1, None)
        assert record.error == Failure("builtins.OSError", "cut off")

    async def test_a_doubt_is_rerun_and_the_handler_is_told(self, world: World) -> None:
        await world.door().error(handler=world.raising(OSError()))
        door = world.door()
        assert await door.value(handler=_told(door)) == (2, True)

    async def test_a_doubt_stays_through_a_retryable_failure(self, world: World) -> None:
        door = world.door()
        await door.error(handler=world.raising(OSError()), policy=RETRY)
        await door.error(handler=world.raising(ConnectionError()), policy=RETRY)
        assert await door.value(handler=_told(door), policy=RETRY) == (3, True)

    async def test_a_retryable_failure_does_not_settle_a_doubt(self, world: World) -> None:
        door = world.door()
        policy = Policy(retry_errors=(ConnectionError,), keep_for=timedelta(hours=1))
        await door.error(handler=world.raising(OSError()), policy=policy)
        await door.error(handler=world.raising(ConnectionError()), policy=policy)
        world.clock.advance(24 * 3600)
        assert (await door.sweep()).deleted == 0
        assert (await door.read()).status is Status.IN_DOUBT

    async def test_a_success_ends_the_doubt(self, world: World) -> None:
        door = world.door()
        await door.error(handler=world.raising(OSError()))
        await door.run()
        record = await door.read()
        assert (record.status, record.error, (await door.run()).replayed) == (Status.COMPLETED, None, True)

    @only_sync
    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
    async def test_an_interrupted_handler_is_in_doubt(self, world: World, interrupt: type[BaseException]) -> None:
        door = world.door()
        assert isinstance(await door.error(handler=world.raising(interrupt())), interrupt)
        assert (await door.read()).status is Status.IN_DOUBT

    @only_sync
    async def test_an_interrupted_handler_is_rerun_and_told(self, world: World) -> None:
        door = world.door()
        await door.error(handler=world.raising(KeyboardInterrupt()))
        assert await door.value(handler=_told(door)) == (2, True)


class AttemptContract(Contract):
    """`max_attempts` ends in a final failure, however the attempts ended."""

    async def test_the_last_retryable_failure_is_final(self, world: World) -> None:
        door = world.door()
        policy = Policy(retry_errors=(ConnectionError,), max_attempts=2)
        errors = [await door.error(handler=world.raising(ConnectionError("down")), policy=policy) for _ in range(3)]
        assert [type(error) for error in errors] == [ConnectionError, ConnectionError, FailedBefore]
        assert world.ran == ["ConnectionError"] * 2

    async def test_the_final_failure_keeps_the_last_error(self, world: World) -> None:
        door = world.door()
        policy = Policy(retry_errors=(ConnectionError,), max_attempts=1)
        await door.error(handler=world.raising(ConnectionError("down")), policy=policy)
        replay = await door.error(policy=policy)
        assert isinstance(replay, FailedBefore)
        assert replay.error_message == "down"

    async def test_the_last_error_of_any_kind_is_final_under_rerun(self, world: World) -> None:
        door = world.door()
        policy = Policy(max_attempts=2)
        for _ in range(2):
            await door.error(handler=world.raising(OSError()), policy=policy)
        assert isinstance(await door.error(policy=policy), FailedBefore)
        assert world.ran == ["OSError"] * 2

    async def test_the_last_error_stays_in_doubt_under_hold(self, world: World) -> None:
        door = world.door()
        await door.error(handler=world.raising(OSError()), policy=Policy(max_attempts=1, in_doubt="hold"))
        assert (await door.read()).status is Status.IN_DOUBT

    async def test_crashes_count_as_attempts(self, world: World) -> None:
        policy = Policy(max_attempts=2)
        for _ in range(2):
            await world.crash(policy=policy)
            world.clock.advance(60)
        assert isinstance(await world.door().error(policy=policy), FailedBefore)
        assert world.ran == []

    async def test_a_failure_by_crashes_is_recorded_with_the_attempts_there_were(self, world: World) -> None:
        policy = Policy(max_attempts=2)
        for _ in range(2):
            await world.crash(policy=policy)
            world.clock.advance(60)
        door = world.door()
        await door.error(policy=policy)
        record = await door.read()
        assert (record.status, record.retryable, record.attempts) == (Status.FAILED, False, 2)

    async def test_an_attempt_within_the_limit_runs(self, world: World) -> None:
        policy = Policy(max_attempts=2)
        await world.crash(policy=policy)
        world.clock.advance(60)
        assert await world.door().value(policy=policy) == "value"


def _told(door: Door) -> Handler:
    """A handler that returns what it is told about earlier attempts."""

    def handler() -> tuple[int, bool]:
        attempt = door.current()
        return attempt.number, attempt.in_doubt

    return handler
