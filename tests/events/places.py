"""Stores with an outbox, connections of a caller to add events on, and a publisher that writes down what it got.

What always holds: a place is empty at first, and every engine and connection it gave is closed at its end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from semel import AsyncSemel
from semel.events import Event, Outbox, Relay
from semel.stores.memory import MemoryStore
from semel.stores.urls import store_from_url
from tests.within.servers.callers import Asyncmy, Asyncpg, Cursored

JOINING = ("sqlite", "postgresql", "mariadb")
PLACES = ("memory", *JOINING, "dynamodb")


class Sqlite3(Cursored):
    """`sqlite3.Connection`, which begins by itself."""

    @classmethod
    async def open(cls, url: str, **settings: Any) -> Sqlite3:
        return cls(sqlite3.connect(url.removeprefix("sqlite:///"), **settings))

    async def begin(self, isolation: str = "") -> None:
        del isolation
        await self.sql("BEGIN")

    async def sql(self, text: str) -> list[tuple[Any, ...]]:
        return list(self.thing.execute(text).fetchall())


_CALLERS: dict[str, Any] = {"sqlite": Sqlite3, "postgresql": Asyncpg, "mariadb": Asyncmy}


@dataclass
class Place:
    """A store of one kind, empty."""

    name: str
    make_store: Callable[[], Any]
    url: str = ""
    _open: list[Any] = field(default_factory=list)

    def semel(self) -> AsyncSemel:
        """Another engine on it, as another process would have."""
        engine = AsyncSemel(self.make_store())
        self._open.append(engine)
        return engine

    async def caller(self) -> Any:
        """A connection of a caller to the same database."""
        opened = await _CALLERS[self.name].open(self.url)
        self._open.append(opened)
        return opened

    async def close(self) -> None:
        """Close all that was opened."""
        for one in reversed(self._open):
            await one.close()


def place_at(name: str, url: str) -> Place:
    """The place at a URL; in memory where there is none."""
    if name == "memory":
        store = MemoryStore()
        return Place(name, lambda: store)
    return Place(name, lambda: store_from_url(url), url)


def an_event(name: str, **changes: Any) -> Event:
    """An event that is told from others by its id."""
    return Event(**{"type": "asset.moved", "source": "/test", "id": name, "data": {"name": name}, **changes})


async def add(outbox: Outbox[AsyncSemel], *names: str, within: Any = None, **settings: Any) -> None:
    """Add events, one after the other, in a transaction of the caller or each in its own."""
    for name in names:
        await outbox.add(an_event(name), within=within, autonomous=within is None, **settings)


@dataclass
class Broker:
    """A publisher that keeps what it is given, and refuses what it is told to."""

    got: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    refused: dict[str, Exception] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    before: Callable[[Sequence[Event]], Any] | None = None

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        """Keep each, or say why not."""
        self.calls.append(len(events))
        if self.before is not None:
            await self.before(events)
        told = [self.refused.get(event.id) for event in events]
        taken = [event for event, error in zip(events, told, strict=True) if error is None]
        self.got += [event.id for event in taken]
        self.events += taken
        return told


def relay_to(broker: Any, outbox: Outbox[AsyncSemel], **settings: Any) -> Relay:
    """A relay."""
    return Relay(outbox, broker, **settings)
