"""The plant in a file of SQLite: needs nothing but Python."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from semel.versions import Write, run

TABLES = """
CREATE TABLE IF NOT EXISTS asset (
    id TEXT PRIMARY KEY, facility TEXT NOT NULL, type TEXT NOT NULL, capacity_kw REAL NOT NULL CHECK (capacity_kw >= 0),
    request TEXT, version INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS asset_state (
    id TEXT PRIMARY KEY, load_kw REAL NOT NULL CHECK (load_kw >= 0), version INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('idle', 'running', 'maintenance', 'retired'))
);
CREATE TABLE IF NOT EXISTS energy (id TEXT PRIMARY KEY, kwh REAL NOT NULL);
"""
_ADD = "INSERT INTO energy VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET kwh = energy.kwh + excluded.kwh"


class SqlitePlant:
    """The tables, and the transactions that events are handled in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # One file has one writer. Two transactions in one thread would wait for each other for ever.
        self._writer = asyncio.Lock()
        with self._connect() as connection:
            connection.executescript(TABLES)

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[sqlite3.Connection]:
        """Begin, and commit at the end; an error rolls back."""
        async with self._writer:
            with self._connect() as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    connection.rollback()
                    raise
                connection.commit()

    async def save(self, session: sqlite3.Connection, write: Write) -> None:
        """Carry out a versioned write."""
        run(session, write)

    async def add_energy(self, session: sqlite3.Connection, asset: str, kwh: float) -> None:
        """Add to the sum of an asset."""
        session.execute(_ADD, (asset, kwh))

    def read(self) -> list[tuple[object, ...]]:
        """All that is known of all assets."""
        with self._connect() as connection:
            return connection.execute(
                "SELECT a.id, facility, type, capacity_kw, state, load_kw, kwh FROM asset AS a "
                "LEFT JOIN asset_state AS s ON s.id = a.id LEFT JOIN energy AS e ON e.id = a.id ORDER BY a.id"
            ).fetchall()
