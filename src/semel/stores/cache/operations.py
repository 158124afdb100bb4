"""What is asked of a cache in front of the store that decides, and what it answers.

Invariants: a cache holds completed records only, each for no longer than the store behind it would replay it. A put
needs the epoch that a get placed, or found, before the store behind was read; whatever removes that epoch (an
invalidation, an eviction, the end of its life) refuses the put. So nobody puts in after an invalidation what was read
before it. What a cache holds for one database is never given for another.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from semel.core.key import Key
from semel.core.record import StoredRecord
from semel.core.store import AsyncDriver, Batching, Driver


class CacheGet(msgspec.Struct, frozen=True):
    """Ask for a cached record. Where there is none `epoch` is placed under its key, unless there is one."""

    key: Key
    epoch: bytes


class CachePut(msgspec.Struct, frozen=True):
    """Cache a record until the cache's instant `until_us`, if `epoch` still stands. `now_us`: when it was read."""

    record: StoredRecord
    epoch: bytes
    until_us: int
    now_us: int


class CacheInvalidate(msgspec.Struct, frozen=True):
    """Forget a record and its epoch, and refuse puts for `quiet_us`."""

    digest: bytes
    operation: str
    quiet_us: int


CacheOperation = CacheGet | CachePut | CacheInvalidate


class CacheHit(msgspec.Struct, frozen=True):
    """A cached record, with the store's now when it was read there; it is good for another `rest_us`."""

    record: StoredRecord
    now_us: int
    rest_us: int


class CacheMiss(msgspec.Struct, frozen=True):
    """Nothing is cached. A put may show `epoch`, where there is one; `now_us` is the cache's now."""

    epoch: bytes = b""
    now_us: int = 0


class CachePutResult(msgspec.Struct, frozen=True):
    """Whether the record was cached. `full`: it was not, because there is no room for it."""

    done: bool
    full: bool = False


class CacheInvalidated(msgspec.Struct, frozen=True):
    """It is forgotten, and has been for so long without a break."""

    since_us: int


class CacheRequest(msgspec.Struct, frozen=True):
    """What a flow of tiers wants of the cache; every other operation it yields is for the store that decides."""

    operation: CacheOperation


class SharedCache(Batching, Protocol):
    """A cache that takes a round trip, as lanes see it."""

    def driver(self) -> Driver:
        """A driver for threads of this process."""

    def async_driver(self) -> AsyncDriver:
        """A driver for the running event loop."""
