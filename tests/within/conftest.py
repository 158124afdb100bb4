"""A world per test: an engine of each colour on a fresh file, and connections of the caller to it."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from semel.stores.sqlite import migrate
from tests.decorated import CALL_STYLES, CallStyle
from tests.within.world import AsyncWorld, SyncWorld, World


@pytest.fixture(params=CALL_STYLES)
def call_style(request: pytest.FixtureRequest) -> CallStyle:
    chosen: CallStyle = request.param
    return chosen


@pytest.fixture(params=[SyncWorld, AsyncWorld], ids=["sync", "async"])
async def world(request: pytest.FixtureRequest, tmp_path: Path, call_style: CallStyle) -> AsyncIterator[World]:
    path = tmp_path / "semel.db"
    migrate(path)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE effect (name TEXT)")
    connection.close()
    world: World = request.param(path, call_style)
    yield world
    await world.close()
