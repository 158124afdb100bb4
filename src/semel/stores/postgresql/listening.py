"""Being told of ends: one connection of each process that has waiters listens, and wakes them.

What always holds: nobody relies on it. A notification that is lost, a proxy that swallows LISTEN or a connection that
breaks only means that waiters find out by their own look; the connection is opened again after a while. The listener
holds no lock and touches no record.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from semel.stores.postgresql.dialect import channel
from semel.stores.served.command import Command
from semel.stores.served.library import AsyncLibrary, Library
from semel.stores.served.settings import Settings

Told = Callable[[bytes], None]

_AGAIN_AFTER: Final = 5.0  # seconds until a lost connection is opened again
_log = logging.getLogger("semel")


def _listen(settings: Settings) -> Command:
    return Command(f'LISTEN "{channel(settings)}"')


def _direct(settings: Settings) -> Settings:
    return dataclasses.replace(settings, url=settings.listen_url or settings.url)


def _pass_on(payload: str, told: Told) -> None:
    with suppress(ValueError):  # somebody else's words on our channel
        told(bytes.fromhex(payload))


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Listener:
    """A thread that listens on a psycopg connection."""

    def __init__(self, settings: Settings, library: Library, told: Told) -> None:
        self._settings = _direct(settings)
        self._library = library
        self._told = told
        self._pid = os.getpid()
        self._pipe = os.pipe()
        self._thread = threading.Thread(target=self._run, name="semel-listener", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                self._listened()
                return
            except Exception as error:  # noqa: BLE001 - waiters look by themselves meanwhile
                _log.info("not told of ends for a while: %s", type(error).__name__)
            if self._ended(_AGAIN_AFTER):
                return

    def _listened(self) -> None:
        connection = self._library.connect(self._settings)
        try:
            self._library.execute(connection, _listen(self._settings))
            ready: list[Any] = []
            while self._pipe[0] not in ready:
                connection.pgconn.consume_input()
                while (notice := connection.pgconn.notifies()) is not None:
                    _pass_on(notice.extra.decode(), self._told)
                ready, _, _ = select.select([connection.fileno(), self._pipe[0]], [], [])
        finally:
            self._library.close(connection)

    def _ended(self, within: float) -> bool:
        return bool(select.select([self._pipe[0]], [], [], within)[0])

    def close(self) -> None:
        """End the thread and its connection."""
        if self._pid == os.getpid():
            os.write(self._pipe[1], b"!")
            self._thread.join()
            for end in self._pipe:
                os.close(end)


class AsyncListener:
    """A task that listens on an asyncpg connection."""

    def __init__(self, settings: Settings, library: AsyncLibrary, told: Told) -> None:
        self._settings = _direct(settings)
        self._library = library
        self._told = told
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            try:
                await self._listened()
            except Exception as error:  # noqa: BLE001 - waiters look by themselves meanwhile
                _log.info("not told of ends for a while: %s", type(error).__name__)
            await asyncio.sleep(_AGAIN_AFTER)

    async def _listened(self) -> None:
        connection = await self._library.connect(self._settings)
        broken = asyncio.get_running_loop().create_future()
        try:
            connection.add_termination_listener(lambda _: _wake(broken))
            await connection.add_listener(channel(self._settings), self._heard)
            await broken
        finally:
            await self._library.close(connection)

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        _pass_on(payload, self._told)

    async def close(self) -> None:
        """End the task and its connection."""
        self._task.cancel()
        await asyncio.wait([self._task])
