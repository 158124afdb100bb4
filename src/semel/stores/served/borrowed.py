"""Engines and pools that the caller already has: the store borrows a connection for each round and gives it back.

What always holds: a borrowed connection is in autocommit while semel has it and is given back as it was; none is kept
between rounds. The caller's settings apply on it: its timeouts, its search path, its login.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from semel.errors import UsageError
from semel.stores.served.libraries.dbapi import Meaning, kinds
from semel.stores.served.libraries.sqlalchemy import AsyncSqlalchemyLibrary, SqlalchemyLibrary
from semel.stores.served.library import AsyncLibrary, Library
from semel.stores.served.settings import Settings

_AUTOCOMMIT: Final = "AUTOCOMMIT"


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Somebody's engine or pool: the library of one colour that takes connections from it."""

    name: str
    sync: Library | None = None
    awaited: AsyncLibrary | None = None

    def library(self) -> Library:
        """For threads.

        Raises:
            UsageError: it can only be awaited.
        """
        if self.sync is None:
            message = f"{self.name} is awaited, so Semel cannot use it; nothing ran. Use AsyncSemel, or give a URL."
            raise UsageError(message)
        return self.sync

    def async_library(self) -> AsyncLibrary:
        """For event loops.

        Raises:
            UsageError: it can only be used by threads.
        """
        if self.awaited is None:
            message = f"{self.name} blocks, so AsyncSemel cannot use it; nothing ran. Use Semel, or give a URL."
            raise UsageError(message)
        return self.awaited


class EngineLibrary(SqlalchemyLibrary):
    """Borrows from a SQLAlchemy `Engine`."""

    keeps = False

    def __init__(self, engine: Any, meaning: Meaning) -> None:
        super().__init__(meaning)
        self._engine = engine

    def _check(self, link: Any) -> None:
        """Here every statement is meant to commit by itself."""

    def connect(self, settings: Settings) -> Any:
        """Take one; SQLAlchemy gives it its own isolation level back when it returns."""
        del settings
        return self._engine.connect().execution_options(isolation_level=_AUTOCOMMIT)

    def close(self, connection: Any) -> None:
        """Give it back."""
        with suppress(Exception):
            connection.close()


class AsyncEngineLibrary(AsyncSqlalchemyLibrary):
    """Borrows from a SQLAlchemy `AsyncEngine`."""

    keeps = False

    def __init__(self, engine: Any, meaning: Meaning) -> None:
        super().__init__(meaning)
        self._engine = engine

    def _check(self, link: Any) -> None:
        """Here every statement is meant to commit by itself."""

    async def connect(self, settings: Settings) -> Any:
        """Take one."""
        del settings
        return await (await self._engine.connect()).execution_options(isolation_level=_AUTOCOMMIT)

    async def close(self, connection: Any) -> None:
        """Give it back."""
        with suppress(Exception):
            await connection.close()


def _asyncpg_pool(pool: Any) -> Borrowed:
    from semel.stores.served.libraries.asyncpg import AsyncpgLibrary

    class PoolLibrary(AsyncpgLibrary):
        keeps = False

        async def connect(self, settings: Settings) -> Any:
            return await pool.acquire(timeout=settings.connect_timeout)

        async def close(self, connection: Any) -> None:
            with suppress(Exception):
                await pool.release(connection)

    return Borrowed(_named(pool), awaited=PoolLibrary())


def _psycopg_pool(pool: Any) -> Borrowed:
    from semel.stores.served.libraries.psycopg import PsycopgLibrary

    class PoolLibrary(PsycopgLibrary):
        keeps = False
        _was: dict[int, bool] = {}  # noqa: RUF012 - per pool: this class is made for one

        def connect(self, settings: Settings) -> Any:
            connection = pool.getconn(timeout=settings.connect_timeout)
            self._was[id(connection)] = connection.autocommit
            connection.autocommit = True
            return connection

        def close(self, connection: Any) -> None:
            with suppress(Exception):
                if not connection.closed:
                    connection.autocommit = self._was.pop(id(connection), False)
            pool.putconn(connection)

    return Borrowed(_named(pool), sync=PoolLibrary())


def _async_psycopg_pool(pool: Any) -> Borrowed:
    from semel.stores.served.libraries.psycopg import AsyncPsycopgLibrary

    class PoolLibrary(AsyncPsycopgLibrary):
        keeps = False
        _was: dict[int, bool] = {}  # noqa: RUF012 - per pool: this class is made for one

        async def connect(self, settings: Settings) -> Any:
            connection = await pool.getconn(timeout=settings.connect_timeout)
            self._was[id(connection)] = connection.autocommit
            await connection.set_autocommit(True)
            return connection

        async def close(self, connection: Any) -> None:
            with suppress(Exception):
                if not connection.closed:
                    await connection.set_autocommit(self._was.pop(id(connection), False))
            await pool.putconn(connection)

    return Borrowed(_named(pool), awaited=PoolLibrary())


def _named(pool: object) -> str:
    kind = type(pool)
    return f"the {kind.__module__.partition('.')[0]} {kind.__qualname__}"


_POOLS: Final[dict[str, Callable[[Any], Borrowed]]] = {
    "asyncpg.pool.Pool": _asyncpg_pool,
    "psycopg_pool.pool.ConnectionPool": _psycopg_pool,
    "psycopg_pool.pool_async.AsyncConnectionPool": _async_psycopg_pool,
}
_ENGINES: Final = frozenset({"sqlalchemy.engine.base.Engine", "sqlalchemy.ext.asyncio.engine.AsyncEngine"})


def borrowed_from(pool: object, meanings: dict[str, Meaning]) -> tuple[str, Borrowed] | None:
    """The kind of server that an engine or pool leads to, and how to borrow from it; None: it is neither.

    `meanings` gives, by SQLAlchemy's name of a server, what the errors of the libraries under it mean.

    Raises:
        UsageError: an engine for a server that has no store.
    """
    names = kinds(pool)
    made = next((_POOLS[name] for name in names if name in _POOLS), None)
    if made is not None:
        return "postgresql", made(pool)
    if not _ENGINES & set(names):
        return None
    engine = cast("Any", pool)
    spoken = str(engine.dialect.name)
    if spoken not in meanings:
        message = f"An engine for {spoken} leads to no store that is known; nothing was opened."
        raise UsageError(message)
    name = engine.url.render_as_string(hide_password=True)
    if "sqlalchemy.ext.asyncio.engine.AsyncEngine" in names:
        return spoken, Borrowed(name, awaited=AsyncEngineLibrary(engine, meanings[spoken]))
    return spoken, Borrowed(name, sync=EngineLibrary(engine, meanings[spoken]))
