"""Callers: threads or tasks that share out a number of calls, and the clock around them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count


class Numbers:
    """Numbers that were never given out before: each call of a first run needs a key of its own."""

    def __init__(self) -> None:
        self._next = count()

    def take(self, size: int) -> list[int]:
        """The next `size` numbers."""
        return [next(self._next) for _ in range(size)]


def keys_of(calls: int, keys: int) -> list[int]:
    """Numbers of keys that exist, over and over."""
    return [number % keys for number in range(calls)]


def alone(numbers: list[int], call: Callable[[int], object]) -> float:
    """Seconds that one caller needs."""
    began = time.perf_counter()
    for number in numbers:
        call(number)
    return time.perf_counter() - began


async def alone_async(numbers: list[int], call: Callable[[int], Awaitable[object]]) -> float:
    """Seconds that one caller needs."""
    began = time.perf_counter()
    for number in numbers:
        await call(number)
    return time.perf_counter() - began


def in_threads(callers: int, numbers: list[int], call: Callable[[int], object]) -> float:
    """Seconds that so many threads need together; starting them is not counted."""
    ready = threading.Barrier(callers + 1)

    def work(share: list[int]) -> None:
        ready.wait()
        for number in share:
            call(number)

    threads = [threading.Thread(target=work, args=(numbers[first::callers],)) for first in range(callers)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


async def in_tasks(callers: int, numbers: list[int], call: Callable[[int], Awaitable[object]]) -> float:
    """Seconds that so many tasks need together."""

    async def work(share: list[int]) -> None:
        for number in share:
            await call(number)

    began = time.perf_counter()
    await asyncio.gather(*(work(numbers[first::callers]) for first in range(callers)))
    return time.perf_counter() - began


@contextmanager
def event_loop() -> Iterator[asyncio.Runner]:
    """A loop that stays, so that what belongs to it is made once and not in each round."""
    with asyncio.Runner() as runner:
        yield runner
