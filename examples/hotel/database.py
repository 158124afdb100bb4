"""The database of a service: one URL for its own rows and for semel's records, so that both can commit together.

What always holds: a transaction that writes is short, and on SQLite it takes the write lock when it begins, so that it
never finds out later that somebody else wrote. Nothing in here talks to anybody but the database.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, CursorResult, Update, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from semel.errors import TransactionAborted

T = TypeVar("T")

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "mysql": "mysql+asyncmy"}
MIGRATIONS = Path(__file__).with_name("migrations")
TRIES = 5
# A deadlock or a serialization failure: PostgreSQL's names for them, MariaDB's numbers, SQLite's sentence.
ABORTED = ("40P01", "40001", 1213, 1205, "database is locked")


class Database:
    """Sessions on the database at `url`, whose tables `migrations` makes. Nothing is connected before the first use."""

    def __init__(self, url: str, migrations: Path = MIGRATIONS) -> None:
        self._migrations = migrations
        self.engine = _engine(url)
        self._writing = async_sessionmaker(self.engine, expire_on_commit=False)
        self._reading = async_sessionmaker(self.engine.execution_options(reads_only=True), expire_on_commit=False)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncSession]:
        """A session in a transaction that commits at its end, and rolls back on an error.

        Raises:
            TransactionAborted: the database gave the transaction up; nothing was done, and all of it may run again.
        """
        try:
            async with self._writing.begin() as session:
                yield session
        except DBAPIError as error:
            if not _is_aborted(error):
                raise
            raise TransactionAborted("The database gave the transaction up; nothing was done. Try again.") from error

    def reading(self) -> AbstractAsyncContextManager[AsyncSession]:
        """A session that only looks; on SQLite it does not wait for those who write."""
        return self._reading()

    async def transact(self, work: Callable[[AsyncSession], Awaitable[T]]) -> T:
        """Do `work` in a transaction of its own, and again where the database gave the transaction up."""
        for left in reversed(range(TRIES)):
            try:
                async with self.writing() as session:
                    return await work(session)
            except TransactionAborted:
                if not left:
                    raise
                await asyncio.sleep(random.uniform(0, 0.1))
        raise AssertionError

    async def migrate(self) -> None:
        """Bring the tables up to date; where they are, nothing is done."""
        async with self.engine.begin() as connection:
            await connection.run_sync(_upgrade, self._migrations)

    async def close(self) -> None:
        """Let go of all connections."""
        await self.engine.dispose()


async def changed(session: AsyncSession, statement: Update) -> int:
    """Run an UPDATE, and tell how many rows its WHERE found."""
    return cast("CursorResult[Any]", await session.execute(statement)).rowcount


def _engine(url: str) -> AsyncEngine:
    scheme, _, rest = url.partition("://")
    if scheme not in DRIVERS:
        raise ValueError(f"This runs on {', '.join(DRIVERS)}, not on {scheme!r}; nothing was opened.")
    if scheme != "sqlite":
        # Who may go on is decided by locks on rows; MariaDB's default would lock the gaps between them too.
        return create_async_engine(f"{DRIVERS[scheme]}://{rest}", isolation_level="READ COMMITTED", pool_pre_ping=True)
    engine = create_async_engine(f"{DRIVERS[scheme]}://{rest}", connect_args={"timeout": 20})
    event.listen(engine.sync_engine, "connect", _connected)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _connected(connection: Any, record: object) -> None:
    """The driver begins no transactions: `_begin` does. The log lets readers read while somebody writes."""
    connection.isolation_level = None
    for pragma in ("journal_mode = WAL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    """Closes the race between a read and the write that follows from it: the lock is taken before the read."""
    reads_only = connection.get_execution_options().get("reads_only", False)
    connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")


def _is_aborted(error: DBAPIError) -> bool:
    said = (getattr(error.orig, "sqlstate", None), *error.orig.args) if error.orig else ()
    return any(reason in said for reason in ABORTED)


def _upgrade(connection: Connection, migrations: Path) -> None:
    # Imported on use: it takes a process a third of its start, and only the one that migrates needs it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
