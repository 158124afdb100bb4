"""Keeping the engine's own lock on a task while its delegate runs, as often as a lease is renewed.

It is done by a thread with a connection of its own, so a delegate that burns the processor or blocks its event loop
keeps its lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

from semel.core.policy import Policy
from semel.deadlines import Deadlines, Extend

log = logging.getLogger("semel.workflow.engines")

ExtendLock = Callable[[Any], Awaitable[bool]]
"""Extends the lock of one task, and says whether it is still there."""


class Locks:
    """The locks of the tasks of one delegate, extended for at most `max_runtime`.

    A lock that is gone is extended no more: whoever has the task now finds the record.

    Args:
        connect: opens, in the thread, what extends a lock.
        policy: of the delegate.
        every: how long to wait between two extensions; by default a third of a lease.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[ExtendLock]],
        policy: Policy,
        *,
        every: timedelta | None = None,
    ) -> None:
        self._connect = connect
        self._every = (every or policy.lease_for / 3).total_seconds()
        longest = policy.max_runtime.total_seconds()
        self._deadlines = Deadlines(self._connect_extender, every=self._every, longest=longest, on_demand=True)

    def extending(self, task: Any) -> AbstractContextManager[None]:
        """Extend the lock of a task inside. One that was handed out twice here is held for each by itself."""
        return self._deadlines.extending((task, object()))

    @asynccontextmanager
    async def _connect_extender(self) -> AsyncIterator[Extend]:
        async with self._connect() as extend_lock:

            async def extend(tokens: Sequence[Any]) -> None:
                await asyncio.gather(*(self._extend(extend_lock, token) for token in tokens))

            yield extend

    async def _extend(self, extend_lock: ExtendLock, token: Any) -> None:
        try:
            async with asyncio.timeout(self._every):
                is_there = await extend_lock(token[0])
        except Exception as error:  # noqa: BLE001 - of the engine's client; the next time may do
            log.warning("a lock could not be extended (%s); tried again", type(error).__name__)
            return
        if not is_there:
            self._deadlines.release(token)
