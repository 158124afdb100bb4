"""Drivers: rounds of plans on the store's own connections, in threads and in event loops.

What always holds: every command is a transaction of its own and has taken effect when it answers. A command that the
server gave up on (deadlock, serialization) did nothing and is sent again; one whose reply is lost is not, that is for
the flow to decide. After a lost connection no older one is used. Nothing is shared with a forked process.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from semel.core.flow import arun, run
from semel.core.store import Answers, Plan
from semel.errors import StoreUnavailable
from semel.stores.sql.adapter import Adapter, AsyncAdapter
from semel.stores.sql.context import Place, opening
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.errors import ErrorKind, translate_connecting_error, translate_error
from semel.stores.sql.settings import Settings

Replies = list[Answers | Exception]
Hears = Callable[[Settings, Any, Callable[[bytes], None]], Any]
"""Makes a listener from settings, a client library and whom to tell; it has a `close` of the driver's colour."""

_AGAIN: Final = 5
_KEEPS_CONNECTION: Final = frozenset(
    {None, ErrorKind.CONFLICT, ErrorKind.LOCKED, ErrorKind.HELD, ErrorKind.OF_ONE, ErrorKind.MISSING}
)
_inherited: list[Any] = []
"""Connections of a parent process, kept so that no collection closes them: the parent still uses them."""


@dataclass(slots=True)
class Lent:
    """A connection on loan."""

    connection: Any
    broken: bool = False

    def meaning(self, library: Adapter | AsyncAdapter, error: Exception, name: str) -> Exception:
        """What `error` means, noting whether the connection can be used again."""
        trouble = library.error_kind(error)
        if trouble not in _KEEPS_CONNECTION:
            self.broken = True
        return translate_error(error, trouble, name)


def _is_again(library: Adapter | AsyncAdapter, error: Exception, turn: int) -> bool:
    return turn < _AGAIN and library.error_kind(error) is ErrorKind.CONFLICT


class ServedDriver:
    """Rounds in the calling thread."""

    def __init__(self, place: Place, library: Adapter, hears: Hears | None = None) -> None:
        self._place = place
        self._library = library
        self._keeps = getattr(library, "keeps", True)
        self._hears = hears if place.settings.listen else None
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Any] = []
        self._listener: Any = None
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(self._place.settings.pool_size)

    def perform(self, plans: Sequence[Plan]) -> Replies:
        """Run one round: the plans follow each other."""
        if self._pid != os.getpid():
            _inherited.append(self._idle)
            self._start_over()
        return [self._carried(plan) for plan in plans]

    def _carried(self, plan: Plan) -> Answers | Exception:
        try:
            lent = self._take()
        except Exception as error:  # noqa: BLE001 - a store that cannot be used is the reply
            plan.close()
            return error
        try:
            return run(plan, lambda command: self._execute(lent, command))
        except Exception as error:  # noqa: BLE001 - a bug of this plan is its own reply
            return error
        except BaseException:
            lent.broken = True  # interrupted on the way: what is on the wire belongs to nobody
            raise
        finally:
            self._give_back(lent)

    def _execute(self, lent: Lent, command: Command) -> list[Row]:
        spoken = self._place.spoken(command)
        turn = 0
        while True:
            try:
                return self._library.execute(lent.connection, spoken)
            except Exception as error:
                turn += 1
                if not _is_again(self._library, error, turn):
                    raise lent.meaning(self._library, error, self._place.name) from error

    def _take(self) -> Lent:
        settings = self._place.settings
        if not self._room.acquire(timeout=settings.connect_timeout):
            raise _exhausted(self._place.name)
        try:
            with self._lock:
                idle = self._idle.pop() if self._idle else None
            return Lent(self._opened() if idle is None else idle)
        except BaseException:
            self._room.release()
            raise

    def _opened(self) -> Any:
        lent = Lent(None)
        try:
            lent.connection = self._library.connect(self._place.settings)
        except Exception as error:
            raise translate_connecting_error(error, self._library.error_kind(error), self._place.name) from error
        if self._place.install_id is not None and not self._keeps:
            return lent.connection  # looked at before, by the first one that was borrowed
        try:
            install_id = run(
                opening(self._place.schema, self._place.settings), lambda command: self._execute(lent, command)
            )
        except BaseException:
            self._library.close(lent.connection)
            raise
        self._place.install_id = install_id
        return lent.connection

    def _give_back(self, lent: Lent) -> None:
        with self._lock:
            gone = lent.broken or not self._keeps
            stale = [lent.connection, *self._idle] if gone else []
            if gone:
                self._idle.clear()
            else:
                self._idle.append(lent.connection)
        self._room.release()
        for connection in stale:
            self._library.close(connection)

    def listen(self, told: Callable[[bytes], None]) -> None:
        """Have `told` called, in a thread of the listener, when somebody else ends what is waited for."""
        if self._hears is not None:
            self._listener = self._hears(self._place.settings, self._library, told)

    def learn(self) -> None:
        """Open a connection once, where nothing is known of the place yet."""
        self._give_back(self._take())

    def close(self) -> None:
        """Let go of every connection."""
        if self._pid == os.getpid():
            if self._listener is not None:
                self._listener.close()
            with self._lock:
                idle, self._idle = self._idle, []
            for connection in idle:
                self._library.close(connection)


