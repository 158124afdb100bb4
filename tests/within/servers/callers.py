"""Connections of a caller, one class per library: the same few verbs, written as that library's users write them.

What always holds: `thing` is what the caller gives to `within`, and every verb goes through it and nothing else. In the
sync colour the verbs are coroutines that never wait.
"""

import sys
from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import psycopg
import pymysql
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_asyncio

Rows = list[tuple[Any, ...]]


class Caller(Protocol):
    """A connection as its owner sees it."""

    thing: Any

    async def begin(self, isolation: str = "READ COMMITTED") -> None:
        """Begin a transaction."""

    async def sql(self, text: str) -> Rows:
        """Run a statement of the caller's own."""

    async def commit(self) -> None:
        """End the transaction."""

    async def rollback(self) -> None:
        """Take it back."""

    async def close(self) -> None:
        """Let go, whatever state it is in."""


class Plain:
    """What is the same in most libraries: a statement sets the isolation, and the connection ends its transactions."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    async def begin(self, isolation: str = "READ COMMITTED") -> None:
        await self.sql(f"SET TRANSACTION ISOLATION LEVEL {isolation}")

    async def sql(self, text: str) -> Rows:
        raise NotImplementedError

    async def commit(self) -> None:
        self.thing.commit()

    async def rollback(self) -> None:
        self.thing.rollback()

    async def close(self) -> None:
        self.thing.close()


class Awaited(Plain):
    """The same, awaited."""

    async def commit(self) -> None:
        await self.thing.commit()

    async def rollback(self) -> None:
        await self.thing.rollback()

    async def close(self) -> None:
        await self.thing.close()


class Cursored(Plain):
    """Statements go through a cursor."""

    async def sql(self, text: str) -> Rows:
        with self.thing.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else []


class Psycopg(Plain):
    """`psycopg.Connection`."""

    @classmethod
    async def open(cls, url: str, **settings: Any) -> "Psycopg":
        return cls(psycopg.connect(url, **settings))

    async def sql(self, text: str) -> Rows:
        cursor = self.thing.execute(text)
        return list(cursor.fetchall()) if cursor.description else []


class AsyncPsycopg(Awaited):
    """`psycopg.AsyncConnection`."""

    @classmethod
    async def open(cls, url: str, **settings: Any) -> "AsyncPsycopg":
        return cls(await psycopg.AsyncConnection.connect(url, **settings))

    async def sql(self, text: str) -> Rows:
        cursor = await self.thing.execute(text)
        return list(await cursor.fetchall()) if cursor.description else []


class Asyncpg:
    """`asyncpg.Connection`, inside `transaction()`."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing
        self._transaction: Any = None

    @classmethod
    async def open(cls, url: str, **settings: Any) -> "Asyncpg":
        return cls(await asyncpg.connect(url, **settings))

    async def begin(self, isolation: str = "READ COMMITTED") -> None:
        self._transaction = self.thing.transaction(isolation=isolation.lower().replace(" ", "_"))
        await self._transaction.start()

    async def sql(self, text: str) -> Rows:
        return [tuple(row) for row in await self.thing.fetch(text)]

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def close(self) -> None:
        await self.thing.close(timeout=5)


def mysql_address(url: str) -> dict[str, Any]:
    """The URL as the libraries for MySQL want it."""
    at = urlsplit(url)
    return {
        "host": at.hostname,
        "port": at.port,
        "user": at.username,
        "password": at.password or "",
        "database": at.path.strip("/"),
    }


class Pymysql(Cursored):
    """`pymysql.Connection`, which begins by itself."""

    @classmethod
    async def open(cls, url: str, **settings: Any) -> "Pymysql":
        return cls(pymysql.connect(**mysql_address(url), **settings))


class Asyncmy(Awaited):
    """`asyncmy.Connection`."""

    @classmethod
    async def open(cls, url: str, **settings: Any) -> "Asyncmy":
        return cls(await asyncmy.connect(**mysql_address(url), **settings))

    async def sql(self, text: str) -> Rows:
        async with self.thing.cursor() as cursor:
            await cursor.execute(text)
            return list(await cursor.fetchall()) if cursor.description else []

    async def close(self) -> None:
        await self.thing.ensure_closed()


def rows_of(result: sa.CursorResult[Any]) -> Rows:
    """What SQLAlchemy gives back for a statement, which may have no rows."""
    return [tuple(row) for row in result] if result.returns_rows else []


class Alchemy(Plain):
    """A SQLAlchemy `Connection` or `Session`."""

    def __init__(self, engine: Any, thing: Any) -> None:
        super().__init__(thing)
        self.engine = engine

    async def sql(self, text: str) -> Rows:
        return rows_of(self.thing.execute(sa.text(text)))

    async def close(self) -> None:
        await super().close()
        self.engine.dispose()


class AsyncAlchemy(Awaited):
    """A SQLAlchemy `AsyncConnection` or `AsyncSession`."""

    def __init__(self, engine: Any, thing: Any) -> None:
        super().__init__(thing)
        self.engine = engine

    async def sql(self, text: str) -> Rows:
        return rows_of(await self.thing.execute(sa.text(text)))

    async def close(self) -> None:
        await super().close()
        await self.engine.dispose()


def with_driver(url: str, driver: str) -> str:
    """The URL as SQLAlchemy writes it."""
    return f"{driver}{url[url.index('://') :]}"


def alchemy(driver: str, kind: str) -> Any:
    """Opens a `Connection` or a `Session` on a library."""

    async def opened(url: str, **settings: Any) -> Alchemy:
        engine = sa.create_engine(with_driver(url, driver), poolclass=sa.NullPool, **settings)
        return Alchemy(engine, engine.connect() if kind == "connection" else orm.Session(engine))

    return opened


def async_alchemy(driver: str, kind: str) -> Any:
    """The same, awaited."""

    async def opened(url: str, **settings: Any) -> AsyncAlchemy:
        engine = sa_asyncio.create_async_engine(with_driver(url, driver), poolclass=sa.NullPool, **settings)
        return AsyncAlchemy(engine, await engine.connect() if kind == "connection" else sa_asyncio.AsyncSession(engine))

    return opened


class Django(Cursored):
    """A Django connection, inside `atomic`."""

    def __init__(self, thing: Any) -> None:
        super().__init__(thing)
        self._atomic: Any = None

    @classmethod
    async def open(cls, url: str, **settings: Any) -> "Django":
        from tests.within.servers.django_connections import new_connection

        return cls(new_connection(url, **settings))

    async def begin(self, isolation: str = "READ COMMITTED") -> None:
        from django.db import transaction

        self._atomic = transaction.atomic(using=self.thing.alias)
        self._atomic.__enter__()
        await super().begin(isolation)

    async def commit(self) -> None:
        atomic, self._atomic = self._atomic, None
        atomic.__exit__(None, None, None)

    async def rollback(self) -> None:
        from django.db import connections

        atomic, self._atomic = self._atomic, None
        connections[self.thing.alias] = self.thing  # `atomic` looks it up, and a task of its own would get another
        error = RuntimeError("rolled back by the test")
        atomic.__exit__(type(error), error, None)

    async def close(self) -> None:
        if self._atomic is not None and self.thing.connection is not None:
            await self.rollback()
        await super().close()
        sys.modules["django.db"].connections.settings.pop(self.thing.alias, None)
