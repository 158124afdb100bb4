"""A world per test and library: one database per worker and server, emptied for each test."""

import zlib
from collections.abc import AsyncIterator

import pytest

from tests.decorated import CALL_STYLES, CallStyle
from tests.effort import FULL
from tests.servers.databases import Databases
from tests.servers.records import emptied
from tests.within.servers.world import DOORS, SERVERS, AsyncOnServer, OnServer, SyncOnServer


@pytest.fixture(scope="session")
def prepared() -> dict[str, str]:
    """One database per server, because to make one for each test takes longer than the test."""
    return {}


def _prepared(databases: Databases, server: str, prepared: dict[str, str]) -> str:
    """A database with semel's tables and one of the caller's, all empty."""
    if server not in prepared:
        url = prepared[server] = databases.new_database()
        databases.admin(SERVERS[server].table, url)
    return emptied(databases, prepared[server], SERVERS[server].emptying)


@pytest.fixture
def within_url(postgresql: Databases, prepared: dict[str, str]) -> str:
    """The database on PostgreSQL, for tests of a single library."""
    return _prepared(postgresql, "postgresql", prepared)


@pytest.fixture(params=CALL_STYLES if FULL else ["by turns"])
def call_style(request: pytest.FixtureRequest) -> CallStyle:
    """Each style for each test; at the small effort one of them, by the name of the test."""
    return CALL_STYLES[zlib.crc32(request.node.name.encode()) % len(CALL_STYLES)] if not FULL else request.param


@pytest.fixture(params=DOORS)
async def world(
    request: pytest.FixtureRequest, prepared: dict[str, str], call_style: CallStyle, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[OnServer]:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # scenarios are coroutines in either colour
    door = DOORS[request.param]
    databases: Databases = request.getfixturevalue(door.server)
    kind = SyncOnServer if door.colour == "sync" else AsyncOnServer
    world = kind(databases, _prepared(databases, door.server, prepared), door, call_style)
    yield world
    await world.close()
