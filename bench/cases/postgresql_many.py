"""PostgreSQL, 64 callers in one process: semel's lanes against pgbench."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.by_hand_postgresql import Pgbench
from bench.callers import Numbers, event_loop, in_tasks, in_threads, keys_of
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import database, server
from bench.workload import once, once_async
from semel import AsyncSemel, Semel

CALLERS = 64
KEYS = 2_000
FIRST = 1_920
REPLAY = 6_400
_TARGET = Comparison("faster", 2.0)


@contextmanager
def _pgbench(folder: Path, effort: Effort) -> Iterator[Measure]:
    with database(folder, "many-pgbench") as url:
        yield Pgbench(folder, url, CALLERS).first_runs


@contextmanager
def first(folder: Path, effort: Effort) -> Iterator[Measure]:
    """Threads, every call with a new key."""
    numbers = Numbers()
    numbers.take(1)  # the template was filled with the first
    with database(folder, "many-semel") as url, Semel(url) as semel:
        call = once(semel)
        yield lambda calls: in_threads(CALLERS, numbers.take(calls), call)


@contextmanager
def first_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    """Tasks, every call with a new key."""
    numbers = Numbers()
    numbers.take(1)  # the template was filled with the first
    with database(folder, "many-semel-async") as url, event_loop() as loop:
        semel = AsyncSemel(url)
        call = once_async(semel)
        yield lambda calls: loop.run(in_tasks(CALLERS, numbers.take(calls), call))
        loop.run(semel.close())


@contextmanager
def replay(folder: Path, effort: Effort) -> Iterator[Measure]:
    """Threads, every call with a key that is completed."""
    keys = effort.keys(KEYS)
    with database(folder, "many-semel-replay") as url, Semel(url) as semel:
        call = once(semel)
        in_threads(CALLERS, list(range(keys)), call)
        yield lambda calls: in_threads(CALLERS, keys_of(calls, keys), call)


@contextmanager
def replay_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    """Tasks, every call with a key that is completed."""
    keys = effort.keys(KEYS)
    with database(folder, "many-semel-replay-async") as url, event_loop() as loop:
        semel = AsyncSemel(url)
        call = once_async(semel)
        loop.run(in_tasks(CALLERS, list(range(keys)), call))
        yield lambda calls: loop.run(in_tasks(CALLERS, keys_of(calls, keys), call))
        loop.run(semel.close())


POSTGRESQL_64 = Case(
    "postgresql-64",
    "PostgreSQL, 64 callers in one process: a durable claim and a durable completion",
    (
        Variant("pgbench, 64 clients, first run", _pgbench, 1280),
        Variant("semel, threads, first run", first, FIRST, against="pgbench, 64 clients, first run", by=_TARGET),
        Variant("semel, tasks, first run", first_async, FIRST, against="pgbench, 64 clients, first run", by=_TARGET),
        Variant("semel, threads, replay", replay, REPLAY),
        Variant("semel, tasks, replay", replay_async, REPLAY),
    ),
    notes=(
        "pgbench: 64 connections, prepared statements, a plain insert and a plain update, each committed by itself.",
        "semel: threads through psycopg, tasks through asyncpg, at most four connections.",
    ),
    site=server,
)
