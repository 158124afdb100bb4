"""A model of the cache in Redis: what its scripts do, applied to a dictionary.

What always holds: every operation is one step at one instant, as a script is. Real Redis is shown to answer the same.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, assert_never

from msgspec.structs import replace

from semel.core.record import StoredRecord
from semel.stores.cache.operations import (
    CacheGet,
    CacheHit,
    CacheInvalidate,
    CacheInvalidated,
    CacheMiss,
    CacheOperation,
    CachePut,
    CachePutResult,
)

EPOCH_US = 10_000_000


class Entry(NamedTuple):
    """What stands under a key until `ends`: a record (with the store's now), an epoch, or a tombstone (since when)."""

    kind: Literal["record", "epoch", "tombstone"]
    ends: int
    record: StoredRecord | None = None
    now_us: int = 0
    epoch: bytes = b""
    since: int = 0


class CacheTable:
    """Entries by digest."""

    def __init__(self, entries: dict[bytes, Entry] | None = None) -> None:
        self.entries = {} if entries is None else entries

    def apply(self, operation: CacheOperation, now: int) -> CacheHit | CacheMiss | CachePutResult | CacheInvalidated:
        """Carry out `operation` at the instant `now`."""
        match operation:
            case CacheGet():
                return self.look(operation, now)
            case CachePut():
                return self.fill(operation, now)
            case CacheInvalidate():
                return self.drop(operation, now)
            case _:
                assert_never(operation)

    def _standing(self, digest: bytes, now: int) -> Entry | None:
        entry = self.entries.get(digest)
        return None if entry is None or entry.ends <= now else entry

    def look(self, look: CacheGet, now: int) -> CacheHit | CacheMiss:
        """The record, or the epoch that stands, or the one that is placed."""
        entry = self._standing(look.key.digest, now)
        if entry is None:
            self.entries[look.key.digest] = Entry("epoch", now + EPOCH_US, epoch=look.epoch)
            return CacheMiss(look.epoch, now)
        if entry.record is not None:
            return CacheHit(entry.record, entry.now_us, entry.ends - now)
        return CacheMiss(entry.epoch, now)

    def fill(self, fill: CachePut, now: int) -> CachePutResult:
        """Cache a record under the epoch that stands, and under no other."""
        digest = fill.record.key.digest
        entry = self._standing(digest, now)
        if entry is None or entry.kind != "epoch" or entry.epoch != fill.epoch or fill.until_us <= now:
            return CachePutResult(False)
        self.entries[digest] = Entry("record", fill.until_us, record=replace(fill.record, steps=()), now_us=fill.now_us)
        return CachePutResult(True)

    def drop(self, drop: CacheInvalidate, now: int) -> CacheInvalidated:
        """Put a tombstone there, and say for how long there has been one."""
        entry = self._standing(drop.digest, now)
        since, ends = now, now + drop.quiet_us
        if entry is not None and entry.kind == "tombstone":
            since, ends = entry.since, max(entry.ends, ends)
        self.entries[drop.digest] = Entry("tombstone", ends, since=since)
        return CacheInvalidated(now - since)
