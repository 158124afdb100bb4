"""The caller's engine or pool as the source of a store's connections: one is borrowed per batch and given back.

- A borrowed connection is in autocommit while semel has it and is given back as it was; none is kept between batches.
- The caller's settings apply on it: its timeouts, its search path, its login.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from semel.errors import UsageError
from semel.stores.sql.adapter import Adapter, AsyncAdapter, Server
from semel.stores.sql.adapters.sqlalchemy import AsyncSqlalchemyAdapter, SqlalchemyAdapter
from semel.stores.sql.settings import Settings

_AUTOCOMMIT: Final = "AUTOCOMMIT"


@dataclass(frozen=True, slots=True)
class ExternalPool:
    """Somebody's engine or pool: the library of one colour that takes connections from it."""

    name: str
    sync: Adapter | None = None
    awaited: AsyncAdapter | None = None
    separate: Callable[[], AsyncAdapter] | None = None
    """Makes an async library for another event loop than the caller's; None: its connections belong to that loop."""

    def adapter(self) -> Adapter:
        """For threads.

        Raises:
            UsageError: it can only be awaited.
        """
        if self.sync is None:
            message = f"{self.name} is awaited, so Semel cannot use it; nothing ran. Use AsyncSemel, or give a URL."
            raise UsageError(message)
        return self.sync

    def async_adapter(self) -> AsyncAdapter:
        """For event loops.

        Raises:
            UsageError: it can only be used by threads.
        """
        if self.awaited is None:
            message = f"{self.name} blocks, so AsyncSemel cannot use it; nothing ran. Use Semel, or give a URL."
            raise UsageError(message)
        return self.awaited

    def separate_adapter(self) -> AsyncAdapter:
        """For another event loop than the caller's.

        Raises:
            UsageError: its connections belong to the caller's loop.
        """
        if self.separate is None:
            message = f"The connections of {self.name} belong to one event loop; nothing ran. Use it in that one."
            raise UsageError(message)
        return self.separate()


class AsyncEngineAdapter(AsyncSqlalchemyAdapter):
    """Borrows from an engine of SQLAlchemy."""

    keeps = False
    copies = False

    def __init__(self, engine: Any, server: Server[Any]) -> None:
        super().__init__(server)
        self._engine = engine

    def _check(self, link: Any) -> None:
        """Here every statement is meant to commit by itself."""

    async def connect(self, settings: Settings) -> Any:
        """Take one; SQLAlchemy gives it its own isolation level back when it returns."""
        del settings
        connection = await self._engine.connect()
        return await connection.execution_options(isolation_level=_AUTOCOMMIT)

    async def close(self, connection: Any) -> None:
        """Give it back."""
        with suppress(Exception):
            await connection.close()


class SeparateEngineAdapter(AsyncEngineAdapter):
    """Connections like those of a SQLAlchemy `AsyncEngine`, for another event loop: same address, arguments, listeners.

    They are kept, and closed for good.
    """

    keeps = True

    def __init__(self, engine: Any, server: Server[Any]) -> None:
        from sqlalchemy import Engine
        from sqlalchemy.ext.asyncio import AsyncEngine

        inner = engine.sync_engine
        super().__init__(AsyncEngine(Engine(inner.pool.recreate(), inner.dialect, inner.url)), server)

    async def close(self, connection: Any) -> None:
        """Close it, and whatever the engine keeps."""
        await super().close(connection)
        with suppress(Exception):
            await self._engine.dispose()


def _asyncpg_pool(pool: Any, server: Server[Any]) -> ExternalPool:
    from semel.stores.sql.adapters.pools import AsyncpgPool

    return ExternalPool(_named(pool), awaited=AsyncpgPool(pool, server))


def _psycopg_pool(pool: Any, server: Server[Any]) -> ExternalPool:
    from semel.stores.sql.adapters.pools import PsycopgPool

    return ExternalPool(_named(pool), sync=PsycopgPool(pool, server))


def _async_psycopg_pool(pool: Any, server: Server[Any]) -> ExternalPool:
    from semel.stores.sql.adapters.pools import AsyncPsycopgPool

    return ExternalPool(_named(pool), awaited=AsyncPsycopgPool(pool, server))


def _engine(engine: Any, server: Server[Any]) -> ExternalPool:
    name = engine.url.render_as_string(hide_password=True)
    return ExternalPool(name, sync=EngineAdapter(engine, server))


def _async_engine(engine: Any, server: Server[Any]) -> ExternalPool:
    name = engine.url.render_as_string(hide_password=True)
    return ExternalPool(
        name,
        awaited=AsyncEngineAdapter(engine, server),
        separate=lambda: SeparateEngineAdapter(engine, server),
    )


def _named(pool: object) -> str:
    kind = type(pool)
    return f"the {kind.__module__.partition('.')[0]} {kind.__qualname__}"


POOLS: Final[dict[str, Callable[[Any, Server[Any]], ExternalPool]]] = {
    "asyncpg.pool.Pool": _asyncpg_pool,
    "psycopg_pool.pool.ConnectionPool": _psycopg_pool,
    "psycopg_pool.pool_async.AsyncConnectionPool": _async_psycopg_pool,
}
ENGINES: Final[dict[str, Callable[[Any, Server[Any]], ExternalPool]]] = {
    "sqlalchemy.engine.base.Engine": _engine,
    "sqlalchemy.ext.asyncio.engine.AsyncEngine": _async_engine,
}
"""Both by the name of the class: what borrows from one, and how the errors of its server are read."""


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class EngineAdapter(SqlalchemyAdapter):
    """Borrows from an engine of SQLAlchemy."""

    keeps = False
    copies = False

    def __init__(self, engine: Any, server: Server[Any]) -> None:
        super().__init__(server)
        self._engine = engine

    def _check(self, link: Any) -> None:
        """Here every statement is meant to commit by itself."""

    def connect(self, settings: Settings) -> Any:
        """Take one; SQLAlchemy gives it its own isolation level back when it returns."""
        del settings
        connection = self._engine.connect()
        return connection.execution_options(isolation_level=_AUTOCOMMIT)

    def close(self, connection: Any) -> None:
        """Give it back."""
        with suppress(Exception):
            connection.close()
