"""A crowd at one till: a request that is slow, its duplicates, and whoever else needs a connection meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from tests.http.tills.told import Told

DUPLICATES: Final = 5
USES: Final = 20
PATIENCE: Final = 30.0
"""Seconds after which somebody who did not come is a failure; nothing waits so long otherwise."""


@dataclass
class Gate:
    """Where a slow view waits."""

    arrived: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Called by the view: wait until the test lets it go on."""
        self.arrived.set()
        if not self.go.wait(PATIENCE):
            raise TimeoutError("the test never let the view go on")

    def demand_arrived(self) -> None:
        """Wait until the view is there."""
        if not self.arrived.wait(PATIENCE):
            raise TimeoutError("the slow view was never called")


@dataclass(frozen=True)
class Seen:
    """What a crowd led to: how many connections were out of the pool while all waited, and what each was answered."""

    held: int
    answers: list[Told]


def ask_in_threads(
    ask: Callable[[], Told],
    gate: Gate,
    use_connection: Callable[[], None],
    held: Callable[[], int],
    *,
    with_owner: bool,
) -> Seen:
    """Ask together, from threads. Without an owner among them, the slow request runs elsewhere, behind `gate`."""
    with ThreadPoolExecutor(DUPLICATES + 1) as threads:
        try:
            asked = [threads.submit(ask)] if with_owner else []
            gate.demand_arrived()
            asked += [threads.submit(ask) for _ in range(DUPLICATES)]
            for _ in range(USES):
                use_connection()
            seen = held()
        finally:
            gate.go.set()
        return Seen(seen, [one.result(PATIENCE) for one in asked])


async def ask_in_tasks(
    ask: Callable[[], Any], gate: Gate, use_connection: Callable[[], Any], held: Callable[[], int], *, with_owner: bool
) -> Seen:
    """The same from tasks of one loop."""
    async with asyncio.timeout(PATIENCE):
        try:
            asked = [asyncio.create_task(ask())] if with_owner else []
            await asyncio.to_thread(gate.demand_arrived)
            asked += [asyncio.create_task(ask()) for _ in range(DUPLICATES)]
            for _ in range(USES):
                await use_connection()
            seen = held()
        finally:
            gate.go.set()
        return Seen(seen, list(await asyncio.gather(*asked)))
