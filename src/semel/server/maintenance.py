"""What the server does by itself: sweeps, bulk actions that were left, seals of the audit chain, the relay by choice.

- Nothing here ends the server: what fails is logged by its kind, and tried again when it is due.
- Any number of servers may do it at the same time: sweeps, batches and relays share their work by semel's own claims.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from semel.api import AsyncSemel, Semel
from semel.errors import SemelError
from semel.events import Relay
from semel.server.audit import Anchor, Audit, write_anchors
from semel.server.bulk import BulkRunner
from semel.server.engines import run_sweep

SEAL_EVERY: Final = timedelta(minutes=1)
RELAY_AGAIN: Final = timedelta(seconds=5)
_LONGEST_WAIT: Final = timedelta(hours=1)
_LOG: Final = logging.getLogger("semel.server")
Due = Callable[[datetime], datetime]
"""When something is due next, after a moment."""


class Maintenance:
    """Carries out what is due, until it is closed.

    Args:
        semel: the engine whose hooks are asked; without an application it knows none.
        runner: goes on with bulk actions that a dead process left.
        audit: the chain that is sealed; None: there is none.
        due: when the next sweep is due.
        limit: how many records one sweep deletes, and marks, at most.
        relay: what publishes the outbox; None: somebody else does.
        anchor: the file that the seals are written down in; None: nowhere.
        pause: lets time pass; tests put another one here.
    """

    def __init__(
        self,
        semel: Semel | AsyncSemel,
        runner: BulkRunner,
        audit: Audit | None,
        *,
        due: Due,
        limit: int | None = None,
        relay: Relay | None = None,
        anchor: str | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._semel = semel
        self._runner = runner
        self._audit = audit
        self._due = due
        self._limit = limit
        self._relay = relay
        self._anchor = anchor
        self._anchored: frozenset[Anchor] = frozenset()
        self._pause = pause

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Do all of it as long as the block lasts; what is under way then is left to the next process."""
        loops = [self._sweep_when_due()]
        if self._audit is not None:
            loops.append(self._seal(self._audit))
        if self._relay is not None:
            loops.append(self._run_relay(self._relay))
        tasks = [asyncio.create_task(loop) for loop in loops]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def sweep_once(self) -> None:
        """Sweep, and go on with bulk actions that were left."""
        await self._try("a sweep", run_sweep(self._semel, self._limit))
        await self._try("looking for bulk actions", self._runner.resume())

    async def seal_once(self, audit: Audit) -> None:
        """Seal the chains, and write down elsewhere what is not there yet."""
        await self._try("sealing the audit chain", self._seal_and_anchor(audit))

    async def _seal_and_anchor(self, audit: Audit) -> None:
        anchors = frozenset(await audit.seal())
        if self._anchor is None or anchors <= self._anchored:
            return
        ordered = sorted(anchors, key=lambda anchor: (anchor.scope, anchor.seq))
        await asyncio.to_thread(write_anchors, self._anchor, ordered)
        self._anchored = anchors

    async def _sweep_when_due(self) -> None:
        while True:
            await self.sweep_once()
            due = self._due(datetime.now(UTC))
            # In parts, so that a clock that is set meanwhile is noticed.
            while (left := due - datetime.now(UTC)) > timedelta(0):
                await self._pause(min(left, _LONGEST_WAIT).total_seconds())

    async def _seal(self, audit: Audit) -> None:
        while True:
            await self._pause(SEAL_EVERY.total_seconds())
            await self.seal_once(audit)

    async def _run_relay(self, relay: Relay) -> None:
        while True:
            await self._try("the relay", relay.run())
            await self._pause(RELAY_AGAIN.total_seconds())

    async def _try(self, what: str, work: Awaitable[Any]) -> None:
        try:
            await work
        except SemelError as error:
            _LOG.warning("%s did not end well and is tried again: %s", what, error.code)
        except Exception as error:  # noqa: BLE001 - whatever it is, the server goes on
            _LOG.error("%s ended with %s and is tried again", what, type(error).__qualname__)
