"""asyncpg: PostgreSQL on an event loop.

A caller's connection outside `transaction()` is refused: each of its statements would commit by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import nullcontext, suppress
from typing import Any, Final, cast
from urllib.parse import unquote

from semel.errors import NotInTransaction
from semel.extras import requires
from semel.stores.settings import addresses_of, join_url, split_url
from semel.stores.sql.adapter import PlaceholderStyle, Server
from semel.stores.sql.dialect import Command, Copy, Row
from semel.stores.sql.errors import ErrorKind
from semel.stores.sql.settings import Settings

with requires("postgresql://", "asyncpg"):
    import asyncpg

_texts: Final = PlaceholderStyle("$")
_PORT: Final = 5432


def connect_arguments(url: str) -> dict[str, Any]:
    """Where to connect to, as asyncpg takes it.

    asyncpg gives a URL to the parser of the Python release, which takes brackets for those of the only host: those in a
    user name or password are quoted, and a list of hosts with an IPv6 address in it is handed over as a list.
    """
    parts = split_url(url)
    login, at, hosts = parts.netloc.rpartition("@")
    login = login.replace("[", "%5B").replace("]", "%5D")
    addresses = addresses_of(parts)
    if "[" not in hosts or len(addresses) == 1:
        return {"dsn": join_url(parts._replace(netloc=f"{login}{at}{hosts}"))}
    return {
        "dsn": join_url(parts._replace(netloc=f"{login}{at}")),
        "host": [unquote(host) or "localhost" for host, _ in addresses],
        "port": [port or _PORT for _, port in addresses],
    }


class AsyncpgAdapter:
    """Sends commands through `asyncpg.Connection`."""

    keeps = True
    copies = True

    def __init__(self, server: Server[dict[str, str]]) -> None:
        self._server = server

    async def connect(self, settings: Settings) -> Any:
        """A connection of the store's own."""
        return await asyncpg.connect(
            **connect_arguments(settings.url),
            timeout=settings.connect_timeout,
            # The server ends a statement that takes too long; this is for a server that does not answer at all.
            command_timeout=settings.statement_timeout + settings.connect_timeout,
            server_settings=self._server.session(settings),
        )

    def execute(self, connection: Any, command: Command) -> Awaitable[list[Row]]:
        """The rows of `command`."""
        if command.copy is not None:
            return self._copy(connection, command, command.copy)
        return cast("Awaitable[list[Row]]", connection.fetch(_texts(command.text), *command.values))

    async def _copy(self, connection: Any, command: Command, copy: Copy) -> list[Row]:
        """The statement, and the rows that follow it, in one transaction: that of a proxy, or one of their own."""
        async with nullcontext() if connection.is_in_transaction() else connection.transaction():
            rows: list[Row] = await connection.fetch(_texts(command.text), *command.values)
            if rows:
                await connection.copy_records_to_table(
                    copy.table, schema_name=copy.schema, columns=copy.columns, records=copy.rows
                )
        return rows

    async def close(self, connection: Any) -> None:
        """Let go of a connection, politely if that takes no time."""
        with suppress(Exception):
            await connection.close(timeout=1)

    def error_kind(self, error: Exception) -> ErrorKind | None:
        """What an error of asyncpg means."""
        if isinstance(error, asyncpg.PostgresError):
            return self._server.error_kind(error)
        if isinstance(error, asyncpg.InterfaceError):
            return ErrorKind.LOST if "connection" in str(error) and "closed" in str(error) else None
        return ErrorKind.LOST if isinstance(error, (OSError, TimeoutError, asyncpg.InternalClientError)) else None

    def demand_transaction(self, connection: Any) -> None:
        """The connection must be inside `transaction()`."""
        if not connection.is_in_transaction():
            message = (
                "within() needs an open transaction, and this asyncpg connection has none, so every statement would "
                "commit by itself; nothing ran. Write `async with connection.transaction():` around it."
            )
            raise NotInTransaction(message)
