"""The databases of all services: files of SQLite, or a private PostgreSQL; each can be stopped for a while.

What always holds: what was stopped goes on when the block is left.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from examples.launching.children import Child, DidNotStart
from examples.launching.launcher import Supervision
from examples.launching.postgresql import find_programs

NEEDED: Final = ("asyncpg", "psycopg")
LOCK_WITHIN: Final = 30.0


class Stores(Protocol):
    """One database for each service.

    Attributes:
        name: what they are, for people.
        stopped: what it means that one is stopped, for people.
        children: the processes that they need.
    """

    name: str
    stopped: str
    children: Sequence[Child]

    def url(self, service: str) -> str:
        """Where the database of a service is."""

    def stop(self, service: str) -> AbstractAsyncContextManager[None]:
        """Stop the database of a service while the block runs."""


class SqliteStores:
    """A file for each service. A file cannot be stopped, so somebody else holds its lock: nobody can write."""

    name = "SQLite"
    stopped = "Somebody held the lock of the database file"
    children: Sequence[Child] = ()

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def url(self, service: str) -> str:
        """Where the database of a service is."""
        return f"sqlite:///{self._file(service)}"

    @asynccontextmanager
    async def stop(self, service: str) -> AsyncIterator[None]:
        """Hold the lock of its file while the block runs."""
        held = sqlite3.connect(self._file(service), timeout=LOCK_WITHIN, isolation_level=None, check_same_thread=False)
        try:
            await asyncio.to_thread(held.execute, "BEGIN IMMEDIATE")
            yield
        finally:
            held.close()

    def _file(self, service: str) -> Path:
        return self._folder / f"{service}.db"


class PostgresqlStores:
    """A database for each service, all in one private server: when it is stopped, it is stopped for all.

    It comes back once the last of those who stopped it lets it.
    """

    name = "PostgreSQL"
    stopped = "The PostgreSQL server was stopped as by a crash"

    def __init__(self, server: Child, url: str) -> None:
        self.children: Sequence[Child] = [server]
        self._server = server
        self._url = url
        self._stopped_by = 0

    def url(self, service: str) -> str:
        """Where the database of a service is."""
        return self._url.format(service)

    @asynccontextmanager
    async def stop(self, service: str) -> AsyncIterator[None]:
        """End the server while the block runs."""
        self._stopped_by += 1
        try:
            if self._stopped_by == 1:
                self._server.send(signal.SIGUSR1)
            yield
        finally:
            self._stopped_by -= 1
            if not self._stopped_by:
                self._server.send(signal.SIGUSR2)


async def start_postgresql(supervision: Supervision, services: Sequence[str]) -> PostgresqlStores:
    """Start a private server.

    Raises:
        ServerMissing: there is none on this machine.
        DidNotStart: its clients are not installed, or it said why.
    """
    find_programs()
    check_clients()
    server = Child("examples.launching.postgresql", *services, pipe=supervision.watched)
    supervision.stack.push_async_callback(server.stop)
    return PostgresqlStores(server, await server.start())


def check_clients() -> None:
    """Refuse to start where a client of PostgreSQL is missing.

    Raises:
        DidNotStart: one is; the message says what to install.
    """
    for name in NEEDED:
        try:
            __import__(name)
        except ImportError as error:
            message = (
                f"the package {name} is missing, and nothing was started. "
                f'`make run ARGS="--on postgresql"` installs it, and so does `make setup-dev`.'
            )
            raise DidNotStart(message) from error
