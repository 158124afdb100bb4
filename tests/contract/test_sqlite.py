"""The SQLite store keeps the contract: two stores on one file are two processes."""

from pathlib import Path

import pytest

from semel.stores.sqlite import SqliteStore
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

pytestmark = pytest.mark.slow  # a thousand files; `make check` runs the same suite on memory


class TestSqlite(StoreContract, InvalidationContract, LetterContract, OutboxContract, BatchContract, AuditContract):
    @pytest.fixture
    def make_store(self, clock: VirtualClock, tmp_path: Path) -> MakeStore:
        # What survives a power failure is proved elsewhere; here nobody has to wait for the disk.
        return lambda: SqliteStore(tmp_path / "semel.db", clock=clock.store_clock, synchronous="NORMAL")