class AsyncServedDriver:
    """The same on an event loop; the plans of a round go side by side."""

    def __init__(self, place: Place, library: AsyncAdapter, hears: Hears | None = None) -> None:
        self._place = place
        self._library = library
        self._keeps = getattr(library, "keeps", True)
        self._hears = hears if place.settings.listen else None
        self._listener: Any = None
        self._idle: list[Any] = []
        self._room = asyncio.BoundedSemaphore(place.settings.pool_size)

    async def perform(self, plans: Sequence[Plan]) -> Replies:
        """Run one round."""
        if len(plans) == 1:
            return [await self._carried(plans[0])]
        return list(await asyncio.gather(*map(self._carried, plans)))

    async def _carried(self, plan: Plan) -> Answers | Exception:
        try:
            lent = await self._take()
        except Exception as error:  # noqa: BLE001 - a store that cannot be used is the reply
            plan.close()
            return error
        try:
            return await arun(plan, lambda command: self._execute(lent, command))
        except Exception as error:  # noqa: BLE001 - a bug of this plan is its own reply
            return error
        except BaseException:
            lent.broken = True
            raise
        finally:
            await self._give_back(lent)

    async def _execute(self, lent: Lent, command: Command) -> list[Row]:
        spoken = self._place.spoken(command)
        turn = 0
        while True:
            try:
                return await self._library.execute(lent.connection, spoken)
            except Exception as error:
                turn += 1
                if not _is_again(self._library, error, turn):
                    raise lent.meaning(self._library, error, self._place.name) from error

    async def _take(self) -> Lent:
        try:
            async with asyncio.timeout(self._place.settings.connect_timeout):
                await self._room.acquire()
        except TimeoutError:
            raise _exhausted(self._place.name) from None
        try:
            return Lent(self._idle.pop() if self._idle else await self._opened())
        except BaseException:
            self._room.release()
            raise

    async def _opened(self) -> Any:
        lent = Lent(None)
        try:
            lent.connection = await self._library.connect(self._place.settings)
        except Exception as error:
            raise translate_connecting_error(error, self._library.error_kind(error), self._place.name) from error
        if self._place.install_id is not None and not self._keeps:
            return lent.connection
        try:
            install_id = await arun(
                opening(self._place.schema, self._place.settings), lambda command: self._execute(lent, command)
            )
        except BaseException:
            await self._library.close(lent.connection)
            raise
        self._place.install_id = install_id
        return lent.connection

    async def _give_back(self, lent: Lent) -> None:
        self._room.release()
        if self._keeps and not lent.broken:
            self._idle.append(lent.connection)
            return
        stale, self._idle = [lent.connection, *self._idle], []
        for connection in stale:
            with suppress(Exception):
                await self._library.close(connection)

    def listen(self, told: Callable[[bytes], None]) -> None:
        """Have `told` called, in this loop, when somebody else ends what is waited for."""
        if self._hears is not None:
            self._listener = self._hears(self._place.settings, self._library, told)

    async def learn(self) -> None:
        """Open a connection once, where nothing is known of the place yet."""
        await self._give_back(await self._take())

    async def close(self) -> None:
        """Let go of every connection."""
        if self._listener is not None:
            await self._listener.close()
        idle, self._idle = self._idle, []
        for connection in idle:
            await self._library.close(connection)


def _exhausted(name: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"Every connection to {name} was in use for too long; nothing was recorded. Try again, or raise pool_size."
    )
