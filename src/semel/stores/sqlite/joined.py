"""The caller's own SQLite connection, joined for operations inside the caller's transaction.

Connections of SQLAlchemy, Django and aiosqlite are joined through the `sqlite3.Connection` inside them.

- Nothing here begins, commits, rolls back or retries; no setting of the connection is changed.
- The record is written only into the store's own database, and only where a transaction is open or sqlite3 itself
  begins one with the first write.
- A savepoint set with the claim must still be there when its outcome is recorded: a handler that ended the transaction
  is noticed, and the record, whose lease is over from the start, is in doubt and not lost.
- The connection inside is fetched anew for every operation, because a session takes another one after each commit; the
  library around it is told first that a transaction begins, so that its commit is the one that counts. A connection of
  aiosqlite is used in aiosqlite's own thread only, one plan as one piece of work.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from semel.core.flow import run
from semel.core.operations import give_back
from semel.core.store import Answers, Plan
from semel.errors import NotInTransaction, SchemaOutdated, TransactionAborted, UsageError
from semel.stores.sql.adapter import kinds
from semel.stores.sql.adapters.django import demand_atomic
from semel.stores.sql.adapters.sqlalchemy import sqlalchemy_error_kind
from semel.stores.sql.dialect import Row
from semel.stores.sql.errors import ended, translate_server_error_in_joined
from semel.stores.sql.joined import checked, dialect_of
from semel.stores.sqlite import errors
from semel.stores.sqlite.commands import Kind, Reply, SqliteCommand
from semel.stores.sqlite.dialect import DIALECT
from semel.stores.sqlite.driver import execute
from semel.stores.sqlite.errors import OF_ONE_OPERATION, WriteLocked, code_of, translate_joined_error
from semel.stores.sqlite.plan import plan as plan_of
from semel.stores.sqlite.settings import Settings

Install = Callable[[float | None], bytes]
"""Gives the store's install_id, waiting so many seconds for the write lock where the file must be set up first."""

JOINS: Final = (
    "An SQLite store joins a sqlite3.Connection; with Semel also a SQLAlchemy Session or Connection or a Django "
    "connection; with AsyncSemel also an aiosqlite.Connection or a SQLAlchemy AsyncSession or AsyncConnection"
)
"""What can be joined, for messages."""

_LEGACY: Final = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL; Python 3.11 knows nothing else
_OWN_LOCK: Final = 0.2  # seconds: who waits longer inside a transaction waits for itself


_marks: dict[int, list[str]] = {}
"""Marks that are set, per connection and in order. A connection cannot be referred to weakly; an entry goes with its
last mark, and one that was left behind does no harm to another connection."""


