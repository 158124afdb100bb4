"""Completion listener of PostgreSQL: one LISTEN connection per process that has waiters.

- Waiters poll anyway: a lost notification, a proxy that drops LISTEN or a broken connection only delays them.
- The listener holds no lock and touches no record.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import select
import threading
from abc import ABC, abstractmethod
from typing import Any

from semel.stores.listener import AGAIN_AFTER, ListeningTask, Told, log_broken, pass_on
from semel.stores.postgresql.dialect import channel
from semel.stores.sql.dialect import Command
from semel.stores.sql.settings import Settings


def _listen(settings: Settings) -> Command:
    return Command(f'LISTEN "{channel(settings)}"')


class _Channel(ABC):
    """What is listened to, through which library, and whom to tell."""

    def __init__(self, settings: Settings, library: Any, told: Told) -> None:
        self._settings = dataclasses.replace(settings, url=settings.listen_url or settings.url)
        self._library = library
        self._told = told
        self._start()

    @abstractmethod
    def _start(self) -> None:
        """Begin to listen."""


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Listener(_Channel):
    """A thread that listens on a psycopg connection."""

    def _start(self) -> None:
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
                log_broken(error)
            if self._ended(AGAIN_AFTER):
                return

    def _listened(self) -> None:
        connection = self._library.connect(self._settings)
        try:
            self._library.execute(connection, _listen(self._settings))
            ready: list[Any] = []
            while self._pipe[0] not in ready:
                connection.pgconn.consume_input()
                while (notice := connection.pgconn.notifies()) is not None:
                    pass_on(notice.extra, self._told)
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


class AsyncListener(ListeningTask, _Channel):
    """A task that listens on an asyncpg connection."""

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
        pass_on(payload, self._told)
