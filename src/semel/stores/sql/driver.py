"""Drivers of the SQL stores: batches of plans on the store's own connections, in threads and on event loops.

- Every command is a transaction of its own and has taken effect when it answers.
- A command that the server gave up on (deadlock, serialization failure) did nothing and is sent again; one whose reply
  is lost is not: that is for the flow to decide.
- After a lost connection no older one is used. Nothing is shared with a forked process.
"""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import BoundedSemaphore as AsyncSemaphore
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import BoundedSemaphore as SyncSemaphore
from typing import Any, Final, TypeVar

from semel.core.flow import arun, run
from semel.core.store import Answers, Plan
from semel.errors import StoreUnavailable
from semel.stores.settings import connection_ages
from semel.stores.sql.adapter import Adapter, AsyncAdapter
from semel.stores.sql.context import SqlContext
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.errors import CannotCopy, ErrorKind, translate_connecting_error, translate_error
from semel.stores.sql.settings import Settings

T = TypeVar("T")
Replies = list[Answers | Exception]
ListenerFactory = Callable[[Settings, Any, Callable[[bytes], None]], Any]
"""Makes a listener from settings, an adapter and whom to tell; its `close` is awaited where the driver is."""

_AGAIN: Final = 5
_KEEPS_CONNECTION: Final = frozenset(
    {None, ErrorKind.CONFLICT, ErrorKind.LOCKED, ErrorKind.HELD, ErrorKind.OF_ONE, ErrorKind.MISSING}
)
_inherited: list[Any] = []
"""Connections of a parent process, kept so that no collection closes them: the parent still uses them."""


@dataclass(slots=True)
class PooledConnection:
    """A connection on loan."""

    connection: Any
    broken: bool = False

    def translate(self, adapter: Adapter | AsyncAdapter, error: Exception, name: str) -> Exception:
        """What `error` means, noting whether the connection can be used again."""
        kind = adapter.error_kind(error)
        if kind not in _KEEPS_CONNECTION:
            self.broken = True
        return translate_error(error, kind, name)


def _may_send_again(adapter: Adapter | AsyncAdapter, error: Exception, turn: int) -> bool:
    return turn < _AGAIN and adapter.error_kind(error) is ErrorKind.CONFLICT


def _exhausted(name: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"Every connection to {name} was in use for too long; nothing was recorded. Try again, or raise pool_size."
    )


async def async_run_all(run_plan: Callable[[Plan], Awaitable[T]], plans: Sequence[Plan]) -> list[T]:
    """The plans of a round go side by side in an event loop."""
    if len(plans) == 1:
        return [await run_plan(plans[0])]
    return list(await asyncio.gather(*map(run_plan, plans)))


def sync_run_all(run_plan: Callable[[Plan], T], plans: Sequence[Plan]) -> list[T]:
    """The plans of a round follow each other in a thread."""
    return list(map(run_plan, plans))


async def async_enter(room: AsyncSemaphore, seconds: float) -> bool:
    """Whether there was room for a task within so many seconds."""
    if not room.locked():
        return await room.acquire()
    try:
        async with asyncio.timeout(seconds):
            return await room.acquire()
    except TimeoutError:
        return False


def sync_enter(room: SyncSemaphore, seconds: float) -> bool:
    """Whether there was room for a thread within so many seconds."""
    return room.acquire(timeout=seconds)


