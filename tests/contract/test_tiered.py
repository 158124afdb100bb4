"""A store with tiers keeps the contract, over PostgreSQL and over SQLite: two stores on one place are two processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from semel.core.store import Store
from semel.stores.cache import Cache, TieredStore
from semel.stores.postgresql import PostgresStore
from semel.stores.sqlite import SqliteStore
from semel.testing.clock import VirtualClock
from semel.testing.contract import LetterContract, MakeStore, StoreContract
from tests.contract.engine_rows import ENGINE_ROWS
from tests.servers.databases import Databases
from tests.servers.records import emptied
from tests.servers.redis import Keys

pytestmark = [pytest.mark.slow, pytest.mark.covering(across_classes=True, spread=ENGINE_ROWS)]


class OnTiers(StoreContract, LetterContract):
    """The contract with a cache in Redis and one in the process; time is one and virtual for all of them."""

    @pytest.fixture
    def make_store(self, clock: VirtualClock, redis_keys: Keys, behind: Callable[[], Store]) -> MakeStore:
        redis_keys.empty()
        # A machine under load may take longer than a cache is given otherwise; then the cache would not be tested.
        cache = Cache(redis_keys.url, timeout=5, local=100)
        return lambda: TieredStore(behind(), cache, clock=clock.store_clock, monotonic=clock.monotonic)


class TestTieredOverPostgresql(OnTiers):
    @pytest.fixture
    def behind(self, clock: VirtualClock, postgresql: Databases) -> Callable[[], Store]:
        url = emptied(postgresql, postgresql.url)
        return lambda: PostgresStore(url, clock=clock.store_clock)


class TestTieredOverSqlite(OnTiers):
    @pytest.fixture
    def behind(self, clock: VirtualClock, tmp_path: Path) -> Callable[[], Store]:
        # What survives a power failure is proved elsewhere; here nobody has to wait for the disk.
        return lambda: SqliteStore(tmp_path / "semel.db", clock=clock.store_clock, synchronous="NORMAL")
