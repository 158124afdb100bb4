"""Calls in progress, and the gates at which a scenario stops them.

A call counts as in progress until the loop of the test has been told of its end, so that no scenario takes a thread
that is still running for one that waits.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

PATIENCE = 60.0
_SPINS = 4
_NAP = 0.0005
_LONGEST_NAP = 0.01

current_call: contextvars.ContextVar[Call | None] = contextvars.ContextVar("semel_contract_call", default=None)


class Call:
    """One call of an engine, started and not waited for."""

    def __init__(self, parent: Call | None) -> None:
        self._parent = parent
        self._children: list[Call] = []
        self._task: asyncio.Task[Any] | None = None
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        if parent is not None:
            parent._children.append(self)

    @property
    def blocked(self) -> bool:
        """Whether its handler waits for a call of its own."""
        return any(not child.done for child in self._children)

    @property
    def value(self) -> Any:
        """The value it gave; raises its error."""
        return self.outcome().value

    def outcome(self) -> Any:
        """What it returned; raises its error. Only once it is done."""
        assert self.done, "the call is still under way"
        if self.error is not None:
            raise self.error
        return self.result

    def end(self, result: Any, error: BaseException | None) -> None:
        """Take in how it ended."""
        self.result, self.error, self.done = result, error, True

    def follow(self, task: asyncio.Task[Any]) -> None:
        """Be the face of a task of this loop."""
        self._task = task
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.end(None, asyncio.CancelledError())
        else:
            error = task.exception()
            self.end(None if error is not None else task.result(), error)

    async def cancel(self) -> None:
        """Cancel the caller's task; only tasks can be cancelled."""
        assert self._task is not None, "a thread cannot be cancelled"
        self._task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


class Gate:
    """Where a handler stops until the test lets it go on."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._inside = 0
        self.arrived = 0

    @property
    def waiting(self) -> int:
        """How many stand before it."""
        return 0 if self._open.is_set() else self._inside

    async def passing(self) -> None:
        """Stop here until it is opened."""
        self.arrived += 1
        self._inside += 1
        try:
            await self._open.wait()
        finally:
            self._inside -= 1

    async def reached(self, count: int = 1) -> None:
        """Wait until so many have come to it."""
        await until(lambda: self.arrived >= count, f"the gate to be reached by {count}")

    def open(self) -> None:
        """Let everybody go on, now and later."""
        self._open.set()


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so. How long that takes in real time does not matter to any scenario.

    The condition is polled, in the first few turns of the loop, then the more rarely the longer it takes: looking is
    work too, and it keeps the threads that are waited for from working.
    """
    loop = asyncio.get_running_loop()
    since = loop.time()
    spins = 0
    while True:
        waited = loop.time() - since
        await asyncio.sleep(0 if spins < _SPINS else min(max(_NAP, waited / 8), _LONGEST_NAP))
        if condition():
            return
        spins += 1
        if waited > PATIENCE:
            message = f"waited {PATIENCE:.0f} s in vain for {what}"
            raise AssertionError(message)