class SqliteJoined:
    """A `sqlite3.Connection` of the caller."""

    def __init__(self, connection: object, settings: Settings, install: Install) -> None:
        if not isinstance(connection, sqlite3.Connection):
            message = (
                f"A {type(connection).__qualname__} cannot be joined here; nothing ran. {JOINS}. "
                f"Give within() the connection that runs your own statements."
            )
            raise UsageError(message)
        self._connection = connection
        self._settings = settings
        self._install = install
        self._id: bytes | None = None

    def perform(self, plan: Plan) -> Answers:
        """Run one plan.

        Raises:
            NotInTransaction: no transaction of the store's database is open, or the one of the claim has ended.
            TransactionAborted: the caller's transaction is gone.
        """
        return checked(run(plan, self._carry_out))

    def _carry_out(self, command: SqliteCommand) -> Reply | list[Row]:
        try:
            if command.kind is Kind.ENTER:
                self._demand_transaction()
            was_open = self._connection.in_transaction
        except sqlite3.Error as error:
            raise translate_joined_error(error, self._settings.name, lost=False) from error
        try:
            return self._execute(command)
        except sqlite3.Error as error:
            raise self._meaning(error, command, was_open=was_open) from error

    def _execute(self, command: SqliteCommand) -> Reply | list[Row]:
        now = self._settings.clock()
        cursor = sqlite3.Cursor(self._connection)  # not connection.cursor(): that brings the caller's row_factory
        try:
            if command.kind is Kind.SAVEPOINT:
                self._mark(cursor, command)
            elif command.kind is Kind.RELEASE:
                self._release(cursor, command)
            else:
                return execute(cursor, command, {**command.named, "now": now, "install": self._id}, now)
            return []
        finally:
            cursor.close()

    def _mark(self, cursor: sqlite3.Cursor, command: SqliteCommand) -> None:
        cursor.execute(command.text)
        _marks.setdefault(id(self._connection), []).append(command.named["mark"])

    def _release(self, cursor: sqlite3.Cursor, command: SqliteCommand) -> None:
        """Demand a savepoint. SQLite releases those set after it too: those still needed are set again.

        That happens where tasks share a transaction and the first to begin is the first to end. The mark was still
        there, so the transaction is the one that the later marks were set in.
        """
        marks = _marks.pop(id(self._connection), [])
        mark = command.named["mark"]
        at = len(marks) - 1 - marks[::-1].index(mark) if mark in marks else len(marks)
        before, after = marks[:at], marks[at + 1 :]
        try:
            cursor.execute(command.text)
            for later in after:
                cursor.execute(DIALECT.set_savepoint(later).text)
        finally:
            if before or after:
                _marks[id(self._connection)] = before + after

    def _meaning(self, error: sqlite3.Error, command: SqliteCommand, *, was_open: bool) -> Exception:
        if command.kind is Kind.RELEASE and code_of(error) == sqlite3.SQLITE_ERROR:
            return ended()
        lost = was_open and not self._connection.in_transaction
        if isinstance(error, OF_ONE_OPERATION) and code_of(error) and not lost:
            return error
        return translate_joined_error(error, self._settings.name, lost=lost)

    def _demand_transaction(self) -> None:
        connection = self._connection
        if not connection.in_transaction and not _begins_by_itself(connection):
            message = (
                "within() needs an open transaction, and this connection is in autocommit mode without one; "
                "nothing ran. Execute BEGIN first, or open the connection with sqlite3's default settings."
            )
            raise NotInTransaction(message)
        if self._id is None:
            self._demand_same_file()
            self._id = self._installed()

    def _installed(self) -> bytes:
        try:
            return self._install(_OWN_LOCK if self._connection.in_transaction else None)
        except WriteLocked as error:
            message = (
                f"{self._settings.name} has not been set up for this release yet, and cannot be while a transaction "
                f"holds its write lock, which may be the one given to within(); nothing ran. Run `semel migrate` first."
            )
            raise SchemaOutdated(message) from error

    def _demand_same_file(self) -> None:
        """By the file itself: a copy of the database has the same install_id.

        A plain PRAGMA, because a SELECT would fix what the caller's transaction can see, and its first write would
        then fail if somebody has written since. A text_factory of the caller's own making may have changed the name
        beyond recognition; then only the install_id is compared.
        """
        if self._connection.text_factory not in (str, bytes):
            return
        cursor = sqlite3.Cursor(self._connection)
        files = {os.fsdecode(name): os.fsdecode(file) for _, name, file in cursor.execute("PRAGMA database_list")}
        cursor.close()
        if not _same_file(files["main"], self._settings.path):
            message = (
                f"The connection given to within() leads to {files['main'] or 'a database in memory'}, and the "
                f"records are in {self._settings.path}; nothing ran. Give a connection to the same file."
            )
            raise NotInTransaction(message)


class AsyncSqliteJoined:
    """The same for a coroutine: a `sqlite3.Connection` is used where it is, in the loop's own thread."""

    def __init__(self, joined: SqliteJoined) -> None:
        self._joined = joined

    async def perform(self, plan: Plan) -> Answers:
        """Run one plan, at once."""
        return self._joined.perform(plan)


def _begins_by_itself(connection: sqlite3.Connection) -> bool:
    autocommit = getattr(connection, "autocommit", _LEGACY)
    return autocommit == _LEGACY and connection.isolation_level is not None


def _same_file(one: str, other: str) -> bool:
    try:
        return bool(one) and Path(one).samefile(other)
    except OSError:
        return False  # a file that is gone, or not there yet, is not the store's


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

        def refuse(command: SqliteCommand) -> NoReturn:
            if command.kind is Kind.RELEASE and isinstance(meaning, (NotInTransaction, errors.WriteLocked)):
                raise ended() from error
            raise meaning

        return checked(run(plan, refuse))

    def _meaning(self, error: Exception) -> Exception:
        inner = getattr(error, "orig", None)
        if isinstance(inner, sqlite3.Error):
            meaning = errors.translate_joined_error(inner, self._name, lost=False)
            return error if meaning is inner else meaning
        return translate_server_error_in_joined(error, sqlalchemy_error_kind(error, lambda _: None), self._name)


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
    dialect = dialect_of(connection)
    if dialect != "sqlite":
        message = (
            f"A {kinds(connection)[0]} leads to {dialect}, and the records are in SQLite; nothing ran. "
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
