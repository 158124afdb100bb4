"""asyncmy: MySQL and MariaDB on an event loop.

- Rows come as tuples, whatever cursor class the caller has set.
- The store's own connections send a command in one text; a caller's connection gets its statements one by one.
- A connection of the caller in autocommit must have begun a transaction.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

from semel.extras import requires
from semel.stores.sql.adapters.multi_statement import (
    TOO_LARGE,
    MysqlAdapter,
    OwnConnection,
    linked_statements,
    no_transaction_error,
    texts,
    to_multi_statement,
)
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.errors import ErrorKind
from semel.stores.sql.settings import Settings

with requires("mysql://", "asyncmy"):
    import asyncmy
    from asyncmy import errors
    from asyncmy.constants.SERVER_STATUS import SERVER_STATUS_AUTOCOMMIT, SERVER_STATUS_IN_TRANS
    from asyncmy.cursors import Cursor


class _Asyncmy(MysqlAdapter):
    library_error = errors.MySQLError
    interface_error = errors.InterfaceError


class AsyncmyAdapter(_Asyncmy):
    """Sends commands through `asyncmy.Connection`s of the store's own."""

    async def connect(self, settings: Settings) -> Any:
        """A connection of the store's own."""
        session = self._server.session(settings)
        async with asyncio.timeout(settings.connect_timeout):
            connection = await asyncmy.connect(
                **session.address,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=max(1, round(settings.connect_timeout)),
                # The server ends a statement that takes too long; this is for a server that does not answer at all.
                read_timeout=settings.statement_timeout + settings.connect_timeout,
                program_name="semel",
            )
        own = OwnConnection(connection)
        try:
            own.learn(*(await _rows(connection, session.opening))[0])
        except BaseException:
            connection.close()
            raise
        return own

    async def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows of `command`."""
        own: OwnConnection = connection
        text, values = to_multi_statement(command)
        sql = Cursor(own.connection).mogrify(text, values)
        if own.too_large(sql):
            raise errors.DataError(TOO_LARGE, "the text is larger than max_allowed_packet")
        turn = 0
        while True:
            try:
                return await _rows(own.connection, sql)
            except errors.MySQLError as error:
                turn += 1
                kind = self.error_kind(error)
                if command.atomic and kind is not ErrorKind.LOST:
                    await own.connection.rollback()
                if not self.is_tried_again(own, kind, turn):
                    raise

    async def close(self, connection: Any) -> None:
        """Let go of a connection, politely if that takes no time."""
        with suppress(Exception):
            async with asyncio.timeout(1):
                await connection.connection.ensure_closed()
        with suppress(Exception):
            connection.connection.close()

    def demand_transaction(self, connection: Any) -> None:
        """Nothing to demand: the store's own connections are in autocommit."""


class AsyncmyJoined(_Asyncmy):
    """Sends commands through an `asyncmy.Connection` of the caller."""

    async def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows of `command`."""
        rows: list[Row] = []
        async with connection.cursor(Cursor) as cursor:
            for part in linked_statements(command):
                await cursor.execute(texts(part.text), part.values)
                rows = list(await cursor.fetchall()) if cursor.description else rows
        return rows

    def demand_transaction(self, connection: Any) -> None:
        """A transaction must be open, or begin with the first statement."""
        status = connection.server_status
        begun = status & SERVER_STATUS_IN_TRANS
        if not connection.connected or (status & SERVER_STATUS_AUTOCOMMIT and not begun):
            raise no_transaction_error("asyncmy", "Write `await connection.begin()`")


async def _rows(connection: Any, sql: str) -> list[Row]:
    """The rows of the last statement that has some."""
    async with connection.cursor(Cursor) as cursor:
        await cursor.execute(sql)
        rows = cast("list[Row]", list(await cursor.fetchall()) if cursor.description else [])
        while await cursor.nextset():
            rows = list(await cursor.fetchall()) if cursor.description else rows
        return rows
