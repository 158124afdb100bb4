"""Callers with a transaction of their own on a server, in either colour and in either style of calling."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.decorated import CallStyle
from tests.faults.users import Colour
from tests.servers.databases import Databases
from tests.within.servers.world import DOORS, AsyncOnServer, OnServer, SyncOnServer

_LIBRARIES: dict[tuple[str, Colour], str] = {
    ("postgresql", "threads"): "psycopg",
    ("postgresql", "loop"): "psycopg-async",
    ("mariadb", "threads"): "pymysql",
    ("mariadb", "loop"): "asyncmy",
}


@asynccontextmanager
async def calling(
    server: str, databases: Databases, url: str, colour: Colour, style: CallStyle
) -> AsyncIterator[OnServer]:
    """An engine at `url` and callers of the plain library of a colour, until the block is left."""
    kind = SyncOnServer if colour == "threads" else AsyncOnServer
    world = kind(databases, url, DOORS[_LIBRARIES[server, colour]], style)
    try:
        yield world
    finally:
        await world.close()
