"""Completion listener of Redis: one SUBSCRIBE connection per process that has waiters.

Waiters poll anyway: a lost message or a broken connection only delays them. The listener touches no record.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from itertools import cycle
from typing import Any, Final

from redis.exceptions import RedisError

from semel.stores.listener import AGAIN_AFTER, ListeningTask, Told, log_broken, pass_on
from semel.stores.redis import connections
from semel.stores.redis.key_names import RedisContext
from semel.stores.redis.pipeline import HOME

_MESSAGE: Final = b"message"


class _Channel(ABC):
    """What is listened to, and whom to tell."""

    def __init__(self, context: RedisContext, told: Told) -> None:
        self._context = context
        self._told = told
        # One after the other: any node of a cluster is told of what is published at another.
        self._nodes = cycle(context.settings.addresses if context.settings.kind == "cluster" else (HOME,))
        self._start()

    @abstractmethod
    def _start(self) -> None:
        """Begin to listen."""

    def _pass_on(self, reply: Any) -> None:
        if reply[0] == _MESSAGE:
            pass_on(reply[2], self._told)


class Listener(_Channel):
    """A thread that listens. It looks up from the channel twice a second, to see whether it shall end."""

    def _start(self) -> None:
        self._ended = threading.Event()
        self._pid = os.getpid()
        self._connection: Any = None
        self._thread = threading.Thread(target=self._run, name="semel-listener", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._listened()
            except Exception as error:  # noqa: BLE001 - waiters look by themselves meanwhile
                if not self._ended.is_set():
                    log_broken(error)
            self._ended.wait(AGAIN_AFTER)

    def _listened(self) -> None:
        connection = self._connection = connections.sync_connect(self._context.settings, next(self._nodes), greet=False)
        try:
            connection.send_command("SUBSCRIBE", self._context.pattern.channel)
            while not self._ended.is_set():
                if connection.can_read(0.5):
                    self._pass_on(connection.read_response())
        finally:
            connection.disconnect()

    def close(self) -> None:
        """End the thread and its connection."""
        if self._pid == os.getpid():
            self._ended.set()
            connection = self._connection
            with suppress(RedisError, OSError):
                if connection is not None and connections.is_open(connection):
                    connection.send_command("PING")  # the reply wakes the thread
            self._thread.join()


class AsyncListener(ListeningTask, _Channel):
    """A task that listens."""

    async def _listened(self) -> None:
        connection = await connections.async_connect(self._context.settings, next(self._nodes), greet=False)
        try:
            await connection.send_command("SUBSCRIBE", self._context.pattern.channel)
            while True:
                self._pass_on(await connection.read_response())
        finally:
            await connections.async_disconnect(connection)
