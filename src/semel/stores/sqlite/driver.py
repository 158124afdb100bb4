"""Drivers: rounds of plans on the store's own connections, from threads and from event loops.

A sync round runs in the thread that asks for it. An async round reads in the loop's own thread (a look-up by primary
key takes some 10 µs, a hop to a thread and back 50) and goes to the writer thread only where something is to be
written; scans go to a thread. What always holds: answers count after the one COMMIT of the round; a store that cannot
be used is the reply of every plan, it is not raised.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Sequence
from functools import partial

from semel.core.store import Answers, Plan
from semel.stores.sqlite.commands import Kind
from semel.stores.sqlite.database import Database, abandon, attach, detach
from semel.stores.sqlite.round import Round
from semel.stores.sqlite.settings import Settings

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
                if work.reads(upto):
                    self._read(database, work, upto)
        except Exception as error:  # noqa: BLE001 - every plan of the round is told
            work.fail(error)
        if work.waits:
            self._write(database, work, self._deadline())
        return work.replies

    def close(self) -> None:
        """Let go of the file; the last driver on it closes the connections."""
        self._let_go()


class AsyncSqliteDriver(_User):
    """Rounds for event loops. What is written goes through the one writer thread, whichever loop it comes from."""

    eager = True
    gathers = True

    async def perform(self, plans: Sequence[Plan]) -> Replies:
        """Run one round. Where the caller is cancelled, what was sent to the writer goes on."""
        database, work = self._database(), self._round(plans)
        try:
            if not database.is_open:
                await database.worker.submit(partial(database.ready, self._settings))
            if work.reads(Kind.READ):
                self._read(database, work, Kind.READ)
            if work.reads(Kind.SCAN):
                await asyncio.to_thread(self._read, database, work, Kind.SCAN)
        except Exception as error:  # noqa: BLE001 - every plan of the round is told
            work.fail(error)
        if work.waits:
            await database.worker.submit(partial(self._write, database, work, self._deadline()))
        return work.replies

    async def close(self) -> None:
        """Let go of the file; the last driver on it closes the connections."""
        await asyncio.to_thread(self._let_go)
