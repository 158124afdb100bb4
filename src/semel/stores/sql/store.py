"""A store on a SQL server of any kind: its context, its drivers, and the connections of the caller that it can join.

- Nothing is opened before it is used.
- Operations outside `within` use connections of the store's own, or ones borrowed from an engine or pool of the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.core.operations import Operation
from semel.core.store import (
    ADMINISTRATION,
    SEARCHING,
    AsyncDriver,
    AsyncJoined,
    Capabilities,
    Capability,
    Driver,
    Joined,
    Plan,
)
from semel.stores.sql.adapter import Adapter, AsyncAdapter, Server
from semel.stores.sql.context import SqlContext
from semel.stores.sql.driver import AsyncSqlDriver, ListenerFactory, SqlDriver
from semel.stores.sql.errors import OUTAGES
from semel.stores.sql.external_pool import ExternalPool
from semel.stores.sql.joined import AsyncSqlJoined, SqlJoined, async_joinable, joinable, meant
from semel.stores.sql.plan import plan


class SqlStore:
    """What the stores on SQL servers are made of; they say which libraries to use and which server to join."""

    max_operations = 64
    server: Server[Any]
    libraries: tuple[str, str]
    """The modules of its client libraries, for threads and for event loops."""

    def __init__(self, context: SqlContext, pool: ExternalPool | None = None) -> None:
        self._context = context
        self._pool = pool
        self.name = context.name

    @property
    def install_id(self) -> bytes | None:
        """Which database this is, where that was learnt by now: from the connection that was opened last."""
        return self._context.install_id

    def _adapter(self) -> Adapter:
        """The library for threads."""
        raise NotImplementedError

    def _async_adapter(self) -> AsyncAdapter:
        """The library for event loops."""
        raise NotImplementedError

    def _listener_factories(self) -> tuple[ListenerFactory | None, ListenerFactory | None]:
        """What listens for ends, for threads and for event loops, where the server can tell."""
        return None, None

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The commands for `operations`, all of one kind."""
        return plan(self._context.dialect, operations, joined=joined)

    def driver(self) -> Driver:
        """A driver for threads."""
        return self._driver()

    def async_driver(self) -> AsyncDriver:
        """A driver for an event loop."""
        return self._async_driver()

    @property
    def capabilities(self) -> Capabilities:
        """What it needs and whom it notifies and serves depends on whose connections it uses, and how."""
        found = {
            Capability.JOIN,
            Capability.INVALIDATIONS,
            Capability.DURABLE,
            *SEARCHING,
            *ADMINISTRATION,
            Capability.LETTERS,
            Capability.OUTBOX,
            Capability.BATCH,
            Capability.AUDIT,
        }
        if self._pool is None:
            found.add(Capability.CLIENT_LIBRARIES)  # those of the caller's own pool are there
        if self._pool is None or self._pool.separate is not None:
            found.add(Capability.SEPARATE_LOOP)
        if self._pool is None and self._context.settings.listen and any(self._listener_factories()):
            found.add(Capability.NOTIFY)
        return frozenset(found)

    def separate_async_driver(self) -> AsyncDriver:
        """A driver for another event loop than the caller's.

        Raises:
            UsageError: the pool that it borrows from belongs to the caller's loop.
        """
        if self._pool is None:
            return self._async_driver()
        return AsyncSqlDriver(self._context, self._pool.separate_adapter())

    def _driver(self) -> SqlDriver:
        if self._pool is not None:
            return SqlDriver(self._context, self._pool.adapter())
        return SqlDriver(self._context, self._adapter(), self._listener_factories()[0])

    def _async_driver(self) -> AsyncSqlDriver:
        if self._pool is not None:
            return AsyncSqlDriver(self._context, self._pool.async_adapter())
        return AsyncSqlDriver(self._context, self._async_adapter(), self._listener_factories()[1])

    def join(self, connection: Any) -> Joined:
        """The caller's connection as a place for plans.

        Raises:
            UsageError: it is none that `Semel` can join.
        """
        connection = meant(connection)
        return SqlJoined(self._context, joinable(connection, self.server), connection, self._fetch_install_id)

    def async_join(self, connection: Any) -> AsyncJoined:
        """The same for connections that are awaited.

        Raises:
            UsageError: it is none that `AsyncSemel` can join.
        """
        connection = meant(connection)
        return AsyncSqlJoined(
            self._context, async_joinable(connection, self.server), connection, self._async_fetch_install_id
        )

    def is_outage(self, error: Exception) -> bool:
        """Whether an error of any of its client libraries, or of SQLAlchemy, says nothing of what was sent."""
        while (wrapped := getattr(error, "orig", None)) is not None:  # as SQLAlchemy wraps the error of a driver
            error = wrapped
        return self.server.error_kind(error) in OUTAGES

    @property
    def has_one_writer(self) -> bool:
        """Transactions wait for each other only in the same rows."""
        return False

    def _fetch_install_id(self) -> None:
        """Which database this is, from a connection of the store's own; once."""
        driver = self._driver()
        try:
            driver.fetch_install_id()
        finally:
            driver.close()

    async def _async_fetch_install_id(self) -> None:
        driver = self._async_driver()
        try:
            await driver.fetch_install_id()
        finally:
            await driver.close()
