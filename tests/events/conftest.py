"""What the tests of events share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from semel import AsyncSemel
from tests.events.places import Place, place_at
from tests.servers.ministack import Tables
from tests.servers.records import emptied


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The store that a test names by its parameter, empty."""
    name: str = request.param
    if name == "memory":
        return place_at(name, "")
    if name == "sqlite":
        return place_at(name, f"sqlite:///{tmp_path}/semel.db")
    if name == "dynamodb":
        tables: Tables = request.getfixturevalue(name)
        tables.empty(tables.url)
        return place_at(name, tables.url)
    databases = request.getfixturevalue(name)
    return place_at(name, emptied(databases, databases.url))


@pytest.fixture
async def semel(place: Place) -> AsyncIterator[AsyncSemel]:
    """An engine on that store."""
    yield place.semel()
    await place.close()
