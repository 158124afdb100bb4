"""Drivers of the SQLite store: batches of plans in one read phase and at most one transaction.

- Answers count only after the one COMMIT of the batch. An error of the database (not of a single value) fails every
  plan of the transaction, and nothing of it is kept.
- Whatever interrupts a batch, the connection is left without an open transaction.
- A sync batch runs in the calling thread. An async batch reads in the loop's own thread (a look-up by primary key takes
  some 10 µs, a hop to a thread and back 50) and goes to the writer thread only to write; scans go to a thread.
- A store that cannot be used is the reply of every plan; it is not raised.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from semel.core.store import Answers, Plan
from semel.stores.sql.dialect import Row
from semel.stores.sqlite.commands import Kind, Reply, SqliteCommand
from semel.stores.sqlite.database import Database, abandon, attach, begin, detach
from semel.stores.sqlite.errors import OF_ONE_OPERATION, translate_error
from semel.stores.sqlite.settings import Settings

Waiting = tuple[int, Plan, SqliteCommand]


def execute(cursor: sqlite3.Cursor, command: SqliteCommand, values: dict[str, Any], now: int) -> Reply | list[Row]:
    """Carry out a command with what follows from what it changed; answers what its plan is to be sent."""
    cursor.execute(command.text, values)
    rows, changed = cursor.fetchall(), cursor.rowcount
    if command.is_bare:
        return rows, changed, now
    if changed > 0:
        for text in command.follow:
            cursor.execute(text, values)
            rows = cursor.fetchall()
    elif command.otherwise:
        cursor.execute(command.otherwise, values)
        rows = cursor.fetchall()
    return rows if command.to_rows is None else command.to_rows(rows, changed, now)


class Round:
    """The plans of one round, and how far each has come."""

    def __init__(self, plans: Sequence[Plan], settings: Settings) -> None:
        self._clock = settings.clock
        self._settings = settings
        self.replies: list[Any] = [None] * len(plans)
        """One reply per plan, once nothing waits any more."""
        self.waiting: list[Waiting] = []
        """The plans that are not done yet."""
        self.lowest = Kind.RELEASE
        """The least that one of them asks for: whether something can be carried on by reading."""
        for place, plan in enumerate(plans):
            try:
                command: SqliteCommand = next(plan)
            except StopIteration as stop:
                self.replies[place] = stop.value
            except Exception as error:  # noqa: BLE001 - a bug of this plan is its own reply
                self.replies[place] = error
            else:
                self.waiting.append((place, plan, command))
                self.lowest = min(self.lowest, command.kind)

    def read(self, connection: sqlite3.Connection, upto: Kind) -> None:
        """Carry every plan on, as far as reading carries it."""
        cursor = connection.cursor()
        still, self.lowest = [], Kind.RELEASE
        for place, plan, command in self.waiting:
            try:
                wanted = self._carry(place, plan, command, cursor, upto)
            except Exception as error:  # noqa: BLE001 - a bug of this plan is its own reply
                self.replies[place] = error
            else:
                if wanted is not None:
                    still.append((place, plan, wanted))
                    self.lowest = min(self.lowest, wanted.kind)
        self.waiting = still

    def write(self, connection: sqlite3.Connection, deadline: float) -> None:
        """Carry every plan to its end in one transaction."""
        waiting, self.waiting = self.waiting, []
        committing = False
        try:
            _leave(connection)  # where the last round was interrupted in its last moment
            begin(connection, self._settings.name, deadline)
            cursor = connection.cursor()
            for place, plan, command in waiting:
                self._carry(place, plan, command, cursor, Kind.WRITE)
            committing = True
            cursor.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail(waiting, translate_error(error, self._settings.name, written=committing))
        except Exception as error:  # noqa: BLE001 - a bug fails this round, and is seen by all of its callers
            self._fail(waiting, error)
        finally:
            _leave(connection)

    def fail(self, error: Exception) -> None:
        """Give up on every plan that is not done: the store cannot be used."""
        waiting, self.waiting = self.waiting, []
        self._fail(waiting, error)

    def _fail(self, waiting: list[Waiting], error: Exception) -> None:
        for place, plan, _ in waiting:
            plan.close()
            self.replies[place] = error

    def _carry(
        self, place: int, plan: Plan, command: SqliteCommand, cursor: sqlite3.Cursor, upto: Kind
    ) -> SqliteCommand | None:
        """Carry one plan on until it is done, or asks for more than `upto`."""
        writing = upto is Kind.WRITE
        try:
            while command.kind <= upto:
                try:
                    now = self._clock()
                    values = command.named if command.kind is Kind.READ else {**command.named, "now": now}
                    reply = execute(cursor, command, values, now)
                except OF_ONE_OPERATION as error:
                    if writing and not cursor.connection.in_transaction:
                        raise  # a trigger rolled all of it back; what followed would commit one by one
                    command = plan.throw(error)
                except sqlite3.Error as error:
                    if writing:
                        raise
                    command = plan.throw(translate_error(error, self._settings.name))
                else:
                    command = plan.send(reply)
        except StopIteration as stop:
            self.replies[place] = stop.value
            return None
        return command


def _leave(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with suppress(sqlite3.Error):  # SQLite rolls back by itself on the errors that make this fail
            connection.execute("ROLLBACK")


Replies = list[Answers | Exception]


class _User:
    """A user of the database of the process it is in."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._held: Database | None = None
        self._finalizer: weakref.finalize[..., _User] | None = None
        self._database()  # taken note of, not opened

    def _database(self) -> Database:
        database = attach(self._settings, self._held)
        if database is not self._held:
            self._held = database
            self._finalizer = weakref.finalize(self, abandon, database)
            self._finalizer.atexit = False
        return database

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None and self._finalizer is not None and self._finalizer.detach() is not None:
            detach(held)

    def _round(self, plans: Sequence[Plan]) -> Round:
        return Round(plans, self._settings)

    def _read(self, database: Database, work: Round, upto: Kind) -> None:
        connection = database.lend(self._settings, short=upto is Kind.READ)
        try:
            work.read(connection, upto)
        finally:
            database.give_back(connection)

    def _write(self, database: Database, work: Round, deadline: float) -> None:
        try:
            with database.writer(self._settings, deadline) as connection:
                work.write(connection, deadline)
        except Exception as error:  # noqa: BLE001 - every plan of the round is told
            work.fail(error)

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.busy_for


