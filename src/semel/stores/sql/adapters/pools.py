"""Adapters to the caller's pools of asyncpg and psycopg: a connection is borrowed for a batch."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from semel.stores.sql.adapter import Server
from semel.stores.sql.adapters.asyncpg import AsyncpgAdapter
from semel.stores.sql.adapters.psycopg import AsyncPsycopgAdapter, PsycopgAdapter
from semel.stores.sql.settings import Settings


class AsyncpgPool(AsyncpgAdapter):
    """Borrows from an `asyncpg.Pool`."""

    keeps = False

    def __init__(self, pool: Any, server: Server[dict[str, str]]) -> None:
        super().__init__(server)
        self._pool = pool

    async def connect(self, settings: Settings) -> Any:
        """Take one; outside a transaction it is in autocommit."""
        return await self._pool.acquire(timeout=settings.connect_timeout)

    async def close(self, connection: Any) -> None:
        """Put it back."""
        with suppress(Exception):
            await self._pool.release(connection)


class PsycopgPool(PsycopgAdapter):
    """Borrows from a `psycopg_pool.ConnectionPool`."""

    keeps = False

    def __init__(self, pool: Any, server: Server[dict[str, str]]) -> None:
        super().__init__(server)
        self._pool = pool
        self._committing: set[int] = set()  # those that were in autocommit before, by id: they are ours meanwhile

    def connect(self, settings: Settings) -> Any:
        """Take one, and have it commit by itself."""
        connection = self._pool.getconn(timeout=settings.connect_timeout)
        if connection.autocommit:
            self._committing.add(id(connection))
        connection.autocommit = True
        return connection

    def close(self, connection: Any) -> None:
        """Put it back as it was."""
        was = id(connection) in self._committing
        self._committing.discard(id(connection))
        with suppress(Exception):
            connection.autocommit = was
        self._pool.putconn(connection)


class AsyncPsycopgPool(AsyncPsycopgAdapter):
    """Borrows from a `psycopg_pool.AsyncConnectionPool`."""

    keeps = False

    def __init__(self, pool: Any, server: Server[dict[str, str]]) -> None:
        super().__init__(server)
        self._pool = pool
        self._committing: set[int] = set()

    async def connect(self, settings: Settings) -> Any:
        """Take one, and have it commit by itself."""
        connection = await self._pool.getconn(timeout=settings.connect_timeout)
        if connection.autocommit:
            self._committing.add(id(connection))
        await connection.set_autocommit(True)
        return connection

    async def close(self, connection: Any) -> None:
        """Put it back as it was."""
        was = id(connection) in self._committing
        self._committing.discard(id(connection))
        with suppress(Exception):
            await connection.set_autocommit(was)
        await self._pool.putconn(connection)
