"""The engine's clock: only for waiting and for stopping before a lease ends, never for deciding who owns a key."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock that can be rested on until an instant or a wake-up, whichever comes first."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def rest(self, wake: threading.Event, until: float | None) -> None:
        """Block this thread until `wake` is set or the instant `until` is reached."""

    async def arest(self, wake: asyncio.Event, until: float | None) -> None:
        """The same for a task."""


class SystemClock:
    """The machine's monotonic clock."""

    monotonic = staticmethod(time.monotonic)

    def rest(self, wake: threading.Event, until: float | None) -> None:
        """Block until woken or due."""
        wake.wait(None if until is None else max(0.0, until - time.monotonic()))

    async def arest(self, wake: asyncio.Event, until: float | None) -> None:
        """Wait until woken or due."""
        if until is None:
            await wake.wait()
            return
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await wake.wait()
        except TimeoutError:
            pass


async def async_pause(clock: Clock, seconds: float) -> None:
    """Let time pass, for a task."""
    await clock.arest(asyncio.Event(), clock.monotonic() + seconds)


def sync_pause(clock: Clock, seconds: float) -> None:
    """Let time pass, for a thread."""
    clock.rest(threading.Event(), clock.monotonic() + seconds)
