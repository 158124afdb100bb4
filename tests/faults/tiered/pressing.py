"""Callers who go on whatever becomes of the cache, and an observer that counts what it is told.

What always holds: an error that any caller meets ends the test.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from semel.core.observer import Signal
from tests.faults.crowd import LONG, Crowd

OLD = [f"old {number}" for number in range(8)]
"""Keys that are completed, and asked for again and again."""


class Heard:
    """An observer that counts."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self._lock = threading.Lock()

    def observe(self, event: Signal) -> None:
        with self._lock:
            self.kinds[event.kind] += 1


@contextmanager
def pressed(crowd: Crowd, *, callers: int = 8) -> Iterator[Counter[str]]:
    """While this is open, callers replay old keys and run new ones; how often each was done. No call may fail."""
    done: Counter[str] = Counter()
    lock = threading.Lock()
    ends = threading.Event()
    numbers = itertools.count()

    def go_on(old: str) -> None:
        while not ends.is_set():
            assert crowd.run(old).replayed
            assert not crowd.run(f"new {next(numbers)}").replayed
            with lock:
                done["calls"] += 1

    with ThreadPoolExecutor(callers) as pool:
        under_way = [pool.submit(go_on, OLD[number % len(OLD)]) for number in range(callers)]
        try:
            yield done
        finally:
            ends.set()
        for caller in under_way:
            caller.result(LONG)
