"""A MySQL store asked without an engine, connections of a caller beside it, and a release with a newer schema."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pymysql

from semel.core.operations import Found, Read
from semel.core.record import StoredRecord
from semel.core.store import Answers, Plan
from semel.stores.mysql import MysqlStore
from semel.stores.mysql.admin import MysqlSchema, scripts
from semel.stores.mysql.dialect import MysqlDialect
from semel.stores.mysql.settings import address
from semel.stores.sql.migrations import Scripts
from semel.stores.sql.settings import Settings
from tests.servers.records import FORGET_SWEEPS
from tests.unit.stores.asking import Asking
from tests.unit.stores.operations import KEYS, Clock

Connection = Any
NEWEST = max(version for version, _ in scripts())
ALL = [f"{version:04}" for version in range(1, NEWEST + 1)]
"""What is applied to an empty database."""
SOON = NEWEST + 1
NEXT: Scripts = {
    **scripts(),
    (SOON, "pre"): "ALTER TABLE {record_table} COMMENT = 'semel: one row per key, as of the next release';\n",
    (SOON, "post"): "DROP TABLE IF EXISTS `{prefix}wanted_no_more`;\n",
}


class Asker(Asking):
    """A store and one driver on it."""

    def __init__(self, store: MysqlStore, clock: Clock) -> None:
        self.store: MysqlStore = store
        self.clock = clock
        self.driver = store.driver()

    def perform(self, *plans: Plan) -> list[Answers | Exception]:
        return self.driver.perform(plans)

    def record(self, digest: bytes = KEYS[0].digest) -> StoredRecord | None:
        """The record as the store has it."""
        return self.one(Read(digest), Found).record

    def connection(self) -> Connection:
        """The driver's own connection, once it has been used."""
        return self.driver._idle[0].connection  # type: ignore[attr-defined]  # the driver of this store


@contextmanager
def connected(url: str, **settings: Any) -> Iterator[Connection]:
    """A caller's own connection; as PyMySQL has it by default it begins transactions by itself."""
    connection = pymysql.connect(**address(Settings.of(url)), **settings)
    try:
        yield connection
    finally:
        if connection.open:
            with suppress(pymysql.MySQLError):
                connection.rollback()  # answered once its locks are gone; a closed connection keeps them for a moment
            connection.close()


def told(connection: Connection, text: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of one statement."""
    with connection.cursor() as cursor:
        cursor.execute(text, values or None)
        return list(cursor.fetchall())


def emptied(url: str) -> None:
    """Delete every record."""
    with connected(url, autocommit=True) as connection:
        for table in ("semel_record", "semel_step", "semel_search", "semel_history"):
            told(connection, f"DELETE FROM {table}")  # noqa: S608 - the names above
        told(connection, FORGET_SWEEPS)


def rows(url: str, text: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of one statement on a connection of its own."""
    with connected(url, autocommit=True) as connection:
        return told(connection, text, *values)


def release(url: str, given: Scripts, **settings: Any) -> MysqlStore:
    """A store of a release that has these migrations."""
    store = MysqlStore(url, **settings)
    known = Settings.of(url, **settings)
    store._schema = store._context.schema = MysqlSchema(known, MysqlDialect(known), given)
    return store
