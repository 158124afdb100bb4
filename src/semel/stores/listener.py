"""Completion listener: reconnects after a delay until it is closed.

Waiters poll anyway, so an error of a listener is logged and never raised.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Final

Told = Callable[[bytes], None]

AGAIN_AFTER: Final = 5.0
"""Seconds until a lost connection is opened again."""

_log = logging.getLogger("semel")


def pass_on(payload: bytes | str, told: Told) -> None:
    """Tell of the end that the store spoke of."""
    with suppress(ValueError):  # somebody else's words on our channel
        told(bytes.fromhex(payload.decode() if isinstance(payload, bytes) else payload))


def log_broken(error: Exception) -> None:
    """Log that the listener lost its connection."""
    _log.info("completion listener lost its connection (%s); waiters poll until it is back", type(error).__name__)


class ListeningTask(ABC):
    """A task of the running loop that listens."""

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            try:
                await self._listened()
            except Exception as error:  # noqa: BLE001 - whatever it was, it is tried again
                log_broken(error)
            await asyncio.sleep(AGAIN_AFTER)

    @abstractmethod
    async def _listened(self) -> None:
        """Listen on a new connection until it breaks."""

    async def close(self) -> None:
        """End the task and its connection."""
        self._task.cancel()
        await asyncio.wait([self._task])
