"""The plant in PostgreSQL, on asyncpg."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from semel.versions import Write, arun

TABLES = """
CREATE TABLE IF NOT EXISTS asset (
    id text PRIMARY KEY, facility text NOT NULL, type text NOT NULL,
    capacity_kw double precision NOT NULL CHECK (capacity_kw >= 0), request text, version bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS asset_state (
    id text PRIMARY KEY, load_kw double precision NOT NULL CHECK (load_kw >= 0), version bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('idle', 'running', 'maintenance', 'retired'))
);
CREATE TABLE IF NOT EXISTS energy (id text PRIMARY KEY, kwh double precision NOT NULL);
"""
_ADD = "INSERT INTO energy VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET kwh = energy.kwh + excluded.kwh"


class PostgresPlant:
    """The tables, and the transactions that events are handled in."""

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool

    async def create_tables(self) -> None:
        """Make the tables where they are missing; of several services that start at once, one does."""
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('assets: create tables'))")
            await connection.execute(TABLES)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Begin, and commit at the end; an error rolls back."""
        async with self._pool.acquire() as connection, connection.transaction():
            yield connection

    async def save(self, session: Any, write: Write) -> None:
        """Carry out a versioned write."""
        await arun(session, write)

    async def add_energy(self, session: Any, asset: str, kwh: float) -> None:
        """Add to the sum of an asset."""
        await session.execute(_ADD, asset, kwh)

    async def read(self) -> list[tuple[object, ...]]:
        """All that is known of all assets."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(
                "SELECT a.id, facility, type, capacity_kw, state, load_kw, kwh FROM asset AS a "
                "LEFT JOIN asset_state AS s ON s.id = a.id LEFT JOIN energy AS e ON e.id = a.id ORDER BY a.id"
            )
        return [tuple(row) for row in rows]