class AsyncSqlDriver:
    """Carries plans out on connections of the store's own, or on ones that an adapter borrows.

    Args:
        context: what is known of the database.
        adapter: the client library.
        make_listener: makes what listens for ends, where the server can tell of them.
    """

    def __init__(
        self, context: SqlContext, adapter: AsyncAdapter, make_listener: ListenerFactory | None = None
    ) -> None:
        self._context = context
        self._adapter = adapter
        self._keeps = adapter.keeps
        self._make_listener = make_listener if context.settings.listen else None
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Any] = []
        self._ages = connection_ages(self._context.settings, self._context.monotonic) if self._keeps else None
        self._listener: Any = None
        self._lock = threading.Lock()  # never held while something is awaited
        self._room = AsyncSemaphore(self._context.settings.pool_size)

    async def perform(self, plans: Sequence[Plan]) -> Replies:
        """Run one round."""
        if self._pid != os.getpid():
            _inherited.append(self._idle)
            self._start_over()
        return await async_run_all(self._run_plan, plans)

    async def _run_plan(self, plan: Plan) -> Answers | Exception:
        try:
            pooled = await self._acquire()
        except Exception as error:  # noqa: BLE001 - a store that cannot be used is the reply
            plan.close()
            return error
        try:
            return await arun(plan, partial(self._execute, pooled))
        except Exception as error:  # noqa: BLE001 - a bug of this plan is its own reply
            return error
        except BaseException:
            pooled.broken = True  # interrupted on the way: what is on the wire belongs to nobody
            raise
        finally:
            await self._release(pooled)

    async def _execute(self, pooled: PooledConnection, command: Command) -> list[Row]:
        if command.copy is not None and not self._adapter.copies:
            raise CannotCopy
        rendered = self._context.render(command)
        turn = 0
        while True:
            try:
                return await self._adapter.execute(pooled.connection, rendered)
            except Exception as error:
                turn += 1
                if not _may_send_again(self._adapter, error, turn):
                    raise pooled.translate(self._adapter, error, self._context.name) from error

    async def _acquire(self) -> PooledConnection:
        if not await async_enter(self._room, self._context.settings.connect_timeout):
            raise _exhausted(self._context.name)
        try:
            with self._lock:
                old = [] if self._ages is None else self._ages.take_old(self._idle)
                idle = self._idle.pop() if self._idle else None
            for connection in old:
                await self._adapter.close(connection)
            return PooledConnection(await self._connect() if idle is None else idle)
        except BaseException:
            self._room.release()
            raise

    async def _connect(self) -> Any:
        pooled = PooledConnection(None)
        try:
            pooled.connection = await self._adapter.connect(self._context.settings)
        except Exception as error:
            raise translate_connecting_error(error, self._adapter.error_kind(error), self._context.name) from error
        if self._context.install_id is not None and not self._keeps:
            return pooled.connection  # looked at before, by the first one that was borrowed
        try:
            self._context.facts = await arun(self._context.check(), partial(self._execute, pooled))
        except BaseException:
            await self._adapter.close(pooled.connection)
            raise
        if self._ages is not None:
            self._ages.on_open(pooled.connection)
        return pooled.connection

    async def _release(self, pooled: PooledConnection) -> None:
        stale: list[Any] = []
        with self._lock:
            if self._keeps and not pooled.broken:
                self._idle.append(pooled.connection)
                if self._ages is not None:
                    self._ages.on_return(pooled.connection)
            else:
                stale, self._idle = [pooled.connection, *self._idle], []
        self._room.release()
        for connection in stale:
            await self._adapter.close(connection)

    def listen(self, told: Callable[[bytes], None]) -> None:
        """Have `told` called when somebody else ends what is waited for: in this loop, or in a thread."""
        if self._make_listener is not None:
            self._listener = self._make_listener(self._context.settings, self._adapter, told)

    async def fetch_install_id(self) -> None:
        """Open a connection once, where nothing is known of the place yet."""
        await self._release(await self._acquire())

    async def close(self) -> None:
        """Let go of every connection."""
        if self._pid != os.getpid():
            return
        if self._listener is not None:
            await self._listener.close()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            await self._adapter.close(connection)


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class SqlDriver:
    """Carries plans out on connections of the store's own, or on ones that an adapter borrows.

    Args:
        context: what is known of the database.
        adapter: the client library.
        make_listener: makes what listens for ends, where the server can tell of them.
    """

    def __init__(self, context: SqlContext, adapter: Adapter, make_listener: ListenerFactory | None = None) -> None:
        self._context = context
        self._adapter = adapter
        self._keeps = adapter.keeps
        self._make_listener = make_listener if context.settings.listen else None
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Any] = []
        self._ages = connection_ages(self._context.settings, self._context.monotonic) if self._keeps else None
        self._listener: Any = None
        self._lock = threading.Lock()  # never held while something is awaited
        self._room = SyncSemaphore(self._context.settings.pool_size)

    def perform(self, plans: Sequence[Plan]) -> Replies:
        """Run one round."""
        if self._pid != os.getpid():
            _inherited.append(self._idle)
            self._start_over()
        return sync_run_all(self._run_plan, plans)

    def _run_plan(self, plan: Plan) -> Answers | Exception:
        try:
            pooled = self._acquire()
        except Exception as error:  # noqa: BLE001 - a store that cannot be used is the reply
            plan.close()
            return error
        try:
            return run(plan, partial(self._execute, pooled))
        except Exception as error:  # noqa: BLE001 - a bug of this plan is its own reply
            return error
        except BaseException:
            pooled.broken = True  # interrupted on the way: what is on the wire belongs to nobody
            raise
        finally:
            self._release(pooled)

    def _execute(self, pooled: PooledConnection, command: Command) -> list[Row]:
        if command.copy is not None and not self._adapter.copies:
            raise CannotCopy
        rendered = self._context.render(command)
        turn = 0
        while True:
            try:
                return self._adapter.execute(pooled.connection, rendered)
            except Exception as error:
                turn += 1
                if not _may_send_again(self._adapter, error, turn):
                    raise pooled.translate(self._adapter, error, self._context.name) from error

    def _acquire(self) -> PooledConnection:
        if not sync_enter(self._room, self._context.settings.connect_timeout):
            raise _exhausted(self._context.name)
        try:
            with self._lock:
                old = [] if self._ages is None else self._ages.take_old(self._idle)
                idle = self._idle.pop() if self._idle else None
            for connection in old:
                self._adapter.close(connection)
            return PooledConnection(self._connect() if idle is None else idle)
        except BaseException:
            self._room.release()
            raise

    def _connect(self) -> Any:
        pooled = PooledConnection(None)
        try:
            pooled.connection = self._adapter.connect(self._context.settings)
        except Exception as error:
            raise translate_connecting_error(error, self._adapter.error_kind(error), self._context.name) from error
        if self._context.install_id is not None and not self._keeps:
            return pooled.connection  # looked at before, by the first one that was borrowed
        try:
            self._context.facts = run(self._context.check(), partial(self._execute, pooled))
        except BaseException:
            self._adapter.close(pooled.connection)
            raise
        if self._ages is not None:
            self._ages.on_open(pooled.connection)
        return pooled.connection

    def _release(self, pooled: PooledConnection) -> None:
        stale: list[Any] = []
        with self._lock:
            if self._keeps and not pooled.broken:
                self._idle.append(pooled.connection)
                if self._ages is not None:
                    self._ages.on_return(pooled.connection)
            else:
                stale, self._idle = [pooled.connection, *self._idle], []
        self._room.release()
        for connection in stale:
            self._adapter.close(connection)

    def listen(self, told: Callable[[bytes], None]) -> None:
        """Have `told` called when somebody else ends what is waited for: in this loop, or in a thread."""
        if self._make_listener is not None:
            self._listener = self._make_listener(self._context.settings, self._adapter, told)

    def fetch_install_id(self) -> None:
        """Open a connection once, where nothing is known of the place yet."""
        self._release(self._acquire())

    def close(self) -> None:
        """Let go of every connection."""
        if self._pid != os.getpid():
            return
        if self._listener is not None:
            self._listener.close()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            self._adapter.close(connection)
