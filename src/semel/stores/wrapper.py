"""A store in front of another one that passes on whatever it does not do itself.

Plans, drivers and joined connections are those of the store behind unless a subclass says otherwise, so races are
decided there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

from semel.core.operations import Operation
from semel.core.store import (
    ADMINISTRATION,
    ITS_OWN,
    AsyncDriver,
    AsyncJoined,
    CacheableStore,
    Capabilities,
    Driver,
    Joined,
    Plan,
    Store,
    WithBatches,
)


class StoreWrapper(ABC):
    """A store that passes everything on; subclasses say to which one, and do themselves what they are for."""

    @abstractmethod
    def _behind(self) -> Store:
        """The store behind. Asked for each time, so it may be found as late as that."""

    @property
    def behind(self) -> Store:
        """The store that everything is passed on to."""
        return self._behind()

    @property
    def name(self) -> str:
        """What the store behind is called in messages."""
        return self._behind().name

    @property
    def max_operations(self) -> int:
        """How many operations go together to the store behind."""
        return self._behind().max_operations

    @property
    def capabilities(self) -> Capabilities:
        """What the store behind can do for this one: operators name that store itself, and its lane is its own."""
        return self._behind().capabilities - ADMINISTRATION - ITS_OWN

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The commands of the store behind."""
        return self._behind().plan(operations, joined=joined)

    def driver(self) -> Driver:
        """A driver of the store behind, for threads."""
        return self._behind().driver()

    def async_driver(self) -> AsyncDriver:
        """A driver of the store behind, for an event loop."""
        return self._behind().async_driver()

    def separate_async_driver(self) -> AsyncDriver:
        """A driver for an event loop of semel's own."""
        return self.async_driver()

    @property
    def install_id(self) -> bytes | None:
        """Which database the store behind is, where it has invalidations and that was learnt by now."""
        return cast("CacheableStore", self._behind()).install_id

    def join(self, connection: Any) -> Joined:
        """The caller's connection, as the store behind takes it."""
        return self._behind().join(connection)

    def async_join(self, connection: Any) -> AsyncJoined:
        """The same for connections that are awaited."""
        return self._behind().async_join(connection)

    def is_outage(self, error: Exception) -> bool:
        """Whether an error of the caller's connection says nothing of what was sent, where there are batches."""
        return cast("WithBatches", self._behind()).is_outage(error)

    @property
    def has_one_writer(self) -> bool:
        """As the store behind says, where there are batches."""
        return cast("WithBatches", self._behind()).has_one_writer


def innermost_store(store: Store) -> Store:
    """The store that operators mean: without the cache and the seal in front of it."""
    while isinstance(store, StoreWrapper):
        store = store.behind
    return store
