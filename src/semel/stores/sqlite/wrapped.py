"""SQLAlchemy and Django on SQLite: the `sqlite3.Connection` inside, in the transaction of what is around it.

What always holds: the connection inside is asked for anew for every operation, because a session takes another one
after each commit; the library around it is told first that a transaction begins, so that its commit is the one that
counts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from semel.core.store import Answers, Plan
from semel.errors import NotInTransaction, TransactionAborted, UsageError
from semel.stores.served.joining import spoken_by
from semel.stores.served.libraries.dbapi import kinds
from semel.stores.served.libraries.django import demand_atomic
from semel.stores.served.libraries.sqlalchemy import SqlalchemyLibrary
from semel.stores.served.troubles import ended, translated_joined
from semel.stores.sqlite.joined import SqliteJoined

Inside = Callable[[], object]
_SQLALCHEMY = (
    "sqlalchemy.engine.base.Connection",
    "sqlalchemy.orm.session.Session",
    "sqlalchemy.orm.scoping.scoped_session",
)
_DJANGO = ("django.db.backends.base.base.BaseDatabaseWrapper", "django.utils.connection.ConnectionProxy")


class WrappedJoined:
    """A connection of SQLAlchemy or Django on SQLite."""

    def __init__(self, inside: Inside, join: Callable[[object], SqliteJoined], name: str) -> None:
        self._inside = inside
        self._join = join
        self._name = name
        self._last: tuple[object, SqliteJoined] | None = None

    def perform(self, plan: Plan) -> Answers:
        """Run one plan.

        Raises:
            NotInTransaction: no transaction of the store's database is open, or the one of the claim has ended.
            TransactionAborted: the caller's transaction is gone.
        """
        try:
            connection = self._inside()
        except Exception as error:
            plan.close()
            meaning = self._meaning(error)
            if meaning is error:
                raise
            raise meaning from error
        if self._last is None or self._last[0] is not connection:
            self._last = connection, self._join(connection)
        return self._last[1].perform(plan)

    def _meaning(self, error: Exception) -> Exception:
        meaning = translated_joined(error, SqlalchemyLibrary(lambda _: None).trouble(error), self._name)
        return ended() if self._last and isinstance(meaning, NotInTransaction) and meaning is not error else meaning


def inside_of(connection: Any) -> Inside | None:
    """How to get at the `sqlite3.Connection` inside; None where `connection` is neither SQLAlchemy's nor Django's.

    Raises:
        UsageError: it leads to another kind of database.
    """
    names = kinds(connection)
    if any(name in names for name in _DJANGO):
        _demand_sqlite(connection)
        return lambda: _of_django(connection)
    if any(name in names for name in _SQLALCHEMY):
        _demand_sqlite(connection)
        return lambda: _of_sqlalchemy(connection)
    return None


def _demand_sqlite(connection: Any) -> None:
    spoken = spoken_by(connection)
    if spoken != "sqlite":
        message = (
            f"A {kinds(connection)[0]} leads to {spoken}, and the records are in SQLite; nothing ran. "
            f"Give within() the connection that runs your own statements."
        )
        raise UsageError(message)


def _of_django(connection: Any) -> object:
    demand_atomic(connection)
    if connection.needs_rollback:
        message = (
            "The Django transaction given to within() will be rolled back; nothing of it is kept. "
            "Leave the atomic() block and run all of it again."
        )
        raise TransactionAborted(message)
    return connection.connection


def _of_sqlalchemy(connection: Any) -> object:
    link = connection if hasattr(connection, "exec_driver_sql") else connection.connection()
    if not link.in_transaction():
        link.begin()  # SQLAlchemy's own mark, as its first statement would set it; SQLite begins with the first write
    inside = link.connection.driver_connection
    if not isinstance(inside, sqlite3.Connection):
        message = (
            f"within() cannot use {kinds(inside)[0]} under SQLAlchemy; nothing ran. Use SQLAlchemy with sqlite3 itself."
        )
        raise UsageError(message)
    return inside
