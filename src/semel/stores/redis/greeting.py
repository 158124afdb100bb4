"""The first words on a connection, as a flow: is this a server that may decide who runs? And when to ask again.

What always holds: a replica is refused before anything is read there, because it would answer "absent" for what the
primary holds; and so is a server that removes keys when its memory is full, because it would forget claims.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from math import inf
from typing import Any, Final

from redis.exceptions import NoPermissionError

from semel.errors import StoreUnavailable
from semel.stores.redis.commands import Reply
from semel.stores.redis.settings import Address, Settings

Greeting = Generator[list[tuple[Any, ...]], list[Reply], None]
NEVER: Final = "noeviction"
EVERY = 60.0
"""Seconds after which a server is looked at again: its settings may be changed while connections stand."""


class Looks:
    """When which node has to be looked at again, over a connection that stands."""

    def __init__(self, settings: Settings) -> None:
        self._watched = settings.evicting != "allowed"
        self._due: dict[Address | None, float] = {}

    def is_due(self, address: Address | None) -> bool:
        """Whether the last look at a node is too long ago."""
        return self._watched and time.monotonic() >= self._due.get(address, -inf)

    def done(self, address: Address | None) -> None:
        """A node was looked at."""
        self._due[address] = time.monotonic() + EVERY


def greeting(settings: Settings) -> Greeting:
    """Look at a connection.

    Raises:
        StoreUnavailable: what it leads to cannot keep records.
    """
    (reply,) = yield [("INFO",)]
    if isinstance(reply, NoPermissionError) and settings.evicting == "allowed":
        return  # neither is looked at; a write to a replica is refused by itself
    if isinstance(reply, Exception):
        raise reply
    check(info_of(reply), settings)


def info_of(reply: bytes) -> dict[str, str]:
    """What INFO says, by name."""
    lines = reply.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def check(info: dict[str, str], settings: Settings) -> None:
    """Refuse what cannot keep records.

    Raises:
        StoreUnavailable: it is a replica, it is not ready, or it may evict.
    """
    # In a cluster a replica points to its primary by itself, and it may be asked for the map.
    if info.get("role") == "slave" and settings.kind != "cluster":
        message = (
            f"{settings.name} is a replica, and would answer that nothing is there; nothing ran. "
            f"Give the address of the primary."
        )
        raise StoreUnavailable(message)
    if info.get("loading", "0") != "0":
        message = f"{settings.name} is still reading its data; nothing ran. Try again."
        raise StoreUnavailable(message)
    if evicts(info) and settings.evicting != "allowed":
        message = (
            f"{settings.name} removes keys when its memory is full (maxmemory-policy {info['maxmemory_policy']}), so "
            f"it would forget who runs and what came of it; nothing ran. Set maxmemory-policy noeviction, or accept "
            f"that operations run twice with evicting=allowed."
        )
        raise StoreUnavailable(message)


def evicts(info: Mapping[str, str]) -> bool:
    """Whether the server removes keys by itself once its memory is full."""
    return info.get("maxmemory", "0") != "0" and info.get("maxmemory_policy", NEVER) != NEVER
