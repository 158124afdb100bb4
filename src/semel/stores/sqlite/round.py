"""A round: several plans carried through one reading phase and at most one transaction.

What always holds: answers count only after COMMIT, which is one for all plans that write. What befalls the database
(not a single value) fails every plan of the transaction, and then nothing of it is kept. Whatever interrupts a round,
the connection is left without an open transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from semel.core.store import Answers, Plan
from semel.stores.sqlite.commands import Command, Kind, Reply
from semel.stores.sqlite.connect import begin
from semel.stores.sqlite.settings import Settings
from semel.stores.sqlite.translate import OF_ONE_OPERATION, translated

Waiting = tuple[int, Plan, Command]


class Round:
    """The plans of one round, and how far each has come."""

    def __init__(self, plans: Sequence[Plan], settings: Settings) -> None:
        self._clock = settings.clock
        self._settings = settings
        self._replies: list[Answers | Exception | None] = [None] * len(plans)
        self._waiting: list[Waiting] = []
        for place, plan in enumerate(plans):
            try:
                self._waiting.append((place, plan, next(plan)))
            except StopIteration as stop:
                self._replies[place] = stop.value
            except Exception as error:  # noqa: BLE001 - a bug of this plan is its own reply
                self._replies[place] = error

    @property
    def replies(self) -> list[Answers | Exception]:
        """One reply per plan, once nothing waits any more."""
        return cast("list[Answers | Exception]", self._replies)

    @property
    def waits(self) -> bool:
        """Whether a plan is not done yet."""
        return bool(self._waiting)

    def reads(self, upto: Kind) -> bool:
        """Whether a plan can be carried on by reading."""
        return any(command.kind <= upto for _, _, command in self._waiting)

    def read(self, connection: sqlite3.Connection, upto: Kind) -> None:
        """Carry every plan on, as far as reading carries it."""
        cursor = connection.cursor()
        still = []
        for place, plan, command in self._waiting:
            try:
                wanted = self._carry(place, plan, command, cursor, upto)
            except Exception as error:  # noqa: BLE001 - a bug of this plan is its own reply
                self._replies[place] = error
            else:
                if wanted is not None:
                    still.append((place, plan, wanted))
        self._waiting = still

    def write(self, connection: sqlite3.Connection, deadline: float) -> None:
        """Carry every plan to its end in one transaction."""
        waiting, self._waiting = self._waiting, []
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
            self._fail(waiting, translated(error, self._settings.name, written=committing))
        except Exception as error:  # noqa: BLE001 - a bug fails this round, and is seen by all of its callers
            self._fail(waiting, error)
        finally:
            _leave(connection)

    def fail(self, error: Exception) -> None:
        """Give up on every plan that is not done: the store cannot be used."""
        waiting, self._waiting = self._waiting, []
        self._fail(waiting, error)

    def _fail(self, waiting: list[Waiting], error: Exception) -> None:
        for place, plan, _ in waiting:
            plan.close()
            self._replies[place] = error

    def _carry(self, place: int, plan: Plan, command: Command, cursor: sqlite3.Cursor, upto: Kind) -> Command | None:
        """Carry one plan on until it is done, or asks for more than `upto`."""
        writing = upto is Kind.WRITE
        try:
            while command.kind <= upto:
                try:
                    reply = self._execute(cursor, command)
                except OF_ONE_OPERATION as error:
                    if writing and not cursor.connection.in_transaction:
                        raise  # a trigger rolled all of it back; what followed would commit one by one
                    command = plan.throw(error)
                except sqlite3.Error as error:
                    if writing:
                        raise
                    command = plan.throw(translated(error, self._settings.name))
                else:
                    command = plan.send(reply)
        except StopIteration as stop:
            self._replies[place] = stop.value
            return None
        return command

    def _execute(self, cursor: sqlite3.Cursor, command: Command) -> Reply:
        now = self._clock()
        cursor.execute(command.text, command.values if command.kind is Kind.READ else {**command.values, "now": now})
        return cursor.fetchall(), cursor.rowcount, now


def _leave(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with suppress(sqlite3.Error):  # SQLite rolls back by itself on the errors that make this fail
            connection.execute("ROLLBACK")
