"""What the tests of the client share: a service, a file for keys, and doors that are closed behind the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.doors import DOORS, Door
from tests.client.service import Service, running

Open = Callable[..., Door]


@pytest.fixture
def service() -> Iterator[Service]:
    with running() as made:
        yield made


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The file that keeps the keys."""
    return tmp_path / "keys.db"


@pytest.fixture(params=list(DOORS))
def open_door(request: pytest.FixtureRequest, keys: Path) -> Iterator[Open]:
    """Opens a door of one of the three kinds, on the file of the test where nothing else is said."""
    doors: list[Door] = []

    def opened(place: Any = None, **settings: Any) -> Door:
        doors.append(DOORS[request.param](place or keys, **settings))
        return doors[-1]

    yield opened
    for door in doors:
        door.close()


@pytest.fixture
def door(open_door: Open) -> Door:
    return open_door()
