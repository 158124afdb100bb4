"""A MySQL store asked without an engine, connections of a caller beside it, and a release with a newer schema."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pymysql

from semel.core.operations import Answer, Found, Operation, Read
from semel.core.record import Record
from semel.stores.mysql import MysqlStore
from semel.stores.mysql.dialect import MysqlDialect
from semel.stores.mysql.schema import MysqlSchema, scripts
from semel.stores.mysql.session import address
from semel.stores.served.scripts import Scripts
from semel.stores.served.settings import Settings
from tests.unit.stores.operations import KEYS, Clock

T = TypeVar("T", bound=Answer)
Connection = Any
NEXT: Scripts = {
    **scripts(),
    (2, "pre"): "ALTER TABLE {record_table} COMMENT = 'semel: one row per key, as of the next release';\n",
    (2, "post"): "DROP TABLE IF EXISTS `{prefix}wanted_no_more`;\n",
}


class Asker:
    """A store and one driver on it."""

    def __init__(self, store: MysqlStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.driver = store.driver()

    def all(self, operations: Sequence[Operation]) -> list[Answer | Exception]:
        """Ask for several of one kind; an error that befell all of them is raised."""
        (reply,) = self.driver.perform([self.store.plan(operations, joined=False)])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def one(self, operation: Operation, kind: type[T]) -> T:
        """Ask for one, and expect this kind of answer."""
        (answer,) = self.all([operation])
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, kind), answer
        return answer

    def record(self, digest: bytes = KEYS[0].digest) -> Record | None:
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
            connection.close()


def told(connection: Connection, text: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of one statement."""
    with connection.cursor() as cursor:
        cursor.execute(text, values or None)
        return list(cursor.fetchall())


def emptied(url: str) -> None:
    """Delete every record."""
    with connected(url, autocommit=True) as connection:
        for table in ("semel_record", "semel_step"):
            told(connection, f"DELETE FROM {table}")  # noqa: S608 - the two names above


def rows(url: str, text: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of one statement on a connection of its own."""
    with connected(url, autocommit=True) as connection:
        return told(connection, text, *values)


def release(url: str, given: Scripts, **settings: Any) -> MysqlStore:
    """A store of a release that has these migrations."""
    store = MysqlStore(url, **settings)
    known = Settings.of(url, **settings)
    store._schema = store._place.schema = MysqlSchema(known, MysqlDialect(known), given)
    return store
