"""The asset service on SQLite, started and started anew."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.assets.service import make_consumer
from examples.assets.sqlite import SqlitePlant
from semel import AsyncSemel
from semel.events import Consumer


@dataclass
class Service:
    """A running service: its engine, its consumer and its tables."""

    semel: AsyncSemel
    consumer: Consumer[AsyncSemel]
    plant: SqlitePlant


Start = Callable[[], AbstractAsyncContextManager[Service]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a service on the one database of the test; each knows nothing of the others."""

    @asynccontextmanager
    async def started() -> AsyncIterator[Service]:
        plant = SqlitePlant(tmp_path / "assets.db")
        async with AsyncSemel(f"sqlite:///{tmp_path / 'assets.db'}") as semel:
            yield Service(semel, make_consumer(semel, plant, plant.transaction), plant)

    return started
