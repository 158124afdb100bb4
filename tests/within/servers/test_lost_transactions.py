"""The transaction ends under the handler, or cannot go on: noticed, never retried. within.md points 3 and 5."""

import threading

import psycopg
import pymysql
import pytest

from semel import Policy
from semel.errors import InDoubt, NotInTransaction, TransactionAborted
from tests.within.servers.callers import Caller, mysql_address
from tests.within.servers.world import OnServer, on_mariadb, on_postgresql

pytestmark = pytest.mark.anyio
HOLD = Policy(in_doubt="hold")
ROW = "INSERT INTO effect (name) VALUES ('row')"


async def meddle(world: OnServer, *statements: str, policy: Policy | None = None) -> Caller:
    """A handler that writes a row and then does what it should not."""
    caller = await world.begun()

    async def handler() -> str:
        await caller.sql(ROW)
        for statement in statements:
            await caller.sql(statement)
        return "done"

    with pytest.raises(NotInTransaction, match="not open any more"):
        await world.call(caller.thing, "o-1", handler, policy=policy)
    return caller


async def test_commit_inside_the_handler_is_caught(world: OnServer) -> None:
    await meddle(world, "COMMIT")
    assert world.rows() == ["row"]
    assert world.statuses() == ["running"]  # with a lease that is over: in doubt, as the next tests show


async def test_commit_and_begin_inside_the_handler_is_caught(world: OnServer) -> None:
    await meddle(world, "COMMIT", "BEGIN", ROW)
    assert world.rows() == ["row"]


async def test_rollback_inside_the_handler_is_caught(world: OnServer) -> None:
    await meddle(world, "ROLLBACK")
    assert (world.rows(), world.statuses()) == ([], [])


async def test_rollback_and_begin_inside_the_handler_is_caught(world: OnServer) -> None:
    await meddle(world, "ROLLBACK", "BEGIN", ROW)
    assert (world.rows(), world.statuses()) == ([], [])


async def test_the_commit_of_the_library_itself_is_caught(world: OnServer) -> None:
    caller = await world.begun()

    async def handler() -> str:
        await caller.sql(ROW)
        await caller.commit()
        return "done"

    with pytest.raises(NotInTransaction, match="not open any more"):
        await world.call(caller.thing, "o-1", handler)
    assert world.rows() == ["row"]


async def test_the_rollback_of_the_library_itself_is_caught(world: OnServer) -> None:
    caller = await world.begun()

    async def handler() -> str:
        await caller.sql(ROW)
        await caller.rollback()
        return "done"

    with pytest.raises(NotInTransaction, match="not open any more"):
        await world.call(caller.thing, "o-1", handler)
    assert (world.rows(), world.statuses()) == ([], [])


async def test_commit_and_begin_of_the_library_itself_is_caught(world: OnServer) -> None:
    caller = await world.begun()

    async def handler() -> str:
        await caller.sql(ROW)
        await caller.commit()
        await caller.begin()
        await caller.sql(ROW)
        return "done"

    with pytest.raises(NotInTransaction, match="not open any more"):
        await world.call(caller.thing, "o-1", handler)
    assert world.rows() == ["row"]


async def test_what_a_commit_inside_left_is_in_doubt_and_is_rerun(world: OnServer) -> None:
    await meddle(world, "COMMIT")
    caller = await world.begun()

    async def handler() -> bool:
        doubt: bool = world.semel.current().in_doubt
        return doubt

    assert (await world.call(caller.thing, "o-1", handler)).value is True


async def test_what_a_commit_inside_left_is_held_where_the_policy_says_so(world: OnServer) -> None:
    await meddle(world, "COMMIT", policy=HOLD)
    caller = await world.begun()
    with pytest.raises(InDoubt):
        await world.call(caller.thing, "o-1", world.writes(caller), policy=HOLD)


async def test_savepoints_of_the_handler_are_no_end_of_the_transaction(world: OnServer) -> None:
    caller = await world.begun()

    async def handler() -> str:
        for name in ("kept", "dropped"):
            await caller.sql("SAVEPOINT mine")
            await caller.sql(f"INSERT INTO effect (name) VALUES ('{name}')")  # noqa: S608 - the test's own word
            if name == "dropped":
                await caller.sql("ROLLBACK TO mine")
            await caller.sql("RELEASE SAVEPOINT mine")
        return "done"

    assert (await world.call(caller.thing, "o-1", handler)).value == "done"
    await caller.commit()
    assert (world.rows(), world.statuses()) == (["kept"], ["completed"])


async def test_a_handler_that_returns_inside_a_savepoint_completes_in_its_transaction(world: OnServer) -> None:
    caller = await world.begun()

    async def handler() -> str:
        await caller.sql("SAVEPOINT left_open")
        await caller.sql(ROW)
        return "done"

    await world.call(caller.thing, "o-1", handler)
    await caller.commit()
    assert (world.rows(), world.statuses()) == (["row"], ["completed"])


async def test_a_handler_that_commits_and_raises_gets_its_own_error(world: OnServer) -> None:
    caller = await world.begun()

    async def handler() -> str:
        await caller.sql("COMMIT")
        message = "its own"
        raise ValueError(message)

    with pytest.raises(ValueError, match="its own"):
        await world.call(caller.thing, "o-1", handler)


