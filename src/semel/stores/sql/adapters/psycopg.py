"""psycopg 3: PostgreSQL in threads, and on an event loop where the caller's own connection is async.

- Rows come as tuples and values as bytes, whatever factories the caller has set.
- A fresh connection begins its transaction by itself; one in autocommit must have begun one.
- A thread does not wait forever for a server that does not answer.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any, Final, cast

from semel.errors import NotInTransaction
from semel.extras import requires
from semel.stores.sql.adapter import PlaceholderStyle, Server
from semel.stores.sql.dialect import Command, Copy, Row
from semel.stores.sql.errors import ErrorKind
from semel.stores.sql.settings import Settings

with requires("postgresql://", "psycopg"):
    import psycopg
    from psycopg import sql
    from psycopg.pq import TransactionStatus
    from psycopg.rows import tuple_row

# Texts are sent as they are: psycopg would take a long one with %s apart at every execution.
_texts: Final = PlaceholderStyle("$")
_BAD_URL: Final = "invalid URI query parameter"
_can_time_out: Final = "timeout" in inspect.signature(psycopg.Connection.wait).parameters  # older releases cannot


def _copy_statement(copy: Copy) -> sql.Composed:
    names = (copy.schema, copy.table) if copy.schema is not None else (copy.table,)
    columns = sql.SQL(", ").join(map(sql.Identifier, copy.columns))
    return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(sql.Identifier(*names), columns)


def _options(session: dict[str, str]) -> str:
    return " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in session.items())


class PatientConnection(psycopg.Connection[Any]):
    """A connection whose replies may take so long and no longer: a server that stands still sends none, nor an end."""

    patience: float | None = None

    def wait(self, *args: Any, **settings: Any) -> Any:
        """Wait for a reply.

        Raises:
            psycopg.OperationalError: there was none within `patience` seconds.
        """
        if _can_time_out and len(args) < 3:  # noqa: PLR2004 - the third is the time limit itself
            settings.setdefault("timeout", self.patience)
        return super().wait(*args, **settings)


def sync_connect(settings: Settings, **further: Any) -> PatientConnection:
    """A connection of the store's own: beyond what the server itself puts an end to, it is given up."""
    connection = PatientConnection.connect(
        settings.url, autocommit=True, connect_timeout=max(2, round(settings.connect_timeout)), **further
    )
    connection.patience = settings.statement_timeout + settings.connect_timeout
    return connection


async def async_connect(settings: Settings, **further: Any) -> psycopg.AsyncConnection[Any]:
    """A connection of the store's own."""
    return await psycopg.AsyncConnection.connect(
        settings.url, autocommit=True, connect_timeout=max(2, round(settings.connect_timeout)), **further
    )


class _Psycopg:
    keeps = True
    copies = True

    def __init__(self, server: Server[dict[str, str]]) -> None:
        self._server = server

    def error_kind(self, error: Exception) -> ErrorKind | None:
        """What an error of psycopg means."""
        if not isinstance(error, psycopg.Error):
            return ErrorKind.LOST if isinstance(error, OSError) else None
        if error.sqlstate is None and isinstance(error, psycopg.ProgrammingError) and _BAD_URL in str(error):
            return ErrorKind.BAD_URL
        return self._server.error_kind(error)

    def demand_transaction(self, connection: Any) -> None:
        """A transaction must be open, or begin with the first statement."""
        if connection.closed or (
            connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
        ):
            message = (
                "within() needs an open transaction, and this psycopg connection is closed or in autocommit mode "
                "without one; nothing ran. Write `with connection.transaction():` around it."
            )
            raise NotInTransaction(message)


class AsyncPsycopgAdapter(_Psycopg):
    """Sends commands through connections of psycopg."""

    async def connect(self, settings: Settings) -> Any:
        """A connection of the store's own."""
        return await async_connect(settings, options=_options(self._server.session(settings)))

    async def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows of `command`."""
        if command.copy is not None:
            return await self._copy(connection, command, command.copy)
        async with psycopg.AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(_texts(command.text), command.values, binary=True)
            return cast("list[Row]", await cursor.fetchall() if cursor.description else [])

    async def _copy(self, connection: Any, command: Command, copy: Copy) -> list[Row]:
        """The statement, and the rows that follow it, in one transaction: that of a proxy, or one of their own."""
        async with (
            connection.transaction(),
            psycopg.AsyncRawCursor(connection, row_factory=tuple_row) as cursor,
        ):
            await cursor.execute(_texts(command.text), command.values, binary=True)
            rows: list[Row] = await cursor.fetchall()
            if rows:
                async with cursor.copy(_copy_statement(copy)) as writing:
                    writing.set_types(copy.types)
                    for row in copy.rows:
                        await writing.write_row(row)
        return rows

    async def close(self, connection: Any) -> None:
        """Let go of a connection."""
        with suppress(Exception):
            await connection.close()


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class PsycopgAdapter(_Psycopg):
    """Sends commands through connections of psycopg."""

    def connect(self, settings: Settings) -> Any:
        """A connection of the store's own."""
        return sync_connect(settings, options=_options(self._server.session(settings)))

    def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows of `command`."""
        if command.copy is not None:
            return self._copy(connection, command, command.copy)
        with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(_texts(command.text), command.values, binary=True)
            return cast("list[Row]", cursor.fetchall() if cursor.description else [])

    def _copy(self, connection: Any, command: Command, copy: Copy) -> list[Row]:
        """The statement, and the rows that follow it, in one transaction: that of a proxy, or one of their own."""
        with (
            connection.transaction(),
            psycopg.RawCursor(connection, row_factory=tuple_row) as cursor,
        ):
            cursor.execute(_texts(command.text), command.values, binary=True)
            rows: list[Row] = cursor.fetchall()
            if rows:
                with cursor.copy(_copy_statement(copy)) as writing:
                    writing.set_types(copy.types)
                    for row in copy.rows:
                        writing.write_row(row)
        return rows

    def close(self, connection: Any) -> None:
        """Let go of a connection."""
        with suppress(Exception):
            connection.close()
