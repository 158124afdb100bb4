"""A handler that raises inside `within`: its row is settled on the same transaction. within.md point 4."""

import asyncio

import pytest

from semel import Policy
from semel.errors import FailedBefore, InDoubt
from tests.within.servers.callers import Caller
from tests.within.servers.world import OnServer, on_postgresql

pytestmark = pytest.mark.anyio


class Refused(Exception):
    """The answer is no."""


class Down(Exception):
    """Nothing happened."""


class Odd(Exception):
    """Nobody thought of it."""


POLICY = Policy(final_errors=(Refused,), retry_errors=(Down,))


async def fail(world: OnServer, caller: Caller, error: BaseException, policy: Policy = POLICY) -> None:
    with pytest.raises(type(error)):
        await world.call(caller.thing, "o-1", world.writes(caller, "half", error), policy=policy)


@pytest.mark.parametrize("error", [Refused("no"), Down("later"), Odd("?")], ids=["final", "retry", "other"])
async def test_a_caller_who_rolls_back_keeps_nothing(world: OnServer, error: Exception) -> None:
    caller = await world.begun()
    await fail(world, caller, error)
    await caller.rollback()
    assert (world.rows(), world.statuses()) == ([], [])


@pytest.mark.parametrize(
    ("error", "status"),
    [(Refused("no"), "failed"), (Down("later"), "failed"), (Odd("?"), "in_doubt")],
    ids=["final", "retry", "other"],
)
async def test_a_caller_who_swallows_the_error_never_commits_a_running_record(
    world: OnServer, error: Exception, status: str
) -> None:
    caller = await world.begun()
    await fail(world, caller, error)
    await caller.commit()
    assert (world.rows(), world.statuses()) == (["half"], [status])


async def test_a_final_failure_lasts_if_the_caller_commits(world: OnServer) -> None:
    caller = await world.begun()
    await fail(world, caller, Refused("no"))
    await caller.commit()
    await caller.begin()
    with pytest.raises(FailedBefore) as replayed:
        await world.call(caller.thing, "o-1", world.writes(caller, "whole"), policy=POLICY)
    assert replayed.value.error_message == "no"
    assert world.runs == ["half"]


async def test_a_retryable_failure_may_be_claimed_again_at_once(world: OnServer) -> None:
    caller = await world.begun()
    await fail(world, caller, Down("later"))
    await world.call(caller.thing, "o-1", world.writes(caller, "whole"), policy=POLICY)
    await caller.commit()
    assert world.statuses() == ["completed"]


async def test_any_other_error_that_was_committed_is_held_where_the_policy_says_so(world: OnServer) -> None:
    hold = POLICY.replace(in_doubt="hold")
    caller = await world.begun()
    await fail(world, caller, Odd("?"), hold)
    await caller.commit()
    await caller.begin()
    with pytest.raises(InDoubt):
        await world.call(caller.thing, "o-1", world.writes(caller, "whole"), policy=hold)


async def test_an_error_that_broke_the_transaction_reaches_the_caller_as_it_is(world: OnServer) -> None:
    caller = await world.begun()

    async def handler() -> None:
        await caller.sql("INSERT INTO effect (name) VALUES ('half')")
        await caller.sql("INSERT INTO nowhere VALUES (1)")

    with pytest.raises(Exception, match="nowhere"):
        await world.call(caller.thing, "o-1", handler)
    await caller.rollback()
    assert (world.rows(), world.statuses()) == ([], [])


async def test_an_error_that_broke_only_a_savepoint_is_settled(world: OnServer) -> None:
    caller = await world.begun()

    async def handler() -> None:
        await caller.sql("SAVEPOINT mine")
        try:
            await caller.sql("INSERT INTO nowhere VALUES (1)")
        finally:
            await caller.sql("ROLLBACK TO mine")

    with pytest.raises(Exception, match="nowhere"):
        await world.call(caller.thing, "o-1", handler)
    await caller.commit()
    assert world.statuses() == ["in_doubt"]


@on_postgresql
async def test_a_handler_that_swallows_what_broke_the_transaction_is_told(world: OnServer) -> None:
    """Its value cannot be recorded, and nothing of the transaction can be kept."""
    from semel.errors import TransactionAborted

    caller = await world.begun()

    async def handler() -> str:
        with pytest.raises(Exception, match="nowhere"):
            await caller.sql("INSERT INTO nowhere VALUES (1)")
        return "done"

    with pytest.raises(TransactionAborted):
        await world.call(caller.thing, "o-1", handler)
    await caller.rollback()
    assert world.statuses() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError()], ids=["interrupted", "cancelled"])
async def test_an_interrupt_passes_through_and_leaves_no_running_record(world: OnServer, error: BaseException) -> None:
    caller = await world.begun()
    await fail(world, caller, error)
    await caller.commit()
    assert (world.rows(), world.statuses()) == (["half"], ["in_doubt"])
