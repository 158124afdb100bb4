"""The watch over an answer that is sent in chunks: it notices that the client left, and when the answer has to stop.

Invariants: it looks at nothing but the client's leave and the clock, it stops an answer once, and it ends with the
answer that it watches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from semel.engine.clock import Clock
from semel.http.stream_limit import StreamLimit

_log: Final = logging.getLogger("semel")


class StreamWatch:
    """Watches one answer, in a task of its own, until `close`.

    Args:
        limit: when the answer is stopped.
        clock: the engine's.
        receive: the server's; the body has been read, so all that can still come is the client's leave.
        stop: stops the answer, for this reason.
    """

    def __init__(
        self,
        limit: StreamLimit,
        clock: Clock,
        receive: Callable[[], Awaitable[Any]],
        stop: Callable[[str], Awaitable[None]],
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._receive = receive
        self._stop = stop
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._tasks = [asyncio.ensure_future(self._watch()), asyncio.ensure_future(self._listen())]

    def client_left(self) -> None:
        """Nobody listens any more."""
        self._limit.client_left(self._clock.monotonic())
        self._wake.set()

    def look(self) -> None:
        """Something has changed, such as the size of the answer."""
        self._wake.set()

    def close(self) -> None:
        """The application has ended. What is being recorded is recorded all the same."""
        for task in self._tasks:
            if not self._is_stopping or task is not self._tasks[0]:
                task.cancel()

    async def finish(self) -> None:
        """Wait until an answer that is being stopped is recorded."""
        await asyncio.wait(self._tasks[:1])

    async def _listen(self) -> None:
        try:
            message = await self._receive()
        except Exception as error:  # noqa: BLE001 - a server that cannot be asked is one that does not tell
            _log.debug("the server does not tell when a client leaves: %s", type(error).__name__)
            return
        if message["type"] == "http.disconnect":
            self.client_left()

    async def _watch(self) -> None:
        while (reason := self._limit.reason(self._clock.monotonic())) is None:
            await self._clock.arest(self._wake, self._limit.due())
            self._wake.clear()
        self._is_stopping = True
        try:
            await self._stop(reason)
        except Exception:  # noqa: BLE001 - nobody waits for this task: it is told here
            _log.exception("a streamed answer was stopped because %s, and that could not be recorded", reason)
