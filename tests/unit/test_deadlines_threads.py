"""Deadlines are extended by a thread that comes back, whatever kept it from connecting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest

from semel.deadlines import Deadlines

EVERY = 0.01


class Connections:
    """Connects after so many failures, and notes what was extended."""

    def __init__(self, *failures: BaseException) -> None:
        self._failures = list(failures)
        self.extended = threading.Event()
        self.tried = threading.Event()
        self.thread = threading.current_thread()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Callable[[Sequence[Any]], Awaitable[None]]]:
        self.thread = threading.current_thread()
        self.tried.set()
        if self._failures:
            raise self._failures.pop(0)

        async def extend(_tokens: Sequence[Any]) -> None:
            self.extended.set()

        yield extend


@pytest.mark.parametrize("on_demand", [True, False])
def test_a_connection_that_fails_once_is_tried_again(on_demand: bool) -> None:
    connections = Connections(OSError(), RuntimeError("no token"), asyncio.CancelledError())
    deadlines = Deadlines(connections.connect, every=EVERY, longest=60, on_demand=on_demand)
    if not on_demand:
        deadlines.start()
    with deadlines.extending("task"):
        assert connections.extended.wait(60)
    asyncio.run(deadlines.stop())


def test_a_thread_that_cannot_connect_ends_when_nothing_is_held() -> None:
    connections = Connections(*(RuntimeError("no token") for _ in range(100_000)))
    deadlines = Deadlines(connections.connect, every=EVERY, longest=60, on_demand=True)
    with deadlines.extending("task"):
        assert connections.tried.wait(60)
    connections.thread.join(60)
    assert not connections.thread.is_alive()
    connections.tried.clear()
    with deadlines.extending("another"):
        assert connections.tried.wait(60), "and another begins"
    asyncio.run(deadlines.stop())


def test_the_end_does_not_wait_for_handlers_that_take_all_threads_of_the_loop() -> None:
    connections, may_end = Connections(), threading.Event()
    deadlines = Deadlines(connections.connect, every=EVERY, longest=60)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        wedged = asyncio.create_task(asyncio.to_thread(may_end.wait, 60))
        await asyncio.sleep(0)  # it is begun
        deadlines.start()
        try:
            async with asyncio.timeout(10):
                await deadlines.stop()
        finally:
            may_end.set()
        assert await wedged

    asyncio.run(main())
