"""How each client library opens, commits and forgets a transaction, as users write it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol

import asyncpg
import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

INSERT = "INSERT INTO payment VALUES (1)"


class Library(Protocol):
    """A client library whose calls block. `unit` commits at its end, or forgets to, and rolls back on an error."""

    def unit(self, *, commits: bool) -> Any:
        """A context manager that gives a connection in a transaction."""

    def book(self, connection: Any, statement: str = INSERT) -> None:
        """Write a row."""

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
        self.engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        self._sessions = sessionmaker(self.engine)

    def unit(self, *, commits: bool) -> Any:
        """See `Library`."""
        return self._sessions.begin() if commits else self._sessions()

    def book(self, connection: Session, statement: str = INSERT) -> None:
        """See `Library`."""
        connection.execute(sa.text(statement))

    def close(self) -> None:
        """See `Library`."""
        self.engine.dispose()


class AsyncLibrary(Protocol):
    """The same, awaited."""

    def unit(self, *, commits: bool) -> Any:
        """A context manager that gives a connection in a transaction."""

    async def book(self, connection: Any, statement: str = INSERT) -> None:
        """Write a row."""

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
        self.engine = create_async_engine(url)
        self._sessions = async_sessionmaker(self.engine)

    def unit(self, *, commits: bool) -> Any:
        """See `AsyncLibrary`."""
        return self._sessions.begin() if commits else self._sessions()

    async def book(self, connection: AsyncSession, statement: str = INSERT) -> None:
        """See `AsyncLibrary`."""
        await connection.execute(sa.text(statement))

    async def close(self) -> None:
        """See `AsyncLibrary`."""
        await self.engine.dispose()


class AsyncCore(AsyncSqlalchemy):
    """Connections of SQLAlchemy without a session."""

    def unit(self, *, commits: bool) -> Any:
        """See `AsyncLibrary`."""
        return self.engine.begin() if commits else self.engine.connect()
