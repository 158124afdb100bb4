"""The tier in the process: a few completed records, for a few seconds. No I/O.

What always holds: no more entries and bytes than were allowed, the least recently used go first; nothing is given at or
after its end. After a drop nothing comes in that was on its way before it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from semel.core.record import Record
from semel.stores.tiered.entries import size_of

_BESIDES: Final = 1024
"""Bytes that an entry takes beside that, roughly."""


class Kept(NamedTuple):
    """A record, with the store's now when it was read there, and the monotonic instant at which it is forgotten."""

    record: Record
    now_us: int
    until: float

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        return _BESIDES + size_of(self.record)


class Local:
    """Records by digest."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self._bytes = 0
        self.generation = 0
        """How often something was dropped; whoever is about to keep a record took note of it before reading it."""
        self._lock = threading.Lock()

    def renew_lock(self) -> None:
        """After a fork: whoever held the lock may not be here."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, digest: bytes, now: float) -> Kept | None:
        """What is kept of a digest at the monotonic instant `now`."""
        if digest not in self._kept:
            return None
        with self._lock:
            kept = self._kept.get(digest)
            if kept is not None and kept.until <= now:
                self._remove(digest)
                return None
            if kept is not None:
                self._kept.move_to_end(digest)
            return kept

    def keep(self, kept: Kept, generation: int) -> None:
        """Keep a record that was read while `generation` was the current one."""
        digest = kept.record.key.digest
        with self._lock:
            # Something was dropped since the record was asked for: it may be this one, read before it was erased.
            if generation != self.generation or kept.size > self._most_bytes:
                return
            self._remove(digest)
            self._kept[digest] = kept
            self._bytes += kept.size
            while len(self._kept) > self._most or self._bytes > self._most_bytes:
                self._remove(next(iter(self._kept)))

    def drop(self, digest: bytes) -> None:
        """Forget a digest, and let nothing in that is on its way."""
        with self._lock:
            self.generation += 1
            self._remove(digest)

    def _remove(self, digest: bytes) -> None:
        kept = self._kept.pop(digest, None)
        if kept is not None:
            self._bytes -= kept.size