@on_postgresql
async def test_a_deadlock_is_transaction_aborted_and_not_retried(world: OnServer) -> None:
    """Somebody holds the record and waits for the caller, whose claim then waits for them."""

    async def later() -> None:
        raise ConnectionError

    policy = Policy(retry_errors=(ConnectionError,))
    with pytest.raises(ConnectionError):
        await world.run("o-1", later, policy=policy)  # a row that may be claimed again
    caller = await world.begun()
    await caller.sql("SET LOCAL deadlock_timeout = '10ms'")  # so that the caller is the one that is given up
    await caller.sql("LOCK TABLE effect")
    with psycopg.connect(world.url) as rival:
        rival.execute("SET LOCAL deadlock_timeout = '100s'")
        rival.execute("SELECT 1 FROM semel_record FOR UPDATE")
        waiting = threading.Thread(target=rival.execute, args=("SELECT count(*) FROM effect",))
        waiting.start()
        while not world.outside("SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'effect'::regclass"):
            pass  # until the server itself says that the rival waits
        with pytest.raises(TransactionAborted, match="all of it again"):
            await world.call(caller.thing, "o-1", world.writes(caller), policy=policy)
        await caller.rollback()
        waiting.join()
    assert (world.runs, world.rows()) == ([], [])


@on_mariadb
async def test_a_deadlock_of_innodb_is_transaction_aborted_and_not_retried(world: OnServer) -> None:
    """The server has taken back the caller's earlier rows: going on would lose them without a word."""

    async def later() -> None:
        raise ConnectionError

    policy = Policy(retry_errors=(ConnectionError,))
    with pytest.raises(ConnectionError):
        await world.run("o-1", later, policy=policy)  # a row that may be claimed again
    world.outside("INSERT INTO effect (name) VALUES ('wanted by both')")
    caller = await world.begun()
    await caller.sql(ROW)
    await caller.sql("SELECT 1 FROM effect WHERE number = 1 FOR UPDATE")
    with pymysql.connect(**mysql_address(world.url)) as rival, rival.cursor() as cursor:
        cursor.executemany("INSERT INTO effect (name) VALUES (%s)", [("rival",)] * 50)  # who wrote less is given up
        cursor.execute("SELECT 1 FROM semel_record FOR UPDATE")
        waiting = threading.Thread(target=cursor.execute, args=("SELECT 1 FROM effect WHERE number = 1 FOR UPDATE",))
        waiting.start()
        while "LOCK WAIT" not in world.databases.admin_each(["SHOW ENGINE INNODB STATUS"], world.url)[0][2]:
            pass  # until the server itself says that the rival waits; what innodb_trx tells is as old as the last look
        with pytest.raises(TransactionAborted, match="all of it again"):
            await world.call(caller.thing, "o-1", world.writes(caller), policy=policy)
        await caller.rollback()
        waiting.join()
        rival.rollback()
    assert (world.runs, world.rows()) == ([], ["wanted by both"])


@on_postgresql
async def test_a_completion_that_cannot_be_serialized_is_transaction_aborted(world: OnServer) -> None:
    """Two transactions that each read what the other writes; the other one commits first."""
    caller, other = await world.begun("SERIALIZABLE"), await world.begun("SERIALIZABLE")

    async def handler() -> str:
        await caller.sql("SELECT count(*) FROM effect")
        await other.sql("SELECT count(*) FROM effect")
        await caller.sql(ROW)
        await other.sql("INSERT INTO effect (name) VALUES ('other')")
        await other.commit()
        return "done"

    with pytest.raises(TransactionAborted, match="all of it again"):
        await world.call(caller.thing, "o-1", handler)
    await caller.rollback()
    assert (world.rows(), world.statuses()) == (["other"], [])


@on_postgresql
async def test_the_whole_transaction_can_be_run_again(world: OnServer) -> None:
    """The loop that the documentation shows."""
    caller, other = await world.begun("REPEATABLE READ"), await world.begun()
    await caller.sql("SELECT count(*) FROM effect")
    await world.call(other.thing, "o-1", world.writes(other, "other"))
    await other.commit()
    for _ in range(2):
        try:
            result = await world.call(caller.thing, "o-1", world.writes(caller))
            await caller.commit()
        except TransactionAborted:
            await caller.rollback()
            await caller.begin("REPEATABLE READ")
        else:
            assert (result.value, result.replayed) == ("other", True)
    assert world.rows() == ["other"]


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_stricter_isolation_of_the_caller_is_fine(world: OnServer, isolation: str) -> None:
    caller = await world.begun(isolation)
    await world.call(caller.thing, "o-1", world.writes(caller))
    assert (await world.call(caller.thing, "o-1", world.writes(caller))).replayed
    await caller.commit()
    assert (world.rows(), world.statuses()) == (["charged"], ["completed"])


async def test_a_connection_that_broke_under_the_handler_is_transaction_aborted(world: OnServer) -> None:
    caller = await world.begun()
    process = (await caller.sql(world.server.process))[0][0]

    async def handler() -> str:
        await caller.sql(ROW)
        world.outside(world.server.kill.format(process))
        return "done"

    with pytest.raises(TransactionAborted):
        await world.call(caller.thing, "o-1", handler)
    assert (world.rows(), world.statuses()) == ([], [])
