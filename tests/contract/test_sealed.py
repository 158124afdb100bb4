"""A store keeps the contract with everything sealed: in memory, and in an SQLite file."""

from pathlib import Path

import pytest

from semel.security import Keyring
from semel.stores.memory import MemoryStore
from semel.stores.sealing import SealedStore
from semel.stores.sqlite import SqliteStore
from semel.testing.clock import VirtualClock
from semel.testing.contract import (
    BatchContract,
    InvalidationContract,
    LetterContract,
    MakeStore,
    OutboxContract,
    StoreContract,
)
from tests.contract.engine_rows import BY_THE_STORE, ENGINE_ROWS, WITHOUT_CALLS

# Two stores share the rows that only the engine tells apart, and the topics about the engine run about five of theirs:
# the same suite runs whole without a seal. The full effort runs all of them.
covering = pytest.mark.covering(
    shared=("colour", "call_style"), spread=ENGINE_ROWS, whole=WITHOUT_CALLS | BY_THE_STORE, at_most=5
)
pytestmark = [pytest.mark.slow, covering]
RING = Keyring(active="2026-11", keys={"2026-11": bytes(range(32))})


class TestSealedMemory(StoreContract, InvalidationContract, LetterContract, OutboxContract, BatchContract):
    @pytest.fixture
    def make_store(self, clock: VirtualClock) -> MakeStore:
        store = MemoryStore(clock=clock.store_clock)
        return lambda: SealedStore(store, RING)


class TestSealedSqlite(StoreContract, InvalidationContract, LetterContract, OutboxContract, BatchContract):
    @pytest.fixture
    def make_store(self, clock: VirtualClock, tmp_path: Path) -> MakeStore:
        path = tmp_path / "semel.db"
        return lambda: SealedStore(SqliteStore(path, clock=clock.store_clock, synchronous="NORMAL"), RING)
