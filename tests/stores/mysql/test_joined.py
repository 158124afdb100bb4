"""Inside the caller's transaction: PyMySQL and asyncmy connections on a real server."""

import asyncio
from collections.abc import Callable
from typing import Any

import asyncmy
import pymysql
import pytest

from semel.core.operations import (
    Claim,
    Complete,
    Granted,
    JoinTransaction,
    Operation,
    Recorded,
    Replay,
    Running,
    TransactionJoined,
)
from semel.errors import NotInTransaction, TransactionAborted, UsageError
from semel.stores.mysql import MysqlStore
from semel.stores.mysql.settings import address
from semel.stores.sql.settings import Settings
from tests.servers.databases import Databases
from tests.stores.mysql.kit import Asker, Connection, connected, told
from tests.unit.stores.operations import KEYS, claim

pytestmark = pytest.mark.slow


class Joined:
    """The store, in the transaction of one connection."""

    def __init__(self, asker: Asker, connection: Connection) -> None:
        self.store = asker.store
        self.connection = connection
        self.joined = asker.store.join(connection)

    def one(self, operation: Operation) -> Any:
        (answer,) = self.joined.perform(self.store.plan([operation], joined=True))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def granted(self, asked: Claim) -> Granted:
        answer = self.one(asked)
        assert isinstance(answer, Granted), answer
        return answer


def test_the_record_commits_with_the_transaction(asker: Asker, url: str) -> None:
    with connected(url) as connection:
        inside = Joined(asker, connection)
        assert isinstance(inside.one(Complete(inside.granted(claim()).lease, b"\x01")), Recorded)
        assert asker.record() is None
        connection.commit()
        assert asker.record() is not None


def test_the_record_rolls_back_with_the_transaction(asker: Asker, url: str) -> None:
    with connected(url) as connection:
        inside = Joined(asker, connection)
        inside.one(Complete(inside.granted(claim()).lease, b"\x01"))
        connection.rollback()
        assert asker.record() is None


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_transaction_that_the_handler_ended_is_noticed(asker: Asker, url: str, ending: str) -> None:
    with connected(url) as connection:
        inside = Joined(asker, connection)
        granted = inside.granted(claim())
        getattr(connection, ending)()
        told(connection, "SELECT COUNT(*) FROM semel_record")
        with pytest.raises(NotInTransaction, match="not open any more"):
            inside.one(Complete(granted.lease, b"\x01"))


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_duplicate_is_answered_at_once_while_the_first_is_open(asker: Asker, url: str, isolation: str) -> None:
    begin = f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}"
    with connected(url, init_command=begin) as first, connected(url, init_command=begin) as second:
        told(second, "SET innodb_lock_wait_timeout = 50")
        Joined(asker, first).granted(claim(number=1))
        assert isinstance(Joined(asker, second).one(claim(number=2)), Running)
        told(second, "INSERT INTO semel_meta VALUES ('mine', 'still usable')")
        second.rollback()


def test_an_older_snapshot_still_sees_the_outcome(asker: Asker, url: str) -> None:
    with connected(url) as connection:
        told(connection, "SELECT COUNT(*) FROM semel_record")
        asker.one(Complete(asker.one(claim(), Granted).lease, b"\x01"), Recorded)
        assert told(connection, "SELECT COUNT(*) FROM semel_record") == [(0,)]
        assert isinstance(Joined(asker, connection).one(claim(number=2)), Replay)


def test_operations_that_share_a_transaction_may_end_in_the_order_they_began(asker: Asker, url: str) -> None:
    with connected(url) as connection:
        parts = [Joined(asker, connection) for _ in KEYS]
        asked = [claim(key, number=number) for number, key in enumerate(KEYS, 1)]
        granted = [part.granted(it) for part, it in zip(parts, asked, strict=True)]
        for part, grant in zip(parts, granted, strict=True):
            assert isinstance(part.one(Complete(grant.lease, b"\x01")), Recorded)
        connection.commit()
        assert all(asker.record(key.digest) for key in KEYS)


def test_a_step_holds_the_record_of_its_operation(asker: Asker, url: str) -> None:
    lease = asker.one(claim(), Granted).lease
    with connected(url) as connection, connected(url) as other:
        assert isinstance(Joined(asker, connection).one(JoinTransaction(lease)), TransactionJoined)
        assert isinstance(Joined(asker, other).one(claim(number=2)), Running)


