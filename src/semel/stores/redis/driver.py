"""Drivers of the Redis store: batches of plans on the store's own connections, in threads and on event loops.

- A batch has taken effect when it returns, as far as the server keeps what it acknowledged.
- Nothing is sent a second time here; what a lost reply means is decided by the flow.
- After a lost connection, or a reply that shows a replica, no older connection is used: the primary is looked up anew.
- The check of a server is repeated now and then on open connections. Nothing is shared with a forked process.
"""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeVar

from semel.core.flow import arun, run
from semel.core.store import Answers, Plan
from semel.stores.redis import connections
from semel.stores.redis.connections import RecheckSchedule
from semel.stores.redis.errors import WIRE, is_demoted, lost_reply_error
from semel.stores.redis.key_names import RedisContext
from semel.stores.redis.listener import AsyncListener, Listener
from semel.stores.redis.pipeline import Args, BatchByNode, Route, run_side_by_side
from semel.stores.redis.plan import Batch, Reply
from semel.stores.redis.settings import Address
from semel.stores.settings import ConnectionAges, connection_ages

T = TypeVar("T")
Replies = list[Answers | Exception]
Told = Callable[[bytes], None]
_inherited: Final[list[Any]] = []
"""Connections of a parent process, kept so that no collection closes them: the parent still uses them."""


class _Connections(ABC):
    """Connections to each node; what is abstract here is awaited in an event loop."""

    _context: RedisContext
    _idle: dict[Address | None, list[Any]]
    _ages: ConnectionAges | None
    _lock: threading.Lock

    @abstractmethod
    def _take(self, address: Address | None) -> Any:
        """A connection to a node."""

    @abstractmethod
    def _drop(self, address: Address | None) -> Any:
        """Use no older connection to a node that has broken one."""

    def _keep(self, address: Address | None, connection: Any) -> None:
        """Keep a connection for the next one who needs it."""
        with self._lock:
            if self._ages is not None:
                self._ages.on_return(connection)
            self._idle.setdefault(address, []).append(connection)


class _AsyncExchange(_Connections):
    """Sends to nodes side by side, in tasks of an event loop."""

    async def _exchange(self, parcels: BatchByNode) -> dict[Address | None, list[Reply]]:
        if len(parcels) == 1:
            ((address, words),) = parcels.items()
            return {address: await self._exchange_with(address, words)}
        replies = await asyncio.gather(*(self._exchange_with(*parcel) for parcel in parcels.items()))
        return dict(zip(parcels, replies, strict=True))

    async def _exchange_with(self, address: Address | None, words: Sequence[Args]) -> list[Reply]:
        try:
            connection = await self._take(address)
        except Exception as error:  # noqa: BLE001 - a node that cannot be used is the reply
            return [error] * len(words)
        replies: list[Reply] = []
        try:
            async with asyncio.timeout(self._context.settings.timeout):
                await connection.send_packed_command(connections.packed(words))
                await connections.async_receive(connection, len(words), self._context.name, replies)
        except WIRE as error:
            replies.extend([lost_reply_error(error, self._context.name)] * (len(words) - len(replies)))
            await connections.async_disconnect(connection)
        except BaseException:
            await connections.async_disconnect(connection)
            raise
        if connection.is_connected and not is_demoted(replies):
            self._keep(address, connection)
        else:
            await connections.async_disconnect(connection)
            await self._drop(address)
        return replies


class _SyncExchange(_Connections):
    """Sends to all nodes before it reads the first reply, in one thread, so that they work at the same time."""

    def _exchange(self, parcels: BatchByNode) -> dict[Address | None, list[Reply]]:
        lent: dict[Address | None, Any] = {}
        try:
            replies: dict[Address | None, list[Reply]] = {}
            for address, words in parcels.items():
                sent = self._send(address, words)
                if isinstance(sent, Exception):
                    replies[address] = [sent] * len(words)
                else:
                    lent[address] = sent
            for address in list(lent):
                count = len(parcels[address])
                replies[address] = connections.sync_receive(lent[address], count, self._context.name, [])
                self._give_back(address, lent.pop(address), replies[address])
            return replies
        finally:
            for connection in lent.values():  # interrupted on the way: what is on the wire belongs to nobody
                connection.disconnect()

    def _send(self, address: Address | None, words: Sequence[Args]) -> Any:
        """The connection that it was sent on, or why it was not."""
        try:
            connection = self._take(address)
        except Exception as error:  # noqa: BLE001 - a node that cannot be used is the reply
            return error
        try:
            connection.send_packed_command(connections.packed(words))
        except WIRE as error:
            self._drop(address)
            return lost_reply_error(error, self._context.name)
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def _give_back(self, address: Address | None, connection: Any, replies: Sequence[Reply]) -> None:
        if not connections.is_open(connection) or is_demoted(replies):
            connection.disconnect()
            self._drop(address)
            return
        self._keep(address, connection)


