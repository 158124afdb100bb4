"""Waiters in another process are told of an end, and only where somebody waits. The clock stands still meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from semel.stores.redis import RedisStore
from semel.testing.clock import VirtualClock
from tests.servers.redis import Keys

pytestmark = [pytest.mark.slow, pytest.mark.anyio]


def listeners(keys: Keys) -> int:
    (_, count) = keys.said("PUBSUB", "NUMSUB", f"{keys.prefix}:ended")
    return int(count)


def wanted(keys: Keys) -> bool:
    return any(keys.said("HEXISTS", key, "wanted") for key in keys.names())


async def until(holds: Callable[[], bool], clock: VirtualClock) -> None:
    """Let the waiter's first look come, and nothing later."""
    while not holds():
        due = clock.next_due()
        if due is not None and due <= 0.06:
            clock.advance_to(due)
        await asyncio.sleep(0)


async def test_a_waiting_task_is_told(keys: Keys) -> None:
    clock, let_go = VirtualClock(), asyncio.Event()

    async def work() -> str:
        await let_go.wait()
        return "done"

    async def again() -> str:
        raise AssertionError

    async with AsyncSemel(keys.url) as owner, AsyncSemel(RedisStore(keys.url), clock=clock) as other:
        running = asyncio.create_task(owner.run("k", work, operation="pay", fingerprint=None))
        await until(lambda: bool(keys.names()), clock)
        waiting = asyncio.create_task(other.run("k", again, operation="pay", fingerprint=None))
        await until(lambda: listeners(keys) == 1 and wanted(keys), clock)
        let_go.set()
        assert (await running).value == "done"
        assert (await waiting).value == "done"
    while listeners(keys):  # noqa: ASYNC110 - only the server knows
        await asyncio.sleep(0)


def test_a_waiting_thread_is_told(keys: Keys) -> None:
    clock, let_go, began = VirtualClock(), threading.Event(), threading.Event()
    got: list[Any] = []

    def work() -> str:
        began.set()
        let_go.wait()
        return "done"

    with Semel(keys.url) as owner, Semel(RedisStore(keys.url), clock=clock) as other:
        running = threading.Thread(target=lambda: owner.run("k", work, operation="pay", fingerprint=None))
        running.start()
        began.wait()
        waiting = threading.Thread(
            target=lambda: got.append(other.run("k", work, operation="pay", fingerprint=None).value)
        )
        waiting.start()
        asyncio.run(until(lambda: listeners(keys) == 1 and wanted(keys), clock))
        let_go.set()
        running.join()
        waiting.join()
    assert got == ["done"]


async def test_without_listening_a_waiter_looks(keys: Keys) -> None:
    let_go, began = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        began.set()
        await let_go.wait()
        return "done"

    async with AsyncSemel(keys.url) as owner, AsyncSemel(RedisStore(keys.url, listen=False)) as other:
        running = asyncio.create_task(owner.run("k", work, operation="pay", fingerprint=None))
        await began.wait()
        waiting = asyncio.create_task(other.run("k", work, operation="pay", fingerprint=None))
        while not wanted(keys):  # noqa: ASYNC110 - only the server knows
            await asyncio.sleep(0)
        assert listeners(keys) == 0
        let_go.set()
        assert (await running).value == (await waiting).value == "done"
