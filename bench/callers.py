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


def timed(call: Callable[[int], object], seconds: list[float]) -> Callable[[int], None]:
    """`call`, each time noting in `seconds` how long it took; for percentiles."""

    def one(number: int) -> None:
        began = time.perf_counter()
        call(number)
        seconds.append(time.perf_counter() - began)

    return one


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
    """Seconds that so many threads need together; starting them is not counted. What fails in one is raised here."""
    ready = threading.Barrier(callers + 1)
    problems: list[Exception] = []

    def work(share: list[int]) -> None:
        ready.wait()
        try:
            for number in share:
                call(number)
        except Exception as problem:  # noqa: BLE001 - raised below: a call that fails is quick, and no comparison
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(numbers[first::callers],)) for first in range(callers)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if problems:
        raise problems[0]
    return seconds


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
