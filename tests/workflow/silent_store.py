"""A store that does not answer for a while, and says how often it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from semel.errors import StoreUnavailable


class Silence:
    """Counts what was asked of the store meanwhile."""

    def __init__(self) -> None:
        self._asked = asyncio.Semaphore(0)

    def plan(self, operations: Sequence[Any], *, joined: bool) -> Any:
        """Answer nothing."""
        del joined
        self._asked.release()
        yield from ()
        return [StoreUnavailable("down", retry_after=timedelta(milliseconds=20)) for _ in operations]

    async def until_asked(self, times: int) -> None:
        """Wait until the store was asked so often from now on."""
        while not self._asked.locked():
            await self._asked.acquire()
        for _ in range(times):
            await self._asked.acquire()


@asynccontextmanager
async def silent(store: Any) -> AsyncIterator[Silence]:
    """Inside, the store does not answer."""
    silence = Silence()
    with patch.object(store, "plan", silence.plan):
        yield silence
