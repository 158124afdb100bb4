"""asyncmy: MySQL and MariaDB on an event loop.

A connection of the caller in autocommit must have begun a transaction.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from semel.extras import requires
from semel.stores.sql.adapters.multi_statement import (
    AsyncMysqlAdapter,
    AsyncMysqlJoined,
    MysqlAdapter,
    OwnConnection,
    commits_by_itself,
    connect_arguments,
    no_transaction_error,
)
from semel.stores.sql.settings import Settings

with requires("mysql://", "asyncmy"):
    import asyncmy
    from asyncmy import errors
    from asyncmy.cursors import Cursor


class _Asyncmy(MysqlAdapter):
    cursor = Cursor
    library_error = errors.MySQLError
    interface_error = errors.InterfaceError
    data_error = errors.DataError


class AsyncmyAdapter(_Asyncmy, AsyncMysqlAdapter):
    """Sends commands through `asyncmy.Connection`s of the store's own."""

    async def _open(self, address: dict[str, Any], settings: Settings) -> Any:
        async with asyncio.timeout(settings.connect_timeout):
            return await asyncmy.connect(**connect_arguments(address, settings))

    async def close(self, connection: OwnConnection) -> None:
        """Let go of a connection, politely if that takes no time."""
        with suppress(Exception):
            async with asyncio.timeout(1):
                await connection.connection.ensure_closed()
        with suppress(Exception):
            connection.connection.close()


class AsyncmyJoined(_Asyncmy, AsyncMysqlJoined):
    """Sends commands through an `asyncmy.Connection` of the caller."""

    def demand_transaction(self, connection: Any) -> None:
        """A transaction must be open, or begin with the first statement."""
        if not connection.connected or commits_by_itself(connection.server_status):
            raise no_transaction_error("asyncmy", "Write `await connection.begin()`")
