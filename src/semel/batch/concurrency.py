"""Workers side by side, as tasks of an event loop or in threads, and what each kind waits with."""

from __future__ import annotations

import asyncio
from asyncio import Event as AsyncEvent
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from threading import Event as SyncEvent

from semel.handlers import WasCancelled, async_is_cut_off, sync_is_cut_off

__all__ = [
    "AsyncEvent",
    "SyncEvent",
    "WasCancelled",
    "async_is_cut_off",
    "async_join_spawned",
    "async_let_others_run",
    "async_run_side_by_side",
    "async_spawn",
    "sync_is_cut_off",
    "sync_join_spawned",
    "sync_let_others_run",
    "sync_run_side_by_side",
    "sync_spawn",
]


async def async_run_side_by_side(work: Callable[[], Awaitable[None]], count: int, _stop: Callable[[], None]) -> None:
    """Run so many workers as tasks, to the end of all of them; they are cut off with the caller."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(_to_coroutine(work))


async def _to_coroutine(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def sync_run_side_by_side(work: Callable[[], None], count: int, stop: Callable[[], None]) -> None:
    """The same in threads: whoever interrupts the caller, as Ctrl-C does, waits for what they run, and no longer."""
    with ThreadPoolExecutor(count, thread_name_prefix="semel-batch") as threads:
        try:
            for future in [threads.submit(copy_context().run, work) for _ in range(count)]:
                future.result()
        except BaseException:
            stop()
            raise


def async_spawn(work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
    """Begin something beside the caller, which waits for its end before it ends itself."""
    return asyncio.create_task(_to_coroutine(work))


def sync_spawn(work: Callable[[], None]) -> Future[None]:
    """The same in a thread."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="semel-batch")
    try:
        return thread.submit(copy_context().run, work)
    finally:
        thread.shutdown(wait=False)


async def async_join_spawned(spawned: asyncio.Task[None]) -> None:
    """Wait for the end of what was begun, and raise what it raised; it is cut off with the caller alone."""
    try:
        await asyncio.wait([spawned])
    except asyncio.CancelledError:
        spawned.cancel()
        raise
    await spawned


def sync_join_spawned(spawned: Future[None]) -> None:
    """The same in a thread, which nobody cuts off."""
    spawned.result()


async def async_let_others_run() -> None:
    """Let tasks go on that are ready, so that what they end is sent together."""
    await asyncio.sleep(0)


def sync_let_others_run() -> None:
    """Threads go on by themselves."""
