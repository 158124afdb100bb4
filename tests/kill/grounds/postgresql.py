"""A run on a PostgreSQL database: callers use psycopg in threads and asyncpg in tasks."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any, ClassVar

import asyncpg
import psycopg
from psycopg.pq import TransactionStatus

from semel.stores.postgresql import PostgresStore
from tests.kill.grounds.ground import Row
from tests.kill.grounds.served import ServedGround
from tests.kill.grounds.sql import COLUMNS


class PsycopgSession:
    """A connection of psycopg, which begins transactions by itself."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None

    @property
    def raw(self) -> psycopg.Connection[Any]:
        """What `within` is given."""
        assert self._connection is not None
        return self._connection

    def begin(self, chance: random.Random) -> None:
        """Leave it to psycopg, or begin with a statement of one's own."""
        self.begin_step()
        if chance.random() < 0.5:
            self.raw.execute("SELECT 1")

    def begin_step(self) -> None:
        """Only here a lost connection is replaced: a commit on a new one would say that all is well."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._url)

    @property
    def in_transaction(self) -> bool:
        """Whether there is something to commit."""
        return self._connection is not None and self._connection.info.transaction_status != TransactionStatus.IDLE

    def insert(self, row: Row) -> None:
        """The effect of a handler."""
        self.raw.execute(f"INSERT INTO effect ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s)".encode(), row)  # noqa: S608

    def commit(self) -> None:
        """End the transaction."""
        self.raw.commit()

    def rollback(self) -> None:
        """Undo what is open, or let go of a connection that is of no use any more."""
        if self._connection is not None:
            try:
                self._connection.rollback()
            except psycopg.Error:
                self.close()

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None


class AsyncpgSession:
    """A connection of asyncpg, on which transactions are begun by hand."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection[Any] | None = None
        self._transaction: Any = None

    @property
    def raw(self) -> Any:
        """What `within` is given."""
        return self._connection

    async def begin(self, chance: random.Random) -> None:
        """Begin."""
        del chance
        await self.begin_step()

    async def begin_step(self) -> None:
        """Begin."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._url)
        self._transaction = self._connection.transaction()
        await self._transaction.start()

    @property
    def in_transaction(self) -> bool:
        """Whether there is something to commit."""
        return self._transaction is not None

    async def insert(self, row: Row) -> None:
        """The effect of a handler."""
        assert self._connection is not None
        await self._connection.execute(f"INSERT INTO effect ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)", *row)  # noqa: S608

    async def commit(self) -> None:
        """End the transaction."""
        await self._transaction.commit()
        self._transaction = None

    async def rollback(self) -> None:
        """Undo what is open, or let go of a connection that is of no use any more."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            try:
                await transaction.rollback()
            except PostgresqlGround.lost:
                await self.close()

    async def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = self._transaction = None


class PostgresqlGround(ServedGround):
    """The database at the URL `name`."""

    lost: ClassVar[tuple[type[Exception], ...]] = (
        psycopg.OperationalError,
        psycopg.InterfaceError,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
    )

    def __init__(self, name: str) -> None:
        super().__init__(name, PostgresStore, PsycopgSession, AsyncpgSession)

    def fetch(self, text: str) -> list[tuple[Any, ...]]:
        """What one statement finds."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []
