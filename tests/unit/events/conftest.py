"""A desk of consumers over records in memory, with an engine of either kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from semel.stores.memory import MemoryStore
from semel.testing import VirtualClock
from tests.events.desk import Desk


@pytest.fixture(params=["sync", "async"])
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    clock = VirtualClock()
    with asyncio.Runner() as runner:
        made = Desk(request.param == "async", clock, MemoryStore(clock=clock.store_clock), runner)
        yield made
        made.close()
