"""The SQLite store: records in one file on a local disk, shared by the processes of one machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from os import PathLike
from typing import Any

from semel.core.operations import Operation
from semel.core.store import SEARCHING, AsyncDriver, Capability, Plan
from semel.stores.admin import Admin
from semel.stores.settings import StoreClock, machine_clock
from semel.stores.sqlite.database import attach, detach, known_install_id
from semel.stores.sqlite.driver import AsyncSqliteDriver, SqliteDriver
from semel.stores.sqlite.errors import is_outage
from semel.stores.sqlite.joined import (
    AsyncSqliteJoined,
    AsyncWrappedJoined,
    SqliteJoined,
    WrappedJoined,
    async_inside_of,
    inside_of,
)
from semel.stores.sqlite.plan import plan
from semel.stores.sqlite.settings import Settings
from semel.validation import Duration


class SqliteStore:
    """Records in the SQLite file at `path`.

    Args:
        path: the file; created on first use, in a folder that exists.
        synchronous: FULL keeps every acknowledged commit when the power fails; NORMAL is faster and may lose the
            last ones; EXTRA also survives the loss of the folder entry.
        busy_for: how long to wait for the write lock before answering `StoreUnavailable`.
        clock: the store's clock, in microseconds.
        migrate: whether an older schema is brought up to date on first use; else it is `SchemaOutdated`.

    Nothing is opened before the first use.
    """

    max_operations = 64
    capabilities = frozenset(
        {
            Capability.JOIN,
            Capability.EAGER,
            Capability.GATHER,
            Capability.SEPARATE_LOOP,
            Capability.INVALIDATIONS,
            Capability.LETTERS,
            Capability.OUTBOX,
            Capability.BATCH,
            Capability.AUDIT,
            *SEARCHING,
            Capability.FILE,
            Capability.DURABLE,
            Capability.EXAMINE,
            Capability.MIGRATE,
            Capability.MIGRATION_SQL,
            Capability.RESEAL,
        }
    )

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        synchronous: str = "FULL",
        busy_for: Duration = timedelta(seconds=10),
        clock: StoreClock = machine_clock,
        migrate: bool = True,
    ) -> None:
        self._settings = Settings.of(path, synchronous, busy_for, clock, migrate=migrate)
        self.name = self._settings.name
        self._install_id: bytes | None = None

    @property
    def path(self) -> str:
        """The absolute path of the file."""
        return self._settings.path

    @property
    def install_id(self) -> bytes | None:
        """Which database this is, where that was learnt by now."""
        return known_install_id(self._settings)

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The commands for `operations`, all of one kind."""
        return plan(operations, joined=joined)

    def driver(self) -> SqliteDriver:
        """A driver for threads."""
        return SqliteDriver(self._settings)

    def async_driver(self) -> AsyncSqliteDriver:
        """A driver for event loops."""
        return AsyncSqliteDriver(self._settings)

    def join(self, connection: Any) -> SqliteJoined | WrappedJoined:
        """The caller's connection as a place for plans: of sqlite3, or of SQLAlchemy or Django on top of it.

        Raises:
            UsageError: it is something else.
        """
        inside = inside_of(connection)
        return self._joined(connection) if inside is None else WrappedJoined(inside, self._joined, self.name)

    def _joined(self, connection: object) -> SqliteJoined:
        return SqliteJoined(connection, self._settings, self._install)

    def async_join(self, connection: Any) -> AsyncSqliteJoined | AsyncWrappedJoined:
        """The same for a coroutine: of aiosqlite, of SQLAlchemy on top of it, or of sqlite3 in the loop's own thread.

        Raises:
            UsageError: it is something else.
        """
        inside = async_inside_of(connection)
        if inside is None:
            return AsyncSqliteJoined(self._joined(connection))
        return AsyncWrappedJoined(inside, self._joined, self.name)

    def is_outage(self, error: Exception) -> bool:
        """Whether an error of the caller's connection says nothing of what was sent."""
        return is_outage(error)

    @property
    def has_one_writer(self) -> bool:
        """There is one lock for the whole file."""
        return True

    def separate_async_driver(self) -> AsyncDriver:
        """A driver for an event loop of semel's own: connections belong to no loop of the caller."""
        return self.async_driver()

    def admin(self) -> Admin:
        """What operators do: migrate, look."""
        from semel.stores.sqlite.admin import SqliteAdmin

        return SqliteAdmin(self._settings)

    def _install(self, patience: float | None) -> bytes:
        """Which database this is; opens it for a moment where no driver has it open."""
        if self._install_id is None:
            database = attach(self._settings)
            try:
                self._install_id = database.ready(self._settings, patience)
            finally:
                detach(database)
        return self._install_id
