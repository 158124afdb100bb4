"""The memory store: the table behind a lock, with a driver of each colour. Nothing survives the process."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from semel.core.flow import run
from semel.core.operations import Operation
from semel.core.store import Answers, AsyncJoined, Joined, Plan
from semel.errors import UsageError
from semel.stores.clock import StoreClock, machine_clock
from semel.stores.memory.table import Table


class MemoryStore:
    """Records in memory. `clock` is the store's clock; stores on one `table` are one place."""

    batch = 64
    behind_cache = True

    def __init__(self, *, clock: StoreClock = machine_clock, table: Table | None = None) -> None:
        self.clock = clock
        self.table = table or Table()
        self.name = f"memory://{id(self.table):x}"  # two tables are two places, also to a handler that asks again
        # A fork while another thread holds the lock would leave it locked for ever in the child.
        renew = weakref.WeakMethod(self._renew_lock)
        os.register_at_fork(after_in_child=lambda: _call(renew()))

    def _renew_lock(self) -> None:
        self.table.lock = threading.Lock()

    @property
    def install_id(self) -> bytes:
        """Which table this is."""
        return self.table.install_id

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """One command: the operations themselves."""
        del joined  # `join` refuses first
        answers: Answers = yield operations
        return answers

    def apply(self, operations: Sequence[Operation]) -> Answers:
        """Carry out operations one after the other, in one hold of the lock."""
        with self.table.lock:
            return [self.table.apply(operation, self.clock()) for operation in operations]

    def driver(self) -> MemoryDriver:
        """A driver for threads."""
        return MemoryDriver(self)

    def async_driver(self) -> AsyncMemoryDriver:
        """A driver for an event loop."""
        return AsyncMemoryDriver(self)

    def join(self, connection: Any) -> Joined:
        """There is no transaction to join."""
        _refuse(connection)

    def async_join(self, connection: Any) -> AsyncJoined:
        """There is no transaction to join."""
        _refuse(connection)


class MemoryDriver:
    """Carries rounds out at once."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        """Run each plan."""
        return [run(plan, self._store.apply) for plan in plans]

    def close(self) -> None:
        """Nothing to let go of."""


class AsyncMemoryDriver:
    """The same for an event loop: nothing here ever waits."""

    eager = True

    def __init__(self, store: MemoryStore) -> None:
        self._driver = MemoryDriver(store)

    async def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        """Run each plan."""
        return self._driver.perform(plans)

    async def close(self) -> None:
        """Nothing to let go of."""


def _call(function: Callable[[], None] | None) -> None:
    if function is not None:
        function()


def _refuse(connection: object) -> NoReturn:
    message = (
        f"The memory store has no transaction that a {type(connection).__qualname__} could share; nothing ran. "
        f"Use a SQL store for within()."
    )
    raise UsageError(message)
