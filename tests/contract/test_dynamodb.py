"""The DynamoDB store keeps the contract: two stores on one table are two processes."""

from __future__ import annotations

import pytest

from semel.stores.dynamodb import DynamoStore
from semel.testing.clock import VirtualClock
from semel.testing.contract import LetterContract, MakeStore, OutboxContract, StoreContract
from tests.contract.engine_rows import BY_THE_STORE, ENGINE_ROWS, WITHOUT_CALLS
from tests.servers.ministack import Tables

# An emulator takes a tenth of a second for each: all scenarios of what the store does by itself, and about five of each
# topic that is about the engine. The full effort runs all of them.
covering = pytest.mark.covering(
    shared=("colour", "call_style"), spread=ENGINE_ROWS, whole=WITHOUT_CALLS | BY_THE_STORE, at_most=5
)
pytestmark = [pytest.mark.slow, covering]


class TestDynamodb(StoreContract, LetterContract, OutboxContract):
    @pytest.fixture
    def make_store(self, clock: VirtualClock, dynamodb: Tables) -> MakeStore:
        dynamodb.empty(dynamodb.url)
        return lambda: DynamoStore(dynamodb.url, clock=clock.store_clock)