class AsyncRedisDriver(_AsyncExchange):
    """Carries rounds out. Without `greet` servers are not checked: for the doctor."""

    def __init__(self, context: RedisContext, route: Route, *, greet: bool = True) -> None:
        self._context = context
        self._route = route
        self._greet = greet
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._idle: dict[Address | None, list[Any]] = {}
        self._listener: AsyncListener | None = None
        self._lock = threading.Lock()  # never held while something is awaited
        self._looks = RecheckSchedule(self._context.settings)
        self._ages = connection_ages(self._context.settings, self._context.monotonic)

    async def perform(self, plans: Sequence[Plan]) -> Replies:
        """Run one round: what the plans ask for goes together."""
        if self._pid != os.getpid():
            _inherited.append(self._idle)
            self._start_over()
        return await arun(run_side_by_side(plans), self._run_batch)

    async def run_flow(self, flow: Generator[Batch, list[Reply], T]) -> T:
        """Run a flow that is no plan, for the doctor."""
        return await arun(flow, self._run_batch)

    async def nodes(self) -> list[Address | None]:
        """Every node that holds records."""
        return await arun(self._route.nodes(), self._exchange)

    async def _run_batch(self, batch: Batch) -> list[Reply]:
        return await arun(self._route.send(batch), self._exchange)

    async def _take(self, address: Address | None) -> Any:
        with self._lock:
            idle = self._idle.get(address)
            old = [] if self._ages is None or idle is None else self._ages.take_old(idle)
            connection = idle.pop() if idle else None
        for each in old:
            await connections.async_disconnect(each)
        if connection is not None:
            if not await connections.async_is_stale(connection):
                return await self._recheck(address, connection)
            await connections.async_disconnect(connection)
            await self._drop(address)
        connection = await connections.async_connect(self._context.settings, address, greet=self._greet)
        self._looks.done(address)
        if self._ages is not None:
            with self._lock:
                self._ages.on_open(connection)
        return connection

    async def _recheck(self, address: Address | None, connection: Any) -> Any:
        if self._greet and self._looks.is_due(address):
            try:
                await connections.async_recheck(connection, self._context.settings)
            except BaseException:
                await connections.async_disconnect(connection)
                await self._drop(address)
                raise
            self._looks.done(address)
        return connection

    async def _drop(self, address: Address | None) -> None:
        """Use no older connection to a node that has broken one."""
        with self._lock:
            stale = self._idle.pop(address, [])
        for connection in stale:
            await connections.async_disconnect(connection)

    def listen(self, told: Told) -> None:
        """Have `told` called when somebody else ends what is waited for: in this loop, or in a thread."""
        if self._context.settings.listen:
            self._listener = AsyncListener(self._context, told)

    async def close(self) -> None:
        """Let go of every connection."""
        if self._pid != os.getpid():
            return
        if self._listener is not None:
            await self._listener.close()
        with self._lock:
            idle, self._idle = self._idle, {}
        for stale in idle.values():
            for connection in stale:
                await connection.disconnect()


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class RedisDriver(_SyncExchange):
    """Carries rounds out. Without `greet` servers are not checked: for the doctor."""

    def __init__(self, context: RedisContext, route: Route, *, greet: bool = True) -> None:
        self._context = context
        self._route = route
        self._greet = greet
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._idle: dict[Address | None, list[Any]] = {}
        self._listener: Listener | None = None
        self._lock = threading.Lock()  # never held while something is awaited
        self._looks = RecheckSchedule(self._context.settings)
        self._ages = connection_ages(self._context.settings, self._context.monotonic)

    def perform(self, plans: Sequence[Plan]) -> Replies:
        """Run one round: what the plans ask for goes together."""
        if self._pid != os.getpid():
            _inherited.append(self._idle)
            self._start_over()
        return run(run_side_by_side(plans), self._run_batch)

    def run_flow(self, flow: Generator[Batch, list[Reply], T]) -> T:
        """Run a flow that is no plan, for the doctor."""
        return run(flow, self._run_batch)

    def nodes(self) -> list[Address | None]:
        """Every node that holds records."""
        return run(self._route.nodes(), self._exchange)

    def _run_batch(self, batch: Batch) -> list[Reply]:
        return run(self._route.send(batch), self._exchange)

    def _take(self, address: Address | None) -> Any:
        with self._lock:
            idle = self._idle.get(address)
            old = [] if self._ages is None or idle is None else self._ages.take_old(idle)
            connection = idle.pop() if idle else None
        for each in old:
            connections.sync_disconnect(each)
        if connection is not None:
            if not connections.sync_is_stale(connection):
                return self._recheck(address, connection)
            connections.sync_disconnect(connection)
            self._drop(address)
        connection = connections.sync_connect(self._context.settings, address, greet=self._greet)
        self._looks.done(address)
        if self._ages is not None:
            with self._lock:
                self._ages.on_open(connection)
        return connection

    def _recheck(self, address: Address | None, connection: Any) -> Any:
        if self._greet and self._looks.is_due(address):
            try:
                connections.sync_recheck(connection, self._context.settings)
            except BaseException:
                connections.sync_disconnect(connection)
                self._drop(address)
                raise
            self._looks.done(address)
        return connection

    def _drop(self, address: Address | None) -> None:
        """Use no older connection to a node that has broken one."""
        with self._lock:
            stale = self._idle.pop(address, [])
        for connection in stale:
            connections.sync_disconnect(connection)

    def listen(self, told: Told) -> None:
        """Have `told` called when somebody else ends what is waited for: in this loop, or in a thread."""
        if self._context.settings.listen:
            self._listener = Listener(self._context, told)

    def close(self) -> None:
        """Let go of every connection."""
        if self._pid != os.getpid():
            return
        if self._listener is not None:
            self._listener.close()
        with self._lock:
            idle, self._idle = self._idle, {}
        for stale in idle.values():
            for connection in stale:
                connection.disconnect()
