"""The Redis store keeps the contract, on one server and on a cluster: two stores on one place are two processes."""

from __future__ import annotations

import pytest

from semel.stores.redis import RedisStore
from semel.testing.clock import VirtualClock
from semel.testing.contract import LetterContract, MakeStore, StoreContract
from tests.contract.engine_rows import ENGINE_ROWS
from tests.servers.redis import Keys

pytestmark = [pytest.mark.slow, pytest.mark.covering(across_classes=True, spread=ENGINE_ROWS)]


class OnRedis(StoreContract, LetterContract):
    """The contract on one kind of place."""

    @pytest.fixture
    def make_store(self, clock: VirtualClock, keys: Keys) -> MakeStore:
        keys.empty()
        return lambda: RedisStore(keys.url, clock=clock.store_clock)


class TestRedis(OnRedis):
    @pytest.fixture
    def keys(self, redis_keys: Keys) -> Keys:
        return redis_keys


class TestRedisCluster(OnRedis):
    @pytest.fixture
    def keys(self, redis_cluster_keys: Keys) -> Keys:
        return redis_cluster_keys
