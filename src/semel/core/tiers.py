"""Tiers: what is asked of a cache in front of the store that decides, and what a store with tiers offers an engine.

What always holds: a cache holds completed records only, each for no longer than the store behind it would replay it.
A fill needs the epoch that a look placed, or found, before the store behind was read; whatever removes that epoch (a
drop, an eviction, the end of its life) refuses the fill. So nobody fills in after a drop what was read before it.
What a cache holds for one database is never given for another.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from semel.core.flow import Flow
from semel.core.key import Key
from semel.core.operations import Answer, Operation
from semel.core.record import Record
from semel.core.store import AsyncDriver, Batching, Driver, Store


class Look(msgspec.Struct, frozen=True):
    """Ask for a cached record. Where there is none `epoch` is placed under its key, unless there is one."""

    key: Key
    epoch: bytes


class Fill(msgspec.Struct, frozen=True):
    """Cache a record until the cache's instant `until_us`, if `epoch` still stands. `now_us`: when it was read."""

    record: Record
    epoch: bytes
    until_us: int
    now_us: int


class Drop(msgspec.Struct, frozen=True):
    """Forget a record and its epoch, and refuse fills for `quiet_us`."""

    digest: bytes
    operation: str
    quiet_us: int


CacheOperation = Look | Fill | Drop


class Hit(msgspec.Struct, frozen=True):
    """A cached record, with the store's now when it was read there; it is good for another `rest_us`."""

    record: Record
    now_us: int
    rest_us: int


class Missed(msgspec.Struct, frozen=True):
    """Nothing is cached. A fill may show `epoch`, where there is one; `now_us` is the cache's now."""

    epoch: bytes = b""
    now_us: int = 0


class Filled(msgspec.Struct, frozen=True):
    """Whether the record was cached. `full`: it was not, because there is no room for it."""

    done: bool
    full: bool = False


class Dropped(msgspec.Struct, frozen=True):
    """It is forgotten, and has been for so long without a break."""

    since_us: int


class InFront(msgspec.Struct, frozen=True):
    """What a flow of tiers wants of the cache; every other operation it yields is for the store that decides."""

    operation: CacheOperation


class Front(Batching, Protocol):
    """A cache, as lanes and runtimes see it."""

    def driver(self) -> Driver:
        """A driver for threads of this process."""

    def async_driver(self) -> AsyncDriver:
        """A driver for the running event loop."""


class Behind(Store, Protocol):
    """What a store with `behind_cache = True` has beside the methods of a store."""

    @property
    def install_id(self) -> bytes | None:
        """Which database this is: random, and kept in it. None until it was read; nothing is asked for it."""


class Tiered(Protocol):
    """What a store with `tiers = True` has beside the methods of a store, which are those of the store that decides."""

    @property
    def front(self) -> Front | None:
        """The cache that takes a round trip; None where there is only one in this process."""

    def at_hand(self, operation: Operation) -> Answer | None:
        """The answer, where it is known in this process; nothing is sent."""

    def ask(self, operation: Operation) -> Flow[Answer] | None:
        """How the tiers answer: a flow that yields operations. None: the store that decides is asked, nobody else."""


def tiers_of(store: Any) -> Tiered | None:
    """The tiers of a store, if it has some."""
    return store if getattr(store, "tiers", False) else None