def test_a_connection_in_autocommit_is_refused(asker: Asker, url: str) -> None:
    with connected(url, autocommit=True) as connection:
        with pytest.raises(NotInTransaction, match="autocommit"):
            Joined(asker, connection).one(claim())
        connection.begin()
        Joined(asker, connection).granted(claim())


def test_another_database_is_refused(asker: Asker, url: str, server: Databases) -> None:
    elsewhere = server.new_database()
    MysqlStore(elsewhere)._fetch_install_id()
    with connected(elsewhere) as connection, pytest.raises(NotInTransaction, match="another database"):
        Joined(asker, connection).one(claim())


def test_a_database_without_tables_is_refused(asker: Asker, server: Databases) -> None:
    with (
        connected(server.new_database()) as connection,
        pytest.raises(NotInTransaction, match="without semel's tables"),
    ):
        Joined(asker, connection).one(claim())


def test_a_cursor_class_of_the_caller_does_no_harm(asker: Asker, url: str) -> None:
    with connected(url, cursorclass=pymysql.cursors.DictCursor) as connection:
        Joined(asker, connection).granted(claim())


def test_assignments_that_do_not_follow_each_other_never_win(asker: Asker, url: str, server: Databases) -> None:
    if "MariaDB" not in server.admin("SELECT VERSION()")[0][0]:
        pytest.skip("only MariaDB has SIMULTANEOUS_ASSIGNMENT")
    asker.one(claim(number=1), Granted)
    asker.clock.advance(60)
    before = asker.record()
    with connected(url, sql_mode="SIMULTANEOUS_ASSIGNMENT") as connection:
        with pytest.raises(pymysql.MySQLError, match="semel_record_lease"):
            Joined(asker, connection).one(claim(number=2))
        connection.commit()
    assert asker.record() == before


def test_a_deadlock_ends_the_callers_transaction(asker: Asker) -> None:
    class Refusing:
        def demand_transaction(self, connection: Connection) -> None: ...

        def error_kind(self, error: Exception) -> Any:
            from semel.stores.mysql.errors import mysql_error_kind

            return mysql_error_kind(error)

        def execute(self, connection: Connection, command: Any) -> Any:
            raise pymysql.OperationalError(1213, "Deadlock found when trying to get lock")

    from semel.stores.sql.joined import SqlJoined

    asker.record()
    joined = SqlJoined(asker.store._context, Refusing(), object(), lambda: None)
    asker.store._context.savepoints = None
    with pytest.raises(TransactionAborted):
        joined.perform(asker.store.plan([claim()], joined=True))


def test_a_connection_of_the_other_colour_is_refused(asker: Asker, url: str) -> None:
    with connected(url) as connection, pytest.raises(UsageError, match="blocks"):
        asker.store.async_join(connection)


def _on_a_loop(asker: Asker, url: str, story: Callable[[Any, Any], Any]) -> None:
    async def main() -> None:
        connection = await asyncmy.connect(**address(Settings.of(url)))
        try:
            await story(connection, asker.store.async_join(connection))
        finally:
            await connection.ensure_closed()

    asyncio.run(main())


def test_an_asyncmy_connection_commits_the_record(asker: Asker, url: str) -> None:
    async def story(connection: Any, joined: Any) -> None:
        (granted,) = await joined.perform(asker.store.plan([claim()], joined=True))
        (done,) = await joined.perform(asker.store.plan([Complete(granted.lease, b"\x01")], joined=True))
        assert isinstance(done, Recorded)
        assert asker.record() is None
        await connection.commit()
        assert asker.record() is not None

    _on_a_loop(asker, url, story)


def test_an_asyncmy_connection_whose_transaction_ended_is_noticed(asker: Asker, url: str) -> None:
    async def story(connection: Any, joined: Any) -> None:
        (granted,) = await joined.perform(asker.store.plan([claim()], joined=True))
        await connection.commit()
        with pytest.raises(NotInTransaction, match="not open any more"):
            await joined.perform(asker.store.plan([Complete(granted.lease, b"\x01")], joined=True))

    _on_a_loop(asker, url, story)
