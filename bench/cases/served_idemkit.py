"""Many callers in one process on a server: semel beside idemkit, each on its own backend for the same server.

What always holds: idemkit's records are kept apart from semel's, and the server holds as many beforehand for either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.callers import Numbers, event_loop, in_tasks, in_threads, keys_of
from bench.cases.peers import decorated
from bench.cases.served_many import ServedMany
from bench.harness import Comparison, Effort, Measure, Variant

Fill = Callable[[], object]
"""Adds the records that are there before, once idemkit has made one."""


@dataclass(frozen=True)
class ServedIdemkit:
    """Idemkit on backends that `backend` makes: so many callers, and so many keys to replay."""

    backend: Callable[[Path, Effort, str], AbstractContextManager[tuple[Any, Fill]]]
    callers: int
    keys: int

    @contextmanager
    def _sync(self, folder: Path, effort: Effort, name: str) -> Iterator[Callable[..., Any]]:
        """Calls that block; idemkit carries them out on a loop of its own in another thread."""
        from idemkit.core.sync_bridge import run_sync

        with self.backend(folder, effort, name) as (backend, fill):
            call = decorated(backend, blocking=True)
            call(-1)
            fill()
            yield call
            run_sync(backend.aclose())

    @contextmanager
    def _first(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = Numbers()
        with self._sync(folder, effort, "idemkit-first") as call:
            yield lambda calls: in_threads(self.callers, numbers.take(calls), call)

    @contextmanager
    def _replay(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        keys = effort.keys(self.keys)
        with self._sync(folder, effort, "idemkit-replay") as call:
            in_threads(self.callers, list(range(keys)), call)
            yield lambda calls: in_threads(self.callers, keys_of(calls, keys), call)

    @contextmanager
    def _first_async(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = Numbers()
        with self.backend(folder, effort, "idemkit-first-async") as (backend, fill), event_loop() as loop:
            call = decorated(backend, blocking=False)
            loop.run(in_tasks(1, [-1], call))
            fill()
            yield lambda calls: loop.run(in_tasks(self.callers, numbers.take(calls), call))
            loop.run(backend.aclose())

    @contextmanager
    def _replay_async(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        keys = effort.keys(self.keys)
        with self.backend(folder, effort, "idemkit-replay-async") as (backend, fill), event_loop() as loop:
            call = decorated(backend, blocking=False)
            loop.run(in_tasks(self.callers, list(range(keys)), call))
            fill()
            yield lambda calls: loop.run(in_tasks(self.callers, keys_of(calls, keys), call))
            loop.run(backend.aclose())

    def variants(
        self, semel: ServedMany, calls: tuple[int, int], firsts: Comparison, replays: Comparison
    ) -> tuple[Variant, ...]:
        """Idemkit and semel, in threads and in tasks; `calls` are semel's in a round, of a first run and a replay."""
        first, replay = calls
        return (
            Variant("idemkit, threads, first run", self._first, 320),
            Variant("semel, threads, first run", semel.first, first, "idemkit, threads, first run", firsts),
            Variant("idemkit, threads, replay", self._replay, 640),
            Variant("semel, threads, replay", semel.replay, replay, "idemkit, threads, replay", replays),
            Variant("idemkit, tasks, first run", self._first_async, 320),
            Variant("semel, tasks, first run", semel.first_async, first, "idemkit, tasks, first run", firsts),
            Variant("idemkit, tasks, replay", self._replay_async, 640),
            Variant("semel, tasks, replay", semel.replay_async, replay, "idemkit, tasks, replay", replays),
        )
