"""Many callers in one process on a server: the variants of semel, the same on every kind of server.

What always holds: each variant has a database of its own. Whoever is compared with them says how that is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.callers import Numbers, event_loop, in_tasks, in_threads, keys_of
from bench.harness import Effort, Measure
from bench.workload import once, once_async
from semel import AsyncSemel, Semel


@dataclass(frozen=True)
class ServedMany:
    """Semel on databases that `database` makes: so many callers, and so many keys to replay."""

    database: Callable[[Path, str], AbstractContextManager[str]]
    callers: int
    keys: int

    @contextmanager
    def first(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        """Threads, every call with a new key."""
        numbers = unused()
        with self.database(folder, "many-semel") as url, Semel(url) as semel:
            call = once(semel)
            yield lambda calls: in_threads(self.callers, numbers.take(calls), call)

    @contextmanager
    def first_async(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        """Tasks, every call with a new key."""
        numbers = unused()
        with self.database(folder, "many-semel-async") as url, event_loop() as loop:
            semel = AsyncSemel(url)
            call = once_async(semel)
            yield lambda calls: loop.run(in_tasks(self.callers, numbers.take(calls), call))
            loop.run(semel.close())

    @contextmanager
    def replay(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        """Threads, every call with a key that is completed."""
        keys = effort.keys(self.keys)
        with self.database(folder, "many-semel-replay") as url, Semel(url) as semel:
            call = once(semel)
            in_threads(self.callers, list(range(keys)), call)
            yield lambda calls: in_threads(self.callers, keys_of(calls, keys), call)

    @contextmanager
    def replay_async(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        """Tasks, every call with a key that is completed."""
        keys = effort.keys(self.keys)
        with self.database(folder, "many-semel-replay-async") as url, event_loop() as loop:
            semel = AsyncSemel(url)
            call = once_async(semel)
            loop.run(in_tasks(self.callers, list(range(keys)), call))
            yield lambda calls: loop.run(in_tasks(self.callers, keys_of(calls, keys), call))
            loop.run(semel.close())


def unused() -> Numbers:
    """Numbers whose keys are in no database yet: every one was filled with the first."""
    numbers = Numbers()
    numbers.take(1)
    return numbers
