"""PostgreSQL behind a proxy that pools transactions: psycopg and asyncpg without session state.

- Every command is one transaction, so the proxy may execute it on any session.
- No statement stays prepared, and settings last as long as the transaction: two more round trips per command.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import asyncpg
import psycopg
from psycopg.pq import TransactionStatus

from semel.stores.sql.adapters.asyncpg import AsyncpgAdapter, connect_arguments
from semel.stores.sql.adapters.psycopg import PsycopgAdapter, sync_connect
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.settings import Settings

_OF_SESSIONS: Final = ("application_name", "default_transaction_isolation")
_WORDS: Final = ("BEGIN", "COMMIT", "ROLLBACK")


def _begin(session: dict[str, str]) -> str:
    chosen = {name: value for name, value in session.items() if name not in _OF_SESSIONS}
    return "; ".join(
        ["BEGIN ISOLATION LEVEL READ COMMITTED", *(f"SET LOCAL {name} = '{value}'" for name, value in chosen.items())]
    )


class PooledPsycopg(PsycopgAdapter):
    """psycopg, one transaction per command."""

    def connect(self, settings: Settings) -> Any:
        """A connection to the proxy."""
        self._begin = _begin(self._server.session(settings)).encode()
        return sync_connect(settings, prepare_threshold=None)

    def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows; a transaction that was begun by a command goes on."""
        if connection.info.transaction_status != TransactionStatus.IDLE or command.text in _WORDS:
            return super().execute(connection, command)
        connection.execute(self._begin)
        try:
            rows = super().execute(connection, command)
        except Exception:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return rows


class PooledAsyncpg(AsyncpgAdapter):
    """asyncpg, one transaction per command."""

    async def connect(self, settings: Settings) -> Any:
        """A connection to the proxy."""
        self._begin = _begin(self._server.session(settings))
        return await asyncpg.connect(
            **connect_arguments(settings.url),
            statement_cache_size=0,
            timeout=settings.connect_timeout,
            command_timeout=settings.statement_timeout + settings.connect_timeout,
        )

    async def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows; a transaction that was begun by a command goes on."""
        if connection.is_in_transaction() or command.text in _WORDS:
            return await super().execute(connection, command)
        await connection.execute(self._begin)
        try:
            rows = await super().execute(connection, command)
        except Exception:
            with suppress(asyncpg.PostgresError, OSError):
                await connection.execute("ROLLBACK")
            raise
        await connection.execute("COMMIT")
        return rows
