"""A database with one table, `asset`, and sessions on it through the library of the test's `door`."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.versions.doors import DOORS, Door, Session

ASSET = """
CREATE TABLE asset (
    id VARCHAR(40) PRIMARY KEY,
    state VARCHAR(40) NOT NULL,
    {quote}group{quote} VARCHAR(40),
    request VARCHAR(40),
    serial VARCHAR(40) UNIQUE,
    version {integer} NOT NULL
)
"""

TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE 0",  # the file is new
    "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
    "mariadb": "SHOW TABLES",
    "mysql": "SHOW TABLES",
}

Opener = Callable[[], Awaitable[Session]]


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Door:
    return DOORS[request.param]


@pytest.fixture(scope="session")
def databases() -> dict[str, str]:
    """One database per server, because to make one for each test takes longer than the test."""
    return {}


@pytest.fixture
def url(door: Door, tmp_path: Path, databases: dict[str, str], request: pytest.FixtureRequest) -> str:
    """A database in which nobody else works."""
    if door.server == "sqlite":
        return f"sqlite:///{tmp_path / 'assets.db'}"
    if door.server not in databases:
        databases[door.server] = str(request.getfixturevalue(door.server).new_database())
    return databases[door.server]


@pytest.fixture
async def opened(door: Door, url: str, anyio_backend: str) -> AsyncIterator[Opener]:
    """Opens sessions, which are closed with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def session() -> Session:
            one = await door.open(url)
            stack.push_async_callback(one.close)
            stack.push_async_callback(one.rollback)
            return one

        first = await session()
        mysql = door.server in ("mariadb", "mysql")
        for table in await first.sql(TABLES[door.server]):
            await first.sql(f"DROP TABLE {table[0]}")
        await first.sql(ASSET.format(quote="`" if mysql else '"', integer="INT UNSIGNED" if mysql else "INTEGER"))
        await first.commit()
        yield session


@pytest.fixture
async def session(opened: Opener) -> Session:
    return await opened()
