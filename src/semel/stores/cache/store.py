"""A SQL store that decides, with caches of completed records in front of it.

- Plans, drivers and joined connections are those of the store behind, so inside the caller's transaction nothing is
  taken from a cache and nothing is put into one.
- What the caches answer is decided in `logic`, and asked by the lane that the store puts around the engine's.
"""

from __future__ import annotations

import os
import random
import secrets
import time
import weakref
from collections.abc import Callable
from typing import cast

from semel.core.circuit import Breaker
from semel.core.flow import Flow
from semel.core.observer import Logging, Observer
from semel.core.operations import Answer, Operation
from semel.core.sealing.values import Sealer
from semel.core.store import (
    AsyncDriver,
    Batching,
    CacheableStore,
    Capabilities,
    Capability,
    Driver,
    LanePort,
    SeparateLoop,
    Store,
)
from semel.errors import UsageError
from semel.extras import requires
from semel.stores.cache.lane import AsyncCacheLane, SyncCacheLane
from semel.stores.cache.logic import CacheBreaker, LruCache, Tiers
from semel.stores.cache.operations import SharedCache
from semel.stores.cache.settings import Cache
from semel.stores.settings import StoreClock
from semel.stores.wrapper import StoreWrapper


class TieredStore(StoreWrapper):
    """Records in `store`, with completed ones cached as `cache` says.

    Args:
        store: the store that decides: of SQL, or in memory for tests.
        cache: a URL or a `Cache`.
        observer: told of hits, misses, and a cache that does not answer; by default it goes to `logging`.
        sealer: seals the entries of a shared cache.
        clock: a virtual clock for the cache's server, for tests alone.
        monotonic: what lives in this process are measured by.

    Raises:
        UsageError: the store cannot stand behind a cache, or a setting is not usable.
    """

    def __init__(
        self,
        store: Store,
        cache: str | Cache,
        *,
        observer: Observer | None = None,
        sealer: Sealer | None = None,
        clock: StoreClock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if Capability.INVALIDATIONS not in store.capabilities:
            message = (
                f"{store.name} cannot stand behind a cache; nothing was opened. A cache goes in front of PostgreSQL, "
                f"MySQL, MariaDB or SQLite, which note what has still to be removed from it."
            )
            raise UsageError(message)
        given = Cache.of(cache)
        observer = observer or Logging()
        breaker = Breaker(failures=2, rest=0.2, longest=5.0, chance=random.random)
        self._store = behind = cast("CacheableStore", store)
        self._gate = CacheBreaker(breaker, monotonic, observer)
        self._local = LruCache(given.local, given.local_bytes) if given.local else None
        self._shared = _shared_cache(given, self._gate, lambda: behind.install_id, clock, sealer)
        self._tiers = Tiers(
            given,
            self._gate,
            self._local,
            monotonic=monotonic,
            observer=observer,
            new_epoch=lambda: secrets.token_bytes(16),
        )
        renew = weakref.WeakMethod(self._renew_locks)
        os.register_at_fork(after_in_child=lambda: _call(renew()))

    def _renew_locks(self) -> None:
        self._gate.renew_lock()
        if self._local is not None:
            self._local.renew_lock()

    def _behind(self) -> Store:
        return self._store

    @property
    def capabilities(self) -> Capabilities:
        """What the store behind can do; a second cache cannot stand in front of the first."""
        return (super().capabilities | {Capability.LANE_WRAPPER}) - {Capability.INVALIDATIONS}

    def separate_async_driver(self) -> AsyncDriver:
        """A driver of the store behind for another event loop than the caller's."""
        return cast("SeparateLoop", self._store).separate_async_driver()

    def wrap_lane(self, lane: LanePort, open_lane: Callable[[Batching, Driver], LanePort]) -> SyncCacheLane:
        """The lane for threads, with the caches in front of it."""
        return SyncCacheLane(self, self._shared, lane, open_lane)

    def async_wrap_lane(self, lane: LanePort, open_lane: Callable[[Batching, AsyncDriver], LanePort]) -> AsyncCacheLane:
        """The lane for an event loop, with the caches in front of it."""
        return AsyncCacheLane(self, self._shared, lane, open_lane)

    def at_hand(self, operation: Operation) -> Answer | None:
        """The answer, where this process knows it."""
        return self._tiers.at_hand(operation)

    def ask(self, operation: Operation) -> Flow[Answer] | None:
        """How the tiers answer; None where only the store behind is asked."""
        return self._tiers.ask(operation)


def _shared_cache(
    cache: Cache,
    gate: CacheBreaker,
    install_id: Callable[[], bytes | None],
    clock: StoreClock | None,
    sealer: Sealer | None,
) -> SharedCache | None:
    if cache.url is None:
        return None
    with requires("cache=", "redis"):
        from semel.stores.cache.redis import RedisCache
    return RedisCache(cache, gate, install_id, clock, sealer)


def _call(function: Callable[[], None] | None) -> None:
    if function is not None:
        function()
