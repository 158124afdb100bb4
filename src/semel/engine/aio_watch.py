"""A watch in a task of an event loop: it looks after things whenever the loop gets round to it.

Invariants: everything is touched by that loop alone, so `lock` locks nothing; it has the name that `sync_watch` gives
it, for whoever uses either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any

from semel.core.flow import arun
from semel.core.operations import Answer, Operation
from semel.engine.clock import Clock
from semel.engine.effects import Rest, Together
from semel.engine.watch import DOZE, Watched, watching

_log = logging.getLogger("semel")


class TaskWatch:
    """Runs a watch in a task, which begins with the first thing to watch; arguments as for `ThreadWatch`."""

    def __init__(
        self,
        watched: Watched,
        clock: Clock,
        perform: Callable[[Sequence[Operation]], Awaitable[list[Answer | Exception]]],
        report: Callable[[Any], None],
        name: str,
    ) -> None:
        self.lock = nullcontext()
        self._watched = watched
        self._clock = clock
        self._perform = perform
        self._report = report
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._resting_until: float | None = None
        self._stirred = False

    def rouse(self, at: float | None) -> None:
        """Make sure the task is awake at `at` (None: now)."""
        self._stirred = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name)
        elif at is None or self._resting_until is None or at < self._resting_until:
            self._wake.set()

    async def _run(self) -> None:
        try:
            await arun(watching(self._watched, self._clock), self._do)
        except Exception:
            _log.exception("the task %s ended by an error; what it looked after is no longer looked after", self._name)
            raise

    async def _do(self, wanted: Any) -> Any:
        match wanted:
            case Together(operations):
                return await self._perform(operations)
            case Rest(until):
                return await self._rest(until)
        return self._report(wanted)

    async def _rest(self, until: float | None) -> None:
        if until is None and self._stirred:
            until = self._clock.monotonic() + DOZE
        self._resting_until = until
        self._stirred = False
        await self._clock.arest(self._wake, until)
        self._resting_until = self._clock.monotonic()
        self._wake.clear()

    def wakes(self) -> list[asyncio.Event]:
        """What wakes the task, if there is one."""
        return [] if self._task is None or self._task.done() else [self._wake]

    async def close(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