class SqliteDriver(_User):
    """Rounds in the calling thread."""

    def perform(self, plans: Sequence[Plan]) -> Replies:
        """Run one round."""
        database, work = self._database(), self._round(plans)
        try:
            for upto in (Kind.READ, Kind.SCAN):
                if work.lowest <= upto:
                    self._read(database, work, upto)
        except Exception as error:  # noqa: BLE001 - every plan of the round is told
            work.fail(error)
        if work.waiting:
            self._write(database, work, self._deadline())
        return work.replies

    def close(self) -> None:
        """Let go of the file; the last driver on it closes the connections."""
        self._let_go()


class AsyncSqliteDriver(_User):
    """Rounds for event loops. What is written goes through the one writer thread, whichever loop it comes from."""

    async def perform(self, plans: Sequence[Plan]) -> Replies:
        """Run one round. Where the caller is cancelled, what was sent to the writer goes on."""
        database, work = self._database(), self._round(plans)
        try:
            if not database.is_open:
                await database.worker.submit(partial(database.ready, self._settings))
            if work.lowest <= Kind.READ:
                self._read(database, work, Kind.READ)
            if work.lowest <= Kind.SCAN:
                await asyncio.to_thread(self._read, database, work, Kind.SCAN)
        except Exception as error:  # noqa: BLE001 - every plan of the round is told
            work.fail(error)
        if work.waiting:
            await database.worker.submit(partial(self._write, database, work, self._deadline()))
        return work.replies

    async def close(self) -> None:
        """Let go of the file; the last driver on it closes the connections."""
        await asyncio.to_thread(self._let_go)
