"""Client libraries that raise what they are told to: every SQLSTATE can befall any statement.

What always holds: the errors are those of the real libraries, by their own classes; a library raises each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg

from semel.core.store import AsyncDriver, Driver
from semel.stores.postgresql import PostgresStore
from semel.stores.postgresql.store import POSTGRESQL
from semel.stores.sql.adapters.asyncpg import AsyncpgAdapter
from semel.stores.sql.adapters.psycopg import PsycopgAdapter
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.driver import AsyncSqlDriver, SqlDriver


class Faults:
    """What is to go wrong: at the statements that contain `word`, `code` as often as `times`."""

    def __init__(self, word: str, code: str, *, times: int = 1, after: bool = False) -> None:
        self.word = word
        self.code = code
        self.left = times
        self.after = after
        self.sent = 0

    def meets(self, command: Command) -> bool:
        """Whether this statement fails now."""
        if self.word not in command.text:
            return False
        self.sent += 1
        self.left -= 1
        return self.left >= 0


class FaultyPsycopg(PsycopgAdapter):
    """psycopg, with faults."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(POSTGRESQL)
        self.faults = faults

    def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows, or the error."""
        if not self.faults.meets(command):
            return super().execute(connection, command)
        if self.faults.after:
            super().execute(connection, command)
        raise psycopg.errors.lookup(self.faults.code)("injected")


class FaultyAsyncpg(AsyncpgAdapter):
    """asyncpg, with faults."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(POSTGRESQL)
        self.faults = faults

    async def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows, or the error."""
        if not self.faults.meets(command):
            return await super().execute(connection, command)
        if self.faults.after:
            await super().execute(connection, command)
        raise next(kind for kind in _kinds(asyncpg.PostgresError) if kind.sqlstate == self.faults.code)("injected")


def _kinds(of: type[asyncpg.PostgresError]) -> Iterator[type[asyncpg.PostgresError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from _kinds(kind)


class FaultyStore(PostgresStore):
    """The store on such libraries."""

    def __init__(self, url: str, faults: Faults, **settings: Any) -> None:
        super().__init__(url, **settings)
        self._faults = faults

    def driver(self) -> Driver:
        """A driver for threads."""
        return SqlDriver(self._context, FaultyPsycopg(self._faults))

    def async_driver(self) -> AsyncDriver:
        """A driver for an event loop."""
        return AsyncSqlDriver(self._context, FaultyAsyncpg(self._faults))
