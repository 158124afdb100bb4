"""The cache in Redis, asked without an engine, on a clock that stands still until it is moved."""

import random
from typing import Any

from semel.core.circuit import Breaker
from semel.core.observer import Logging
from semel.stores.cache.logic import CacheBreaker
from semel.stores.cache.operations import CacheOperation
from semel.stores.cache.redis import RedisCache
from semel.stores.cache.settings import Cache
from tests.servers.redis import Keys
from tests.unit.stores.operations import START

INSTALL_ID = bytes(range(16))


class Asked:
    """A cache and one driver on it."""

    def __init__(self, keys: Keys) -> None:
        self.now = START
        self.install_id: bytes | None = INSTALL_ID
        breaker = Breaker(failures=2, rest=1, longest=1, chance=random.random)
        self.gate = CacheBreaker(breaker, lambda: self.now / 1_000_000, Logging())
        self.cache = RedisCache(Cache(keys.url, timeout=5), self.gate, lambda: self.install_id, lambda: self.now)
        self._driver = self.cache.driver()

    def __call__(self, *operations: CacheOperation) -> list[Any]:
        """The answers to operations of one kind, sent together."""
        (answers,) = self._driver.perform([self.cache.plan(operations, joined=False)])
        if isinstance(answers, Exception):
            raise answers
        return answers

    def by_table(self, table: Any, *operations: CacheOperation) -> list[Any]:
        """What a model says to the same."""
        return [table.apply(operation, self.now) for operation in operations]

    def close(self) -> None:
        """Let go of every connection."""
        self._driver.close()
