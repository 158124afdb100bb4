"""Workers side by side, as tasks of an event loop or in threads, and what each kind waits with."""

from __future__ import annotations

import asyncio
from asyncio import Event as AsyncEvent
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Event as SyncEvent

__all__ = [
    "AsyncEvent",
    "SyncEvent",
    "async_let_others_run",
    "async_run_side_by_side",
    "sync_let_others_run",
    "sync_run_side_by_side",
]


async def async_run_side_by_side(work: Callable[[], Awaitable[None]], count: int) -> None:
    """Run so many workers as tasks, to the end of all of them."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(_to_coroutine(work))


async def _to_coroutine(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def sync_run_side_by_side(work: Callable[[], None], count: int) -> None:
    """Run so many workers in threads, to the end of all of them."""
    with ThreadPoolExecutor(count, thread_name_prefix="semel-batch") as threads:
        for future in [threads.submit(copy_context().run, work) for _ in range(count)]:
            future.result()


async def async_let_others_run() -> None:
    """Let tasks go on that are ready, so that what they end is sent together."""
    await asyncio.sleep(0)


def sync_let_others_run() -> None:
    """Threads go on by themselves."""
