"""How each client library opens, commits and forgets a transaction, as users write it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Protocol

import asyncpg
import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

INSERT: Final = "INSERT INTO payment VALUES (1)"
SIZE: Final = 2
"""How many connections a pool has: one for a request that is slow, one for everybody else."""
POOL: Final[dict[str, Any]] = {"pool_size": SIZE, "max_overflow": 0, "pool_timeout": 10.0}


class Library(Protocol):
    """A client library whose calls block. `unit` commits at its end, or forgets to, and rolls back on an error."""

    def unit(self, *, commits: bool) -> Any:
        """A context manager that gives a connection in a transaction."""

    def book(self, connection: Any, statement: str = INSERT) -> None:
        """Write a row."""

    def use(self) -> None:
        """Take a connection of the pool, as somebody else would."""

    def held(self) -> int:
        """How many connections are out of the pool."""

    def close(self) -> None:
        """Let go of connections."""


class Psycopg:
    """Connections of psycopg."""

    def __init__(self, url: str) -> None:
        self._url = url

    @contextmanager
    def unit(self, *, commits: bool) -> Iterator[Any]:
        """See `Library`."""
        connection = psycopg.connect(self._url)
        try:
            yield connection
            if commits:
                connection.commit()
        finally:
            connection.close()

    def book(self, connection: Any, statement: str = INSERT) -> None:
        """See `Library`."""
        connection.execute(statement)

    def use(self) -> None:
        """See `Library`."""
        raise NotImplementedError("there is no pool")

    def held(self) -> int:
        """See `Library`."""
        raise NotImplementedError("there is no pool")

    def close(self) -> None:
        """See `Library`."""


class Sqlite(Psycopg):
    """Connections of sqlite3."""

    @contextmanager
    def unit(self, *, commits: bool) -> Iterator[Any]:
        """See `Library`."""
        connection = sqlite3.connect(self._url.removeprefix("sqlite:///"))
        try:
            yield connection
            if commits:
                connection.commit()
        finally:
            connection.close()


class Sqlalchemy:
    """Sessions of SQLAlchemy."""

    def __init__(self, url: str) -> None:
        self.engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), **POOL)
        self._sessions = sessionmaker(self.engine)

    def unit(self, *, commits: bool) -> Any:
        """See `Library`."""
        return self._sessions.begin() if commits else self._sessions()

    def book(self, connection: Session, statement: str = INSERT) -> None:
        """See `Library`."""
        connection.execute(sa.text(statement))

    def use(self) -> None:
        """See `Library`."""
        with self.engine.connect() as connection:
            connection.execute(sa.text("SELECT 1"))

    def held(self) -> int:
        """See `Library`."""
        return int(self.engine.pool.checkedout())  # type: ignore[attr-defined]  # of a pool with a size

    def close(self) -> None:
        """See `Library`."""
        self.engine.dispose()


class AsyncLibrary(Protocol):
    """The same, awaited."""

    def unit(self, *, commits: bool) -> Any:
        """A context manager that gives a connection in a transaction."""

    async def book(self, connection: Any, statement: str = INSERT) -> None:
        """Write a row."""

    async def use(self) -> None:
        """Take a connection of the pool, as somebody else would."""

    def held(self) -> int:
        """How many connections are out of the pool."""

    async def close(self) -> None:
        """Let go of connections."""


class Asyncpg:
    """Connections of asyncpg."""

    def __init__(self, url: str) -> None:
        self._url = url

    @asynccontextmanager
    async def unit(self, *, commits: bool) -> AsyncIterator[Any]:
        """See `AsyncLibrary`."""
        connection = await asyncpg.connect(self._url)
        try:
            transaction = connection.transaction()
            await transaction.start()
            yield connection
            if commits:
                await transaction.commit()
        finally:
            await connection.close()

    async def book(self, connection: Any, statement: str = INSERT) -> None:
        """See `AsyncLibrary`."""
        await connection.execute(statement)

    async def use(self) -> None:
        """See `AsyncLibrary`."""
        raise NotImplementedError("there is no pool")

    def held(self) -> int:
        """See `AsyncLibrary`."""
        raise NotImplementedError("there is no pool")

    async def close(self) -> None:
        """See `AsyncLibrary`."""


class AsyncPsycopg(Asyncpg):
    """Connections of psycopg, awaited."""

    @asynccontextmanager
    async def unit(self, *, commits: bool) -> AsyncIterator[Any]:
        """See `AsyncLibrary`."""
        connection = await psycopg.AsyncConnection.connect(self._url)
        try:
            yield connection
            if commits:
                await connection.commit()
        finally:
            await connection.close()


class AsyncSqlalchemy:
    """Sessions of SQLAlchemy, awaited."""

    def __init__(self, url: str) -> None:
        driver = {"postgresql://": "postgresql+asyncpg://", "sqlite:///": "sqlite+aiosqlite:///"}
        for plain, with_driver in driver.items():
            url = url.replace(plain, with_driver)
        self.engine = create_async_engine(url, **POOL)
        self._sessions = async_sessionmaker(self.engine)

    def unit(self, *, commits: bool) -> Any:
        """See `AsyncLibrary`."""
        return self._sessions.begin() if commits else self._sessions()

    async def book(self, connection: AsyncSession, statement: str = INSERT) -> None:
        """See `AsyncLibrary`."""
        await connection.execute(sa.text(statement))

    async def use(self) -> None:
        """See `AsyncLibrary`."""
        async with self.engine.connect() as connection:
            await connection.execute(sa.text("SELECT 1"))

    def held(self) -> int:
        """See `AsyncLibrary`."""
        return int(self.engine.pool.checkedout())  # type: ignore[attr-defined]  # of a pool with a size

    async def close(self) -> None:
        """See `AsyncLibrary`."""
        await self.engine.dispose()


class AsyncCore(AsyncSqlalchemy):
    """Connections of SQLAlchemy without a session."""

    def unit(self, *, commits: bool) -> Any:
        """See `AsyncLibrary`."""
        return self.engine.begin() if commits else self.engine.connect()


class AsyncpgPool(Asyncpg):
    """Connections of a pool of asyncpg, taken before the first statement."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._pool: Any = None
        self._making = asyncio.Lock()

    @asynccontextmanager
    async def unit(self, *, commits: bool) -> AsyncIterator[Any]:
        """See `AsyncLibrary`."""
        pool = await self._made()
        async with pool.acquire(timeout=10.0) as connection, connection.transaction():
            yield connection
            assert commits

    async def _made(self) -> Any:
        async with self._making:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(self._url, min_size=SIZE, max_size=SIZE)
        return self._pool

    async def use(self) -> None:
        """See `AsyncLibrary`."""
        await (await self._made()).fetchval("SELECT 1", timeout=10.0)

    def held(self) -> int:
        """See `AsyncLibrary`."""
        return int(self._pool.get_size() - self._pool.get_idle_size())

    async def close(self) -> None:
        """See `AsyncLibrary`."""
        if self._pool is not None:
            await self._pool.close()
