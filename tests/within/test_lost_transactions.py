"""The transaction ends under the handler, or cannot go on: noticed, never retried. within.md points 3 and 5."""

import sqlite3

import pytest

from semel import Policy
from semel.errors import InDoubt, NotInTransaction, TransactionAborted
from tests.within.world import World

pytestmark = pytest.mark.anyio
HOLD = Policy(in_doubt="hold")


async def meddle(world: World, *statements: str, policy: Policy | None = None) -> sqlite3.Connection:
    """A handler that writes a row and then does what it should not."""
    connection = world.connect(isolation_level=None)
    connection.execute("BEGIN")

    async def handler() -> str:
        connection.execute("INSERT INTO effect VALUES ('row')")
        for statement in statements:
            connection.execute(statement)
        return "done"

    with pytest.raises(NotInTransaction, match="not open any more"):
        await world.call(connection, "o-1", handler, policy=policy)
    return connection


async def test_commit_inside_the_handler_is_caught(world: World) -> None:
    await meddle(world, "COMMIT")
    assert world.rows() == ["row"]
    assert world.statuses() == ["running"]  # with a lease that is over: in doubt, as the next tests show


async def test_commit_and_begin_inside_the_handler_is_caught(world: World) -> None:
    connection = await meddle(world, "COMMIT", "BEGIN")
    assert world.rows() == ["row"]
    connection.rollback()


async def test_rollback_inside_the_handler_is_caught(world: World) -> None:
    await meddle(world, "ROLLBACK")
    assert (world.rows(), world.statuses()) == ([], [])


async def test_rollback_and_begin_inside_the_handler_is_caught(world: World) -> None:
    connection = await meddle(world, "ROLLBACK", "BEGIN", "INSERT INTO effect VALUES ('later')")
    connection.rollback()
    assert (world.rows(), world.statuses()) == ([], [])


async def test_what_a_commit_inside_left_is_in_doubt_and_is_rerun(world: World) -> None:
    connection = await meddle(world, "COMMIT")

    async def handler() -> bool:
        doubt: bool = world.semel.current().in_doubt
        return doubt

    connection.execute("BEGIN")
    assert (await world.call(connection, "o-1", handler)).value is True


async def test_what_a_commit_inside_left_is_held_where_the_policy_says_so(world: World) -> None:
    connection = await meddle(world, "COMMIT", policy=HOLD)
    connection.execute("BEGIN")
    with pytest.raises(InDoubt):
        await world.call(connection, "o-1", world.effect(connection), policy=HOLD)


async def test_a_commit_by_a_default_connection_is_caught_too(world: World) -> None:
    connection = world.connect()

    async def handler() -> str:
        connection.execute("INSERT INTO effect VALUES ('row')")
        connection.commit()
        connection.execute("INSERT INTO effect VALUES ('begun again')")
        return "done"

    with pytest.raises(NotInTransaction):
        await world.call(connection, "o-1", handler)
    connection.rollback()
    assert world.rows() == ["row"]


async def test_savepoints_of_the_handler_are_no_end_of_the_transaction(world: World) -> None:
    connection = world.connect(isolation_level=None)
    connection.execute("BEGIN")

    async def handler() -> str:
        for name in ("kept", "dropped"):
            connection.execute("SAVEPOINT mine")
            connection.execute("INSERT INTO effect VALUES (?)", [name])
            if name == "dropped":
                connection.execute("ROLLBACK TO mine")
            connection.execute("RELEASE mine")
        return "done"

    assert (await world.call(connection, "o-1", handler)).value == "done"
    connection.commit()
    assert (world.rows(), world.statuses()) == (["kept"], ["completed"])


async def test_a_handler_that_commits_and_raises_gets_its_own_error(world: World) -> None:
    connection = world.connect(isolation_level=None)
    connection.execute("BEGIN")

    async def handler() -> str:
        connection.execute("COMMIT")
        message = "its own"
        raise ValueError(message)

    with pytest.raises(ValueError, match="its own"):
        await world.call(connection, "o-1", handler)


async def stale(world: World) -> sqlite3.Connection:
    """A transaction that has read, and somebody else has written since."""
    connection = world.connect()
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM effect").fetchone()
    other = world.connect()
    other.execute("INSERT INTO effect VALUES ('other')")
    other.commit()
    return connection


async def test_a_stale_snapshot_is_transaction_aborted(world: World) -> None:
    connection = await stale(world)
    with pytest.raises(TransactionAborted, match="all of it again"):
        await world.call(connection, "o-1", world.effect(connection))
    assert world.runs == []


async def test_nothing_is_retried_inside(world: World) -> None:
    connection = await stale(world)
    sent: list[str] = []
    connection.set_trace_callback(sent.append)
    with pytest.raises(TransactionAborted):
        await world.call(connection, "o-1", world.effect(connection))
    assert len([text for text in sent if text.startswith("INSERT")]) <= 1


async def test_the_whole_transaction_can_be_run_again(world: World) -> None:
    """The loop that the documentation shows."""
    connection = await stale(world)
    for _ in range(2):
        try:
            await world.call(connection, "o-1", world.effect(connection))
            connection.commit()
            break
        except TransactionAborted:
            connection.rollback()
    assert (world.rows(), world.statuses()) == (["other", "charged"], ["completed"])


async def test_a_handler_whose_statement_ends_the_transaction_leaves_nothing(world: World) -> None:
    """SQLite rolls back by itself where ON CONFLICT ROLLBACK says so."""
    connection = world.connect()
    connection.execute("CREATE TEMP TABLE one (n INTEGER UNIQUE ON CONFLICT ROLLBACK)")
    connection.commit()

    async def handler() -> None:
        connection.execute("INSERT INTO effect VALUES ('row')")
        connection.execute("INSERT INTO one VALUES (1)")
        connection.execute("INSERT INTO one VALUES (1)")

    with pytest.raises(sqlite3.IntegrityError):
        await world.call(connection, "o-1", handler)
    assert not connection.in_transaction
    assert (world.rows(), world.statuses()) == ([], [])
