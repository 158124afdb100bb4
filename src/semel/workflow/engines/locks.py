"""Keeping the engine's own lock on a task while its delegate runs, as often as a lease is renewed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

log = logging.getLogger("semel.workflow.engines")


@asynccontextmanager
async def extending(
    extend: Callable[[], Awaitable[bool]], *, every: timedelta, longest: timedelta
) -> AsyncIterator[None]:
    """Call `extend` inside, every so often and for no longer than a lease is renewed: what is wedged comes free.

    It answers whether the lock is still there. Without one nothing more is extended: whoever has the task now finds the
    record.
    """

    async def keep_extending() -> None:
        until = time.monotonic() + longest.total_seconds()
        while time.monotonic() + every.total_seconds() < until:
            await asyncio.sleep(every.total_seconds())
            try:
                if not await extend():
                    return
            except Exception as error:  # noqa: BLE001 - of the engine's client; the next time may do
                log.warning("a lock could not be extended (%s); tried again", type(error).__name__)

    extender = asyncio.create_task(keep_extending())
    try:
        yield
    finally:
        extender.cancel()
        with suppress(asyncio.CancelledError):
            await extender
