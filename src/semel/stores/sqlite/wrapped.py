"""SQLAlchemy, Django and aiosqlite: the `sqlite3.Connection` inside, in the transaction of what is around it.

What always holds: the connection inside is asked for anew for every operation, because a session takes another one
after each commit; the library around it is told first that a transaction begins, so that its commit is the one that
counts. A connection of aiosqlite is used in aiosqlite's own thread alone, one plan as one piece of its work.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

from semel.core.flow import run
from semel.core.operations import give_back
from semel.core.store import Answers, Plan
from semel.errors import NotInTransaction, TransactionAborted, UsageError
from semel.stores.served.joined import checked
from semel.stores.served.joining import spoken_by
from semel.stores.served.libraries.dbapi import kinds
from semel.stores.served.libraries.django import demand_atomic
from semel.stores.served.libraries.sqlalchemy import SqlalchemyLibrary
from semel.stores.served.troubles import ended, translated_joined
from semel.stores.sqlite import translate
from semel.stores.sqlite.commands import Command, Kind
from semel.stores.sqlite.joined import JOINS, SqliteJoined
from semel.stores.sqlite.plan import plan as plan_of

Inside = Callable[[], object]
AsyncInside = Callable[[], Awaitable[Any]]
_Join = Callable[[object], SqliteJoined]

_SQLALCHEMY: Final = {
    "sqlalchemy.engine.base.Connection",
    "sqlalchemy.orm.session.Session",
    "sqlalchemy.orm.scoping.scoped_session",
}
_ASYNC_CONNECTION: Final = "sqlalchemy.ext.asyncio.engine.AsyncConnection"
_ASYNC_SCOPED: Final = "sqlalchemy.ext.asyncio.scoping.async_scoped_session"
_ASYNC_SQLALCHEMY: Final = {_ASYNC_CONNECTION, _ASYNC_SCOPED, "sqlalchemy.ext.asyncio.session.AsyncSession"}
_DJANGO: Final = {"django.db.backends.base.base.BaseDatabaseWrapper", "django.utils.connection.ConnectionProxy"}
_AIOSQLITE: Final = "aiosqlite.core.Connection"


class _Wrapped:
    """What both colours know of what they look into."""

    def __init__(self, join: _Join, name: str) -> None:
        self._join = join
        self._name = name
        self._last: tuple[object, SqliteJoined] | None = None

    def _joined(self, connection: object) -> SqliteJoined:
        if self._last is None or self._last[0] is not connection:
            self._last = connection, self._join(connection)
        return self._last[1]

    def _refused(self, plan: Plan, error: Exception) -> Answers:
        """The answers of a plan for which no connection could be had.

        The plan is asked: a claim whose BEGIN IMMEDIATE met a lock is told to try again, as one that met it by itself.
        What demands the mark of the claim finds no transaction that could have it: the handler ended that one.
        """
        meaning = self._meaning(error)

        def refuse(command: Command) -> NoReturn:
            if command.kind is Kind.RELEASE and isinstance(meaning, (NotInTransaction, translate.WriteLocked)):
                raise ended() from error
            raise meaning

        return checked(run(plan, refuse))

    def _meaning(self, error: Exception) -> Exception:
        inner = getattr(error, "orig", None)
        if isinstance(inner, sqlite3.Error):
            meaning = translate.translated_joined(inner, self._name, lost=False)
            return error if meaning is inner else meaning
        return translated_joined(error, SqlalchemyLibrary(lambda _: None).trouble(error), self._name)


class WrappedJoined(_Wrapped):
    """A connection of SQLAlchemy or Django on SQLite."""

    def __init__(self, inside: Inside, join: _Join, name: str) -> None:
        super().__init__(join, name)
        self._inside = inside

    def perform(self, plan: Plan) -> Answers:
        """Run one plan.

        Raises:
            NotInTransaction: no transaction of the store's database is open, or the one of the claim has ended.
            TransactionAborted: the caller's transaction is gone.
        """
        try:
            joined = self._joined(self._inside())
        except Exception as error:  # noqa: BLE001 - told by the plan
            return self._refused(plan, error)
        return joined.perform(plan)


class AsyncWrappedJoined(_Wrapped):
    """A connection of aiosqlite, or of SQLAlchemy on top of it."""

    def __init__(self, inside: AsyncInside, join: _Join, name: str) -> None:
        super().__init__(join, name)
        self._inside = inside

    async def perform(self, plan: Plan) -> Answers:
        """Run one plan, in aiosqlite's thread.

        Raises:
            NotInTransaction: no transaction of the store's database is open, or the one of the claim has ended.
            TransactionAborted: the caller's transaction is gone.
        """
        try:
            link = await self._inside()
            joined = self._joined(_sqlite_of(link))
        except Exception as error:  # noqa: BLE001 - told by the plan
            return self._refused(plan, error)
        return await _there(link, joined, plan)


async def _there(link: Any, joined: SqliteJoined, plan: Plan) -> Answers:
    """Run one plan in the thread of `link`. Where the caller is cancelled, it is carried out all the same."""
    answers: Answers = []

    def carry_out() -> None:
        answers.extend(joined.perform(plan))

    try:
        await link._execute(carry_out)  # noqa: SLF001 - the only way into that thread
    except asyncio.CancelledError:
        # Nobody will hear that a claim was granted, so it is given back: a caller who commits in spite of the
        # cancellation must not commit it as running. This is queued at once, behind the plan and before whatever the
        # caller does next, and a second cancellation does not take it out of the queue.
        with suppress(ValueError):  # closed meanwhile, and rolled back with that
            await link._execute(_give_back, joined, answers)  # noqa: SLF001
        raise
    return answers


def _give_back(joined: SqliteJoined, answers: Answers) -> None:
    for answer in answers:
        undo = give_back(answer)
        if undo is not None:
            with suppress(NotInTransaction, TransactionAborted):  # nothing of it is kept then
                joined.perform(plan_of([undo], joined=True))


def inside_of(connection: Any) -> Inside | None:
    """How to get at the `sqlite3.Connection` inside; None where `connection` is neither SQLAlchemy's nor Django's.

    Raises:
        UsageError: it leads to another kind of database.
    """
    names = kinds(connection)
    if not _DJANGO.isdisjoint(names):
        _demand_sqlite(connection)
        return lambda: _of_django(connection)
    if not _SQLALCHEMY.isdisjoint(names):
        _demand_sqlite(connection)
        return lambda: _demand_library(_begun(connection), "sqlite3.Connection", "sqlite3 itself")
    return None


def async_inside_of(connection: Any) -> AsyncInside | None:
    """How to get at the connection of aiosqlite; None where `connection` leads to none.

    Raises:
        UsageError: it leads to another kind of database, or cannot be used from here.
    """
    names = kinds(connection)
    if _AIOSQLITE in names:
        _demand_entrance(connection)

        async def itself() -> Any:
            return connection

        return itself
    if _ASYNC_SQLALCHEMY.isdisjoint(names):
        return None
    if _ASYNC_CONNECTION in names and connection.sync_connection is None:
        message = (
            f"This AsyncConnection has not been opened yet; nothing ran. Use `async with engine.connect() as …` and "
            f"give within() what that gives. {JOINS}."
        )
        raise UsageError(message)
    _demand_sqlite(connection)

    async def begun() -> Any:
        current = connection() if _ASYNC_SCOPED in names else connection
        inside = await current.run_sync(_begun)  # in the greenlet that its own statements use: so may a BEGIN of events
        return _demand_entrance(_demand_library(inside, _AIOSQLITE, "aiosqlite"))

    return begun


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


def _begun(connection: Any) -> Any:
    """What SQLAlchemy stands on, once it knows of its transaction."""
    link = connection if hasattr(connection, "exec_driver_sql") else connection.connection()
    if not link.in_transaction():
        link.begin()  # SQLAlchemy's own mark, as its first statement would set it; SQLite begins with the first write
    return link.connection.driver_connection


def _demand_library(inside: Any, kind: str, library: str) -> Any:
    names = kinds(inside)
    if kind not in names:
        message = f"within() cannot use {names[0]} under SQLAlchemy; nothing ran. Use SQLAlchemy with {library}."
        raise UsageError(message)
    return inside


def _demand_entrance(link: Any) -> Any:
    """`link`, if functions can be run in its thread; aiosqlite has no public way to do that."""
    if not all(hasattr(type(link), name) for name in ("_execute", "_conn")):
        message = (
            "within() cannot run in the thread of this release of aiosqlite; nothing ran. "
            "Use aiosqlite 0.20, 0.21 or 0.22, or a sqlite3.Connection."
        )
        raise UsageError(message)
    return link


def _sqlite_of(link: Any) -> object:
    try:
        return link._conn  # noqa: SLF001 - only handed on to its own thread
    except ValueError as error:
        message = (
            f"The aiosqlite connection given to within() is not open ({error}); nothing was recorded. "
            f"Give one that is open, and leave its end to the code around within()."
        )
        raise NotInTransaction(message) from error
