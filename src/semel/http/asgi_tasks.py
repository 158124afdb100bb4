"""Tasks that outlive the request they came from.

What always holds: a server may cancel the task of a request when its client leaves; the keyed work goes on in a task of
its own, which is kept from being collected until it has ended.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

_log: Final = logging.getLogger("semel")


class Tasks:
    """Keyed work that is under way."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    async def shielded(self, work: Coroutine[Any, Any, None], on_cancel: Callable[[], None]) -> None:
        """Wait for `work`; cancelling whoever waits does not stop it, but `on_cancel` is called."""
        loop = asyncio.get_running_loop()
        task, end = loop.create_task(work), loop.create_future()
        self._running.add(task)
        task.add_done_callback(functools.partial(self._ended, end))
        try:
            await end  # of its own, so that cancelling whoever waits cancels this alone
        except asyncio.CancelledError:
            on_cancel()
            raise
        task.result()

    def _ended(self, end: asyncio.Future[None], task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not end.done():
            end.set_result(None)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Whoever waits for the task gets the error; if the client has left, nobody does.
            _log.debug("a keyed request ended with %s", type(error).__name__)
