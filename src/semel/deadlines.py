"""Extending the deadlines of messages and tasks while they are worked on, from a thread that no blocked loop stops.

- The thread has an event loop and a connection of its own. What burns the processor, or blocks the loop it runs in, is
  not handed to somebody else because of that.
- A deadline is extended for no longer than the lease of the work is renewed: what is wedged comes free. So does what
  waits for its turn, once nothing has begun for so long.
- Whatever keeps it from extending them is tried again as often as they are extended: a token that could not be fetched
  once does not end it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

log = logging.getLogger("semel.deadlines")

_TRIED_AGAIN_AFTER: Final = 0.25
"""After a failure, as a part of the time between two extensions."""

Extend = Callable[[Sequence[Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Turn:
    """Since when something is held; `behind` is what has to be settled before its handler may run."""

    since: float
    is_begun: bool = False
    behind: Any = None


class Deadlines:
    """The messages or tasks of one listener that are not settled yet.

    Args:
        connect: opens, in the thread, what extends the deadlines of a list of them.
        every: seconds between two extensions.
        longest: seconds that a handler may run, and that what waits may wait for the next one to begin.
        on_demand: the thread begins with the first that is held and ends by itself when none was for so long as is
            between two extensions; for listeners that nobody starts or stops.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Extend]],
        *,
        every: float,
        longest: float,
        on_demand: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._every = every
        self._longest = longest
        self._clock = clock
        self._held: dict[Any, _Turn] = {}
        self._last_began = clock()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._thread = self._make_thread()
        self._ready = threading.Event()
        self._on_demand = on_demand
        self._is_begun = False

    def _make_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name="semel-deadlines", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def hold(self, token: Any, *, behind: Any = None) -> None:
        """Extend its deadline from now on, while it waits for its turn.

        Args:
            token: what waits.
            behind: what it must not overtake: as long as that is held, both are extended or none is.
        """
        with self._lock:
            self._held[token] = _Turn(self._clock(), behind=behind)
            if self._on_demand and not self._is_begun:
                self._is_begun = True
                self._thread = self._make_thread()
                self._thread.start()

    @contextmanager
    def extending(self, token: Any) -> Iterator[None]:
        """Extend its deadline inside, for as long as a handler may run."""
        self.hold(token)
        self.begin(token)
        try:
            yield
        finally:
            self.release(token)

    def begin(self, token: Any) -> None:
        """Its handler runs: extend it for so long and no longer."""
        with self._lock:
            self._last_began = self._clock()
            if token in self._held:
                self._held[token] = _Turn(self._last_began, is_begun=True)

    def release(self, token: Any) -> None:
        """Extend it no longer."""
        with self._lock:
            self._held.pop(token, None)

    def is_over(self, token: Any) -> bool:
        """Whether it is held and extended no longer, because its handler, or what it waits for, takes too long."""
        return token in self._held and token not in self._due()

    async def stop(self) -> None:
        """End the thread and wait for it, and for no other: those of the event loop may all be in wedged handlers."""
        if self._thread.ident is None:
            return
        loop, has_ended = asyncio.get_running_loop(), asyncio.Event()

        def stop() -> None:
            self._stop()
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(has_ended.set)

        threading.Thread(target=stop, name="semel-deadlines-end", daemon=True).start()
        await has_ended.wait()

    def _stop(self) -> None:
        self._ready.wait()
        if self._loop is not None and self._end is not None:
            with suppress(RuntimeError):  # it ended by itself
                self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        wait = self._every
        while not self._end.is_set() and not self._is_idle():
            try:
                async with self._connect() as extend:
                    while not await self._ends_within(wait, self._end):
                        if self._is_idle():
                            return
                        if tokens := self._due():
                            await extend(tokens)
                        wait = self._every
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - of any client; nobody else cancels here
                log.warning("deadlines could not be extended (%s); tried again", type(error).__name__)
                await self._ends_within(self._every * _TRIED_AGAIN_AFTER, self._end)
                wait = 0  # what failed is late by now, and a deadline is only some of these times long

    async def _ends_within(self, seconds: float, end: asyncio.Event) -> bool:
        """Wait so long, or for the end. Nothing is cancelled, so every connection is closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await end.wait()
        return end.is_set()

    def _is_idle(self) -> bool:
        """Whether the thread is to end. Under the lock, so that whoever holds something next begins another."""
        with self._lock:
            if self._on_demand and not self._held:
                self._is_begun = False
                return True
            return False

    def _due(self) -> list[Any]:
        now = self._clock()
        due: dict[Any, None] = {}
        with self._lock:
            # In the order in which they were held, so that what one is behind of was looked at before it.
            for token, turn in self._held.items():
                since = turn.since if turn.is_begun else max(turn.since, self._last_began)
                if turn.behind in due if turn.behind in self._held else now < since + self._longest:
                    due[token] = None
        return list(due)
