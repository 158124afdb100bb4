"""Taking no tasks from an engine while the store does not answer: they could only be given back."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from semel.errors import StoreUnavailable
from semel.workflow.ends import End, Retry
from semel.workflow.engines.running import Runnable

log = logging.getLogger("semel.workflow.engines")

_OPERATION: Final = "semel:workflow"
_LONGEST: Final = 5.0
"""Seconds between two looks at a store that does not answer."""


class StoreWatch:
    """Whether the store of a delegate answers, as the ends of its tasks tell."""

    def __init__(self, delegate: Runnable) -> None:
        self._delegate = delegate
        self._down: asyncio.Task[None] | None = None

    @property
    def is_down(self) -> bool:
        """Whether tasks would only come to nothing."""
        return self._down is not None and not self._down.done()

    def note(self, end: End) -> None:
        """Look at how a task ended; where the store did not answer, begin to ask it until it does."""
        if isinstance(end, Retry) and end.no_store and not self.is_down:
            log.warning("the store does not answer; no tasks of %r are taken until it does", self._delegate)
            self._down = asyncio.create_task(self._ask_until_it_answers())

    async def wait(self) -> None:
        """Wait until the store answers."""
        if self._down is not None:
            await asyncio.shield(self._down)

    def close(self) -> None:
        """Ask no longer."""
        if self._down is not None:
            self._down.cancel()

    async def _ask_until_it_answers(self) -> None:
        while True:
            try:
                await self._ask()
            except StoreUnavailable as error:
                await asyncio.sleep(min(error.retry_after.total_seconds(), _LONGEST))
            else:
                log.info("the store answers again; tasks of %r are taken", self._delegate)
                return

    async def _ask(self) -> Any:
        semel, key = self._delegate.semel, "does-it-answer"
        if self._delegate.is_async:
            return await semel.read(key, operation=_OPERATION)
        return await asyncio.to_thread(semel.read, key, operation=_OPERATION)
