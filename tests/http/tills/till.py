"""What every till can do, whatever its framework and library: be asked, and tell what is committed."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import psycopg

from tests.http.tills.crowd import Gate, Seen
from tests.http.tills.told import Told

HEADER: Final = "Idempotency-Key"
NO: Final = 422
"""The status with which a view says that nothing happened."""


class Till(ABC):
    """An application, and its database as everybody else sees it.

    Attributes:
        commits: whether the code around the view commits at its end, as it should.
        background: how often work that a view left for later has run.
        has_background: whether the framework runs work after the answer.
        has_commit: whether the connection has a method that a view could commit with.
        gate: where the view of `/slow` waits.
    """

    has_background = False
    has_commit = True

    def __init__(self, url: str) -> None:
        self.url = url
        self.commits = True
        self.background = 0
        self.gate = Gate()

    @abstractmethod
    def ask(self, what: str = "pays", key: str = "k-1") -> Told:
        """Ask once."""

    @abstractmethod
    def crowd(self, gate: Gate, *, with_owner: bool) -> Seen:
        """Ask `/slow` many times together, while others use the connections of the same pool."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections."""

    def rows(self) -> int:
        """How many payments are committed."""
        return int(self._admin("SELECT count(*) FROM payment")[0][0])

    def records(self) -> list[str]:
        """The statuses of all records that are committed."""
        return [str(status) for (status,) in self._admin("SELECT status FROM semel_record")]

    @contextmanager
    def completions_that(self, fail: str) -> Iterator[None]:
        """Inside, the database does not take what would complete a record: it ignores the write, or raises."""
        make, drop = (_SQLITE if self.url.startswith("sqlite") else _POSTGRESQL)[fail]
        self._admin(*make)
        try:
            yield
        finally:
            self._admin(*drop)

    def prepare(self) -> None:
        """Make the table for payments; semel makes its own."""
        self._admin("CREATE TABLE IF NOT EXISTS payment (amount integer)")

    def empty(self) -> None:
        """Forget what other tills have left in the database."""
        tables = ("payment", "semel_step", "semel_record")
        self._admin(*(f"DELETE FROM {table}" for table in tables))  # noqa: S608 - names from here

    def _admin(self, first: str, *others: str) -> list[Any]:
        """Run them one by one on one connection, and give the rows of the last: a server takes longer for another."""
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
                return [connection.execute(statement).fetchall() for statement in (first, *others)][-1]
        with psycopg.connect(self.url, autocommit=True) as server:
            cursor = server.execute(first.encode())
            for statement in others:
                cursor = server.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


def _sqlite(action: str) -> tuple[list[str], list[str]]:
    make = (
        "CREATE TRIGGER broken BEFORE UPDATE ON semel_record WHEN NEW.status = 'completed' "
        f"BEGIN SELECT RAISE({action}); END"
    )
    return [make], ["DROP TRIGGER broken"]


def _postgresql(action: str) -> tuple[list[str], list[str]]:
    function = (
        "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF NEW.status = 'completed' THEN {action}; END IF; RETURN NEW; END $$"
    )
    trigger = "CREATE TRIGGER broken BEFORE UPDATE ON semel_record FOR EACH ROW EXECUTE FUNCTION broken()"
    return [function, trigger], ["DROP TRIGGER broken ON semel_record", "DROP FUNCTION broken()"]


_SQLITE: Final = {"ignore": _sqlite("IGNORE"), "raise": _sqlite("ABORT, 'the disk is broken'")}
_POSTGRESQL: Final = {
    "ignore": _postgresql("RETURN NULL"),
    "raise": _postgresql("RAISE EXCEPTION 'the disk is full' USING ERRCODE = '53100'"),
}
