"""The PostgreSQL store keeps the contract: two stores on one database are two processes."""

from __future__ import annotations

import pytest

from semel.stores.postgresql import PostgresStore
from semel.testing.clock import VirtualClock
from semel.testing.contract import (
    AuditContract,
    BatchContract,
    InvalidationContract,
    LetterContract,
    MakeStore,
    OutboxContract,
    StoreContract,
)
from tests.contract.engine_rows import ENGINE_ROWS
from tests.servers.databases import Databases
from tests.servers.records import emptied

pytestmark = [pytest.mark.slow, pytest.mark.covering(shared=("colour", "call_style"), spread=ENGINE_ROWS)]


class TestPostgresql(StoreContract, InvalidationContract, LetterContract, OutboxContract, BatchContract, AuditContract):
    @pytest.fixture
    def make_store(self, clock: VirtualClock, postgresql: Databases) -> MakeStore:
        url = emptied(postgresql, postgresql.url)
        return lambda: PostgresStore(url, clock=clock.store_clock)
