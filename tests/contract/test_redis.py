"""The Redis store keeps the contract: two stores on one server are two processes."""

from __future__ import annotations

import pytest

from semel.stores.redis import RedisStore
from semel.testing.clock import VirtualClock
from semel.testing.contract import MakeStore, StoreContract
from tests.servers.redis import Keys

pytestmark = pytest.mark.slow


class TestRedis(StoreContract):
    @pytest.fixture
    def make_store(self, clock: VirtualClock, redis_keys: Keys) -> MakeStore:
        redis_keys.empty()
        return lambda: RedisStore(redis_keys.url, clock=clock.store_clock)
