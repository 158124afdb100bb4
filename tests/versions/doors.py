"""One shape for every library: a session that writes, reads and ends, so that each behaviour is proved through all."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import psycopg
import pymysql
import sqlalchemy as sa
from pymysql.constants import CLIENT
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_asyncio

from semel.versions import Unchanged, Write, Written, arun, run

Server = Literal["sqlite", "postgresql", "mariadb", "mysql"]
ENOUGH = 60  # seconds a writer may wait for another one


class Session(Protocol):
    """A connection in a transaction of its own."""

    connection: Any

    async def write(self, write: Write) -> Written | Unchanged: ...
    async def sql(self, text: str) -> list[tuple[Any, ...]]: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def close(self) -> None: ...


class Plain:
    """sqlite3, psycopg, PyMySQL, and SQLAlchemy's connections and sessions; a call may wait, so it is in a thread."""

    def __init__(self, connection: Any, engine: sa.Engine | None = None) -> None:
        self.connection = connection
        self._engine = engine

    async def write(self, write: Write) -> Written | Unchanged:
        return await asyncio.to_thread(run, self.connection, write)

    async def sql(self, text: str) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(self._sql, text)

    def _sql(self, text: str) -> list[tuple[Any, ...]]:
        if self._engine is not None:
            result = self.connection.execute(sa.text(text))
            return [tuple(row) for row in result] if result.returns_rows else []
        cursor = self.connection.cursor()
        cursor.execute(text)
        rows = cursor.fetchall() if cursor.description else []
        cursor.close()
        return list(rows)

    async def commit(self) -> None:
        await asyncio.to_thread(self.connection.commit)

    async def rollback(self) -> None:
        await asyncio.to_thread(self.connection.rollback)

    async def close(self) -> None:
        self.connection.close()
        if self._engine is not None:
            self._engine.dispose()


class Waiting:
    """psycopg and asyncmy in their async form, and SQLAlchemy's async connections and sessions."""

    def __init__(self, connection: Any, engine: sa_asyncio.AsyncEngine | None = None) -> None:
        self.connection = connection
        self._engine = engine

    async def write(self, write: Write) -> Written | Unchanged:
        return await arun(self.connection, write)

    async def sql(self, text: str) -> list[tuple[Any, ...]]:
        if self._engine is not None:
            result = await self.connection.execute(sa.text(text))
            return [tuple(row) for row in result] if result.returns_rows else []
        async with self.connection.cursor() as cursor:
            await cursor.execute(text)
            return list(await cursor.fetchall()) if cursor.description else []

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        closing = self.connection.close()
        if closing is not None:
            await closing
        if self._engine is not None:
            await self._engine.dispose()


class Asyncpg:
    """asyncpg, whose transactions are objects."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._transaction: Any = None

    async def write(self, write: Write) -> Written | Unchanged:
        await self._begin()
        return await arun(self.connection, write)

    async def sql(self, text: str) -> list[tuple[Any, ...]]:
        await self._begin()
        return [tuple(row) for row in await self.connection.fetch(text)]

    async def commit(self) -> None:
        await self._end("commit")

    async def rollback(self) -> None:
        await self._end("rollback")

    async def close(self) -> None:
        await self.connection.close()

    async def _begin(self) -> None:
        if self._transaction is None:
            self._transaction = self.connection.transaction()
            await self._transaction.start()

    async def _end(self, how: str) -> None:
        if self._transaction is not None:
            await getattr(self._transaction, how)()
            self._transaction = None


@dataclass(frozen=True)
class Door:
    """How to open sessions through one library. `url` is of the database, without a driver's name."""

    server: Server
    open: Callable[[str], Awaitable[Session]]


def _mysql(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password or "",
        "database": parts.path.strip("/"),
    }


def _with(driver: str, url: str) -> str:
    return f"{driver}{url[url.index('://') :]}"


async def _sqlite3(url: str) -> Session:
    return Plain(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=ENOUGH, check_same_thread=False))


async def _psycopg(url: str) -> Session:
    return Plain(psycopg.connect(url))


async def _psycopg_async(url: str) -> Session:
    return Waiting(await psycopg.AsyncConnection.connect(url))


async def _asyncpg(url: str) -> Session:
    return Asyncpg(await asyncpg.connect(url))


async def _pymysql(url: str) -> Session:
    return Plain(pymysql.connect(**_mysql(url)))


async def _pymysql_found_rows(url: str) -> Session:
    return Plain(pymysql.connect(**_mysql(url), client_flag=CLIENT.FOUND_ROWS))


async def _asyncmy(url: str) -> Session:
    return Waiting(await asyncmy.connect(**_mysql(url)))


def _alchemy(driver: str, kind: Literal["connection", "session"]) -> Callable[[str], Awaitable[Session]]:
    async def opened(url: str) -> Session:
        settings = {"check_same_thread": False, "timeout": ENOUGH} if driver == "sqlite" else {}
        engine = sa.create_engine(_with(driver, url), connect_args=settings, poolclass=sa.NullPool)
        return Plain(engine.connect() if kind == "connection" else orm.Session(engine), engine)

    return opened


def _async_alchemy(driver: str, kind: Literal["connection", "session"]) -> Callable[[str], Awaitable[Session]]:
    async def opened(url: str) -> Session:
        settings = {"timeout": ENOUGH} if "sqlite" in driver else {}
        engine = sa_asyncio.create_async_engine(_with(driver, url), connect_args=settings, poolclass=sa.NullPool)
        if kind == "session":
            return Waiting(sa_asyncio.AsyncSession(engine), engine)
        return Waiting(await engine.connect(), engine)

    return opened


_LIBRARIES: dict[Server, dict[str, Callable[[str], Awaitable[Session]]]] = {
    "sqlite": {
        "sqlite3": _sqlite3,
        "sqlalchemy-sqlite-connection": _alchemy("sqlite", "connection"),
        "sqlalchemy-sqlite-session": _alchemy("sqlite", "session"),
        "sqlalchemy-aiosqlite-session": _async_alchemy("sqlite+aiosqlite", "session"),
    },
    "postgresql": {
        "psycopg": _psycopg,
        "psycopg-async": _psycopg_async,
        "asyncpg": _asyncpg,
        "sqlalchemy-psycopg-session": _alchemy("postgresql+psycopg", "session"),
        "sqlalchemy-asyncpg-connection": _async_alchemy("postgresql+asyncpg", "connection"),
    },
    "mariadb": {
        "pymysql": _pymysql,
        "pymysql-found-rows": _pymysql_found_rows,
        "asyncmy": _asyncmy,
        "sqlalchemy-pymysql-connection": _alchemy("mysql+pymysql", "connection"),
        "sqlalchemy-mariadb-session": _alchemy("mariadb+pymysql", "session"),
        "sqlalchemy-asyncmy-session": _async_alchemy("mysql+asyncmy", "session"),
    },
    "mysql": {
        "mysql-pymysql": _pymysql,
        "mysql-pymysql-found-rows": _pymysql_found_rows,
        "mysql-asyncmy": _asyncmy,
        "mysql-sqlalchemy-pymysql-session": _alchemy("mysql+pymysql", "session"),
    },
}
DOORS = {name: Door(server, opens) for server, doors in _LIBRARIES.items() for name, opens in doors.items()}
