"""The caller's own connection as a place for single operations, inside the caller's transaction.

What always holds: nothing here begins, commits, rolls back or retries; no setting of the connection is changed. The
record is written only into the store's own database, and only where a transaction is open or is begun by sqlite3 itself
with the first write. A savepoint set with the claim must still be there when its outcome is recorded: a handler that
ended the transaction is noticed, and the record, whose lease is over from the start, is in doubt and not lost.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from semel.core.flow import run
from semel.core.store import Answers, Plan
from semel.errors import NotInTransaction, SchemaOutdated, UsageError
from semel.stores.served.joined import checked
from semel.stores.sqlite.commands import Command, Kind, Reply, savepoint
from semel.stores.sqlite.settings import Settings
from semel.stores.sqlite.translate import OF_ONE_OPERATION, WriteLocked, code_of, translated_joined

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

    def _carry_out(self, command: Command) -> Reply:
        try:
            if command.kind is Kind.ENTER:
                self._demand_transaction()
            was_open = self._connection.in_transaction
        except sqlite3.Error as error:
            raise translated_joined(error, self._settings.name, lost=False) from error
        try:
            return self._execute(command)
        except sqlite3.Error as error:
            raise self._meaning(error, command, was_open=was_open) from error

    def _execute(self, command: Command) -> Reply:
        now = self._settings.clock()
        cursor = sqlite3.Cursor(self._connection)  # not connection.cursor(): that brings the caller's row_factory
        try:
            if command.kind is Kind.SAVEPOINT:
                self._mark(cursor, command)
            elif command.kind is Kind.RELEASE:
                self._release(cursor, command)
            else:
                cursor.execute(command.text, {**command.values, "now": now, "install": self._id})
            return cursor.fetchall(), cursor.rowcount, now
        finally:
            cursor.close()

    def _mark(self, cursor: sqlite3.Cursor, command: Command) -> None:
        cursor.execute(command.text)
        _marks.setdefault(id(self._connection), []).append(command.values["mark"])

    def _release(self, cursor: sqlite3.Cursor, command: Command) -> None:
        """Demand a mark. SQLite lets go of those set after it too: they are set again for whoever still needs them.

        That happens where tasks share a transaction and the first to begin is the first to end. The mark was still
        there, so the transaction is the one that the later marks were set in.
        """
        marks = _marks.pop(id(self._connection), [])
        mark = command.values["mark"]
        at = len(marks) - 1 - marks[::-1].index(mark) if mark in marks else len(marks)
        before, after = marks[:at], marks[at + 1 :]
        try:
            cursor.execute(command.text)
            for later in after:
                cursor.execute(savepoint(later).text)
        finally:
            if before or after:
                _marks[id(self._connection)] = before + after

    def _meaning(self, error: sqlite3.Error, command: Command, *, was_open: bool) -> Exception:
        if command.kind is Kind.RELEASE and code_of(error) == sqlite3.SQLITE_ERROR:
            message = (
                "The transaction that the claim was written in is not open any more: the handler committed it or "
                "rolled it back. What it committed is kept and its record is in doubt; what it rolled back did not "
                "happen. Leave commit and rollback to the code around within()."
            )
            return NotInTransaction(message)
        lost = was_open and not self._connection.in_transaction
        if isinstance(error, OF_ONE_OPERATION) and code_of(error) and not lost:
            return error
        return translated_joined(error, self._settings.name, lost=lost)

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
