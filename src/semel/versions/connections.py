"""Executes a write on the caller's connection, of any library, sync or async.

- The connection is recognized by its class, so no library is imported that the caller does not use.
- Rows are read as tuples, whatever the connection was told to make of them; cursors opened here are closed here.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from semel.core import flow
from semel.errors import UsageError
from semel.versions import dynamodb, sql_text
from semel.versions.execute import Reply, Step, writing
from semel.versions.sql_text import Dialect
from semel.versions.write import Items, Unchanged, Write, Written

_SQLITE = Dialect("sqlite", "?")
_PSYCOPG = Dialect("postgresql", "%s")
_ASYNCPG = Dialect("postgresql", "$")
_MYSQL = Dialect("mysql", "%s")
_SYNC = {
    "sqlite3.Connection": _SQLITE,
    "psycopg.Connection": _PSYCOPG,
    "pymysql.connections.Connection": _MYSQL,
}
_ASYNC = {
    "psycopg.AsyncConnection": _PSYCOPG,
    "asyncpg.connection.Connection": _ASYNCPG,
    "asyncpg.pool.PoolConnectionProxy": _ASYNCPG,
    "asyncmy.connection.Connection": _MYSQL,
}
_SPOKEN = {"sqlite": "sqlite", "postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}


def run(connection: Any, write: Write) -> Written | Unchanged:
    """Carry out `write` on a connection of sqlite3, psycopg or PyMySQL, or a SQLAlchemy `Connection` or `Session`.

    For an item of DynamoDB the connection is a client of boto3; the error then has the `item` that is there.

    Raises:
        ConcurrentModification: the row is not as expected; nothing was written.
        UsageError: the write or the connection cannot be used this way.
    """
    if dynamodb.is_client(connection, awaited=False):
        return dynamodb.run(connection, write)
    _no_items(write)
    name, perform = _sync_place(connection, write)
    return flow.run(writing(write, returning=name != "mysql"), perform)


async def arun(connection: Any, write: Write) -> Written | Unchanged:
    """Carry out `write` on a connection of psycopg (async), asyncpg or asyncmy, or SQLAlchemy's async ones.

    For an item of DynamoDB the connection is a client of aiobotocore; the error then has the `item` that is there.

    Raises:
        ConcurrentModification: the row is not as expected; nothing was written.
        UsageError: the write or the connection cannot be used this way.
    """
    if dynamodb.is_client(connection, awaited=True):
        return await dynamodb.arun(connection, write)
    _no_items(write)
    name, perform = _async_place(connection, write)
    return await flow.arun(writing(write, returning=name != "mysql"), perform)


def _sync_place(connection: Any, write: Write) -> tuple[str, Callable[[Step], Reply]]:
    kinds = _kinds(connection)
    known = next((_SYNC[kind] for kind in kinds if kind in _SYNC), None)
    if known is None:
        spoken = _of_sqlalchemy(connection, write, kinds, wanted="sync")
        return spoken, lambda step: _reply(connection.execute(_core(step, write, spoken)))

    def perform(step: Step) -> Reply:
        cursor = _cursor(connection, known)
        try:
            cursor.execute(*sql_text.statement(step, write, known))
            rows = None if cursor.description is None else cursor.fetchall()
            return _counted(rows, cursor.rowcount)
        finally:
            cursor.close()

    return known.name, perform


def _async_place(connection: Any, write: Write) -> tuple[str, Callable[[Step], Awaitable[Reply]]]:
    kinds = _kinds(connection)
    known = next((_ASYNC[kind] for kind in kinds if kind in _ASYNC), None)
    if known is None:
        spoken = _of_sqlalchemy(connection, write, kinds, wanted="async")

        async def through_sqlalchemy(step: Step) -> Reply:
            return _reply(await connection.execute(_core(step, write, spoken)))

        return spoken, through_sqlalchemy

    async def perform(step: Step) -> Reply:
        sql, values = sql_text.statement(step, write, known)
        if known is _ASYNCPG:
            return _counted(await connection.fetch(sql, *values), 0)
        async with _cursor(connection, known) as cursor:
            await cursor.execute(sql, values)
            rows = None if cursor.description is None else await cursor.fetchall()
            return _counted(rows, cursor.rowcount)

    return known.name, perform


def _no_items(write: Write) -> None:
    if isinstance(write.table, Items):
        raise UsageError(f"{write.place} is a table of DynamoDB, and this is no client of it; nothing was written.")


def _kinds(connection: object) -> list[str]:
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__]


def _of_sqlalchemy(connection: Any, write: Write, kinds: list[str], *, wanted: str) -> str:
    ours = any(kind.startswith("sqlalchemy.") for kind in kinds) and hasattr(connection, "execute")
    other = _ASYNC if wanted == "sync" else _SYNC
    colour = "async" if any(kind.startswith("sqlalchemy.ext.asyncio.") for kind in kinds) else "sync"
    if any(kind in other for kind in kinds) or (ours and colour != wanted):
        right = "await arun(…)" if wanted == "sync" else "run(…)"
        raise UsageError(f"A {kinds[0]} has the other colour; nothing was written. Use {right}.")
    if not ours:
        raise UsageError(
            f"A {kinds[0]} is not a connection that versions knows; nothing was written. Give one of sqlite3, psycopg, "
            f"asyncpg, PyMySQL, asyncmy, a connection or session of SQLAlchemy, or a client of DynamoDB."
        )
    from semel.versions.sqlalchemy_core import described

    bind = connection if hasattr(connection, "dialect") else connection.get_bind(clause=described(write))
    if bind.dialect.name not in _SPOKEN:
        raise UsageError(
            f"versions does not know the database {bind.dialect.name}; nothing was written. It knows SQLite, "
            f"PostgreSQL, MySQL and MariaDB."
        )
    return _SPOKEN[bind.dialect.name]


def _core(step: Step, write: Write, dialect: str) -> Any:
    from semel.versions.sqlalchemy_core import statement

    return statement(step, write, dialect)


def _cursor(connection: Any, dialect: Dialect) -> Any:
    """A cursor that gives tuples, on a connection that may have been told to give something else."""
    if dialect is _SQLITE:
        cursor = connection.cursor()
        cursor.row_factory = None
        return cursor
    if dialect is _PSYCOPG:
        return connection.cursor(row_factory=importlib.import_module("psycopg.rows").tuple_row)
    library = "pymysql" if any(kind in _SYNC for kind in _kinds(connection)) else "asyncmy"
    return connection.cursor(importlib.import_module(f"{library}.cursors").Cursor)


def _counted(rows: list[Any] | None, changed: int) -> Reply:
    return Reply([], changed) if rows is None else Reply([tuple(row) for row in rows], len(rows))


def _reply(result: Any) -> Reply:
    return _counted(result.all(), 0) if result.returns_rows else _counted(None, result.rowcount)
