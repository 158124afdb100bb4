"""A run on one SQLite file."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any, ClassVar, Final

from semel.core.store import Store
from semel.stores.sqlite import SqliteStore, migrate
from tests.kill.grounds.ground import Row
from tests.kill.grounds.sql import COLUMNS, TABLE, SqlGround

_BEGINNINGS: Final = ("", "BEGIN", "BEGIN IMMEDIATE")


class SqliteSession:
    """A connection of `sqlite3`."""

    def __init__(self, path: str) -> None:
        # A bound for the hopeless: how long a busy machine makes writers wait for each other is not judged here.
        self.raw = sqlite3.connect(path, timeout=60, check_same_thread=False)

    def begin(self, chance: random.Random) -> None:
        """Begin; the first way leaves it to sqlite3."""
        beginning = chance.choice(_BEGINNINGS)
        if beginning:
            self.raw.execute(beginning)

    def begin_step(self) -> None:
        """It begins by itself."""

    @property
    def in_transaction(self) -> bool:
        """Whether there is something to commit."""
        return self.raw.in_transaction

    def insert(self, row: Row) -> None:
        """The effect of a handler."""
        self.raw.execute(f"INSERT INTO effect ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", row)  # noqa: S608 - names of ours

    def commit(self) -> None:
        """End the transaction."""
        self.raw.commit()

    def rollback(self) -> None:
        """Undo what is open."""
        if self.raw.in_transaction:
            self.raw.rollback()

    def close(self) -> None:
        """Let go of the file."""
        self.raw.close()


class AsyncSqliteSession:
    """The same for tasks. Nothing here waits between begin and commit: see `tasks.py`."""

    def __init__(self, path: str) -> None:
        self._session = SqliteSession(path)
        self.raw = self._session.raw

    async def begin(self, chance: random.Random) -> None:
        """Begin."""
        self._session.begin(chance)

    async def begin_step(self) -> None:
        """It begins by itself."""

    @property
    def in_transaction(self) -> bool:
        """Whether there is something to commit."""
        return self.raw.in_transaction

    async def insert(self, row: Row) -> None:
        """The effect of a handler."""
        self._session.insert(row)

    async def commit(self) -> None:
        """End the transaction."""
        self._session.commit()

    async def rollback(self) -> None:
        """Undo what is open."""
        self._session.rollback()

    async def close(self) -> None:
        """Let go of the file."""
        self._session.close()


class SqliteGround(SqlGround):
    """The file `name`."""

    commits_rounds: ClassVar = True
    lost: ClassVar[tuple[type[Exception], ...]] = ()

    def __init__(self, name: str) -> None:
        self.name = name
        self.cache: str | None = None

    def prepare(self) -> None:
        """Make the tables."""
        migrate(Path(self.name))
        with sqlite3.connect(self.name) as connection:
            connection.execute(TABLE)
        connection.close()

    def store(self) -> Store:
        """The store under test."""
        return SqliteStore(self.name)

    def session(self) -> SqliteSession:
        """A caller's connection."""
        return SqliteSession(self.name)

    def async_session(self) -> AsyncSqliteSession:
        """The same for tasks."""
        return AsyncSqliteSession(self.name)

    def fetch(self, text: str) -> list[tuple[Any, ...]]:
        """What one statement finds."""
        connection = sqlite3.connect(self.name, timeout=30)
        try:
            return connection.execute(text).fetchall()
        finally:
            connection.close()
