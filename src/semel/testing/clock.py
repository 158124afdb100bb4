"""A clock that moves only when told to. Give it to an engine, and `store_clock` of it to a store.

What always holds: `advance` wakes exactly those whose instant has come; nobody ever sleeps for real.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime

START = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Both clocks of a test: the engine's monotonic one and, as `store_clock`, the store's."""

    def __init__(self, start: datetime = START) -> None:
        self._start_us = int(start.timestamp()) * 1_000_000
        self._now_us = 0
        self._lock = threading.Lock()
        self._resting: list[tuple[float | None, Callable[[], object]]] = []

    def monotonic(self) -> float:
        """Seconds since the start of the test."""
        return self._now_us / 1_000_000

    def store_clock(self) -> int:
        """Microseconds since 1970, as a store counts them."""
        return self._start_us + self._now_us

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._lock:
            self._now_us += round(seconds * 1_000_000)
            now = self.monotonic()
            due = [wake for until, wake in self._resting if until is not None and until <= now]
        for wake in due:
            wake()

    def resting(self) -> int:
        """How many rest on this clock right now, waiting for an instant or a wake-up."""
        with self._lock:
            return len(self._resting)

    def rest(self, wake: threading.Event, until: float | None) -> None:
        """Block until woken or until the clock is moved to `until`."""
        entry = (until, wake.set)
        with self._lock:
            if until is not None and until <= self.monotonic():
                return
            self._resting.append(entry)
        try:
            wake.wait()
        finally:
            with self._lock:
                self._resting.remove(entry)

    async def arest(self, wake: asyncio.Event, until: float | None) -> None:
        """The same for a task; `advance` may be called from any thread."""
        loop = asyncio.get_running_loop()
        entry: tuple[float | None, Callable[[], object]] = (until, lambda: loop.call_soon_threadsafe(wake.set))
        with self._lock:
            if until is not None and until <= self.monotonic():
                return
            self._resting.append(entry)
        try:
            await wake.wait()
        finally:
            with self._lock:
                self._resting.remove(entry)
