"""Extending the deadlines of messages while their handlers run, from a thread that a blocked event loop does not stop.

- The thread has an event loop and a connection of its own. A handler that burns the processor, or blocks the loop it
  runs in, is not delivered to somebody else because of that.
- A deadline is extended for no longer than the handler's lease is renewed: what is wedged comes free.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

log = logging.getLogger("semel.events.brokers")

Extend = Callable[[Sequence[Any]], Awaitable[None]]


class Deadlines:
    """The messages of one listener that are not settled yet.

    Args:
        connect: opens, in the thread, what extends the deadlines of a list of messages.
        every: seconds between two extensions.
        longest: seconds that a handler may run.
    """

    def __init__(
        self, connect: Callable[[], AbstractAsyncContextManager[Extend]], *, every: float, longest: float
    ) -> None:
        self._connect = connect
        self._every = every
        self._longest = longest
        self._held: dict[Any, float | None] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="semel-deadlines", daemon=True)
        self._ready = threading.Event()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def hold(self, token: Any) -> None:
        """Extend its deadline from now on."""
        with self._lock:
            self._held[token] = None

    def begin(self, token: Any) -> None:
        """Its handler runs: extend it for so long and no longer."""
        with self._lock:
            if token in self._held:
                self._held[token] = time.monotonic() + self._longest

    def release(self, token: Any) -> None:
        """Extend it no longer."""
        with self._lock:
            self._held.pop(token, None)

    async def stop(self) -> None:
        """End the thread and wait for it."""
        if self._thread.ident is not None:
            await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._ready.wait()
        if self._loop is not None and self._end is not None:
            with suppress(RuntimeError):  # it ended by itself
                self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception:
            log.exception("deadlines are no longer extended; what runs longer than one is delivered again")
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        while not self._end.is_set():
            try:
                async with self._connect() as extend:
                    while not await self._ends_within(self._end):
                        if tokens := self._due():
                            await extend(tokens)
            except OSError as error:
                log.warning("deadlines could not be extended (%s); tried again", type(error).__name__)
                await self._ends_within(self._end)

    async def _ends_within(self, end: asyncio.Event) -> bool:
        """Wait until the next extension is due, or for the end. Nothing is cancelled, so every connection is closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._every):
                await end.wait()
        return end.is_set()

    def _due(self) -> list[Any]:
        now = time.monotonic()
        with self._lock:
            return [token for token, until in self._held.items() if until is None or now < until]
