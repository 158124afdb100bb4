"""The desk of `tests.server.desk` as a fixture."""

import pytest

from semel import AsyncSemel
from semel.server.actions import Actions
from semel.server.audit import Audit
from semel.stores.memory import MemoryStore
from semel.testing import VirtualClock
from tests.server.desk import Desk


@pytest.fixture
def desk() -> Desk:
    clock = VirtualClock()
    semel = AsyncSemel(MemoryStore(clock=clock.store_clock), clock=clock)
    audit = Audit(semel)
    return Desk(clock, semel, audit, Actions(semel, audit))
