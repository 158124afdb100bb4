"""A handler that raises inside `within`: its row is settled on the same transaction. within.md point 4."""

import sqlite3

import pytest

from semel import Policy
from semel.errors import FailedBefore, InDoubt
from tests.within.world import World

pytestmark = pytest.mark.anyio


class Refused(Exception):
    """The answer is no."""


class Down(Exception):
    """Nothing happened."""


class Odd(Exception):
    """Nobody thought of it."""


POLICY = Policy(final_errors=(Refused,), retry_errors=(Down,))


async def fail(world: World, connection: sqlite3.Connection, error: Exception, policy: Policy = POLICY) -> None:
    with pytest.raises(type(error)):
        await world.call(connection, "o-1", world.effect(connection, "half", error), policy=policy)


async def again(world: World, connection: sqlite3.Connection, policy: Policy = POLICY) -> object:
    return (await world.call(connection, "o-1", world.effect(connection, "whole"), policy=policy)).value


@pytest.mark.parametrize("error", [Refused("no"), Down("later"), Odd("?")])
async def test_a_caller_who_rolls_back_keeps_nothing(world: World, error: Exception) -> None:
    connection = world.connect()
    await fail(world, connection, error)
    assert connection.in_transaction
    connection.rollback()
    assert (world.rows(), world.statuses()) == ([], [])
    assert await again(world, connection) == "whole"


@pytest.mark.parametrize(
    ("error", "status"), [(Refused("no"), "failed"), (Down("later"), "failed"), (Odd("?"), "in_doubt")]
)
async def test_a_caller_who_swallows_the_error_never_commits_a_running_record(
    world: World, error: Exception, status: str
) -> None:
    connection = world.connect()
    await fail(world, connection, error)
    connection.commit()
    assert (world.rows(), world.statuses()) == (["half"], [status])


async def test_a_final_failure_lasts_if_the_caller_commits(world: World) -> None:
    connection = world.connect()
    await fail(world, connection, Refused("no"))
    connection.commit()
    with pytest.raises(FailedBefore) as replayed:
        await again(world, connection)
    assert replayed.value.error_message == "no"
    assert world.runs == ["half"]


async def test_a_retryable_failure_may_be_claimed_again_at_once(world: World) -> None:
    connection = world.connect()
    await fail(world, connection, Down("later"))
    assert await again(world, connection) == "whole"
    connection.commit()
    assert world.statuses() == ["completed"]


async def test_any_other_error_that_was_committed_is_in_doubt_and_rerun_says_so(world: World) -> None:
    connection = world.connect()
    await fail(world, connection, Odd("?"))
    connection.commit()

    async def handler() -> str:
        attempt = world.semel.current()
        return f"{attempt.number} {attempt.in_doubt}"

    assert (await world.call(connection, "o-1", handler, policy=POLICY)).value == "2 True"


async def test_any_other_error_that_was_committed_is_held_where_the_policy_says_so(world: World) -> None:
    hold = POLICY.replace(in_doubt="hold")
    connection = world.connect()
    await fail(world, connection, Odd("?"), hold)
    connection.commit()
    with pytest.raises(InDoubt):
        await again(world, connection, hold)


async def test_an_error_of_the_database_itself_reaches_the_caller_as_it_is(world: World) -> None:
    connection = world.connect()

    async def handler() -> None:
        connection.execute("INSERT INTO nowhere VALUES (1)")

    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        await world.call(connection, "o-1", handler)
    assert connection.in_transaction
    connection.commit()
    assert world.statuses() == ["in_doubt"]


async def test_a_caller_can_undo_the_effects_and_keep_the_failure(world: World) -> None:
    """The order that a savepoint of the caller around its own rows allows."""
    connection = world.connect()

    async def handler() -> None:
        connection.execute("SAVEPOINT rows")
        connection.execute("INSERT INTO effect VALUES ('half')")
        connection.execute("ROLLBACK TO rows")
        connection.execute("RELEASE rows")
        message = "no"
        raise Refused(message)

    with pytest.raises(Refused):
        await world.call(connection, "o-1", handler, policy=POLICY)
    connection.commit()
    assert (world.rows(), world.statuses()) == ([], ["failed"])
