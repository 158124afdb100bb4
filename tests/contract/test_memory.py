"""The memory store keeps the contract."""

import pytest

from semel.stores.memory import MemoryStore
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


@pytest.mark.fast_rows(shared=("colour", "call_style"))
class TestMemory(StoreContract, InvalidationContract, LetterContract, OutboxContract, BatchContract, AuditContract):
    @pytest.fixture
    def make_store(self, clock: VirtualClock) -> MakeStore:
        store = MemoryStore(clock=clock.store_clock)
        return lambda: store
