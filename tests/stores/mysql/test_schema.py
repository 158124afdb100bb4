"""How the tables come to be: created once, completed after a crash, described for people."""

import threading

import pytest

from semel.core.operations import Found, Granted, Read
from semel.errors import SchemaOutdated
from semel.stores.mysql import MysqlStore
from semel.stores.mysql.admin import MysqlSchema
from tests.servers.databases import Databases
from tests.stores.mysql.kit import Asker, connected, told
from tests.unit.stores.operations import KEYS, Clock, claim

pytestmark = pytest.mark.slow


@pytest.fixture
def fresh(server: Databases) -> str:
    return server.new_database()


def asked(store: MysqlStore) -> object:
    asker = Asker(store, Clock())
    try:
        return asker.one(claim(), Granted)
    finally:
        asker.driver.close()


def test_tables_are_not_created_where_that_is_not_wanted(fresh: str) -> None:
    with pytest.raises(SchemaOutdated, match="semel migrate"):
        asked(MysqlStore(fresh, migrate=False))


def test_whoever_comes_first_creates_them_for_all(fresh: str) -> None:
    errors: list[Exception] = []
    barrier = threading.Barrier(4)

    def look() -> None:
        asker = Asker(MysqlStore(fresh), Clock())
        barrier.wait()
        try:
            asker.one(Read(KEYS[0].digest), Found)
        except Exception as error:  # noqa: BLE001 - what happened is the verdict
            errors.append(error)
        asker.driver.close()

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with connected(fresh) as connection:
        assert told(connection, "SELECT COUNT(*) FROM semel_gate") == [(65_536,)]


@pytest.mark.parametrize("done", range(1, 8))
def test_a_creation_that_ended_half_way_is_completed(fresh: str, done: int) -> None:
    store = MysqlStore(fresh)
    schema = store._context.schema
    assert isinstance(schema, MysqlSchema)
    with connected(fresh, autocommit=True) as connection:
        for statement in list(schema._creating())[:done]:
            told(connection, statement)
    asked(store)


def test_tables_may_be_in_another_database_under_other_names(server: Databases, fresh: str) -> None:
    elsewhere = server.new_database().rpartition("/")[2]
    asked(MysqlStore(fresh, schema=elsewhere, prefix="once_"))
    with connected(fresh) as connection:
        assert told(connection, "SHOW TABLES") == []
        assert told(connection, f"SELECT COUNT(*) FROM {elsewhere}.once_record") == [(1,)]  # noqa: S608 - made here


def test_every_table_and_column_is_described_and_compares_bytes(url: str) -> None:
    with connected(url) as connection:
        tables = told(
            connection,
            "SELECT TABLE_NAME, ENGINE, TABLE_COLLATION, TABLE_COMMENT FROM information_schema.TABLES "
            "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'semel%'",
        )
        bare = told(
            connection,
            "SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS "
            "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'semel%' AND COLUMN_COMMENT = ''",
        )
    assert {table[1:3] for table in tables} == {("InnoDB", "utf8mb4_bin")}
    assert len(tables) == 20
    assert all(comment.startswith("semel: ") for *_, comment in tables)
    assert bare == []
