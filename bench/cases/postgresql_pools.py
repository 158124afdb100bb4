"""PostgreSQL, one caller: the store's own connections against the pools of client libraries.

Each variant has a database of its own, and all do a first run.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
from psycopg_pool import ConnectionPool

from bench.callers import alone, alone_async, event_loop
from bench.cases.served_many import unused
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import database, server
from bench.workload import once, once_async
from semel import AsyncSemel, Semel

OpenPool = Callable[[str], Coroutine[Any, Any, Any]]


async def _own(url: str) -> str:
    return url


async def _asyncpg(url: str) -> Any:
    return await asyncpg.create_pool(url, min_size=1, max_size=8)


async def _asyncpg_without_reset(url: str) -> Any:
    """As semel could make it for itself: nothing is left on its connections that would have to be reset."""

    async def leave_as_it_is(_connection: Any) -> None: ...

    return await asyncpg.create_pool(url, min_size=1, max_size=8, reset=leave_as_it_is)


def _async_first_runs(name: str, open_pool: OpenPool) -> Callable[[Path, Effort], Any]:
    @contextmanager
    def measure(folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = unused()
        with database(folder, name) as url, event_loop() as loop:
            place = loop.run(open_pool(url))
            semel = AsyncSemel(place)
            call = once_async(semel)
            yield lambda calls: loop.run(alone_async(numbers.take(calls), call))
            loop.run(semel.close())
            if place is not url:
                loop.run(place.close())

    return measure


@contextmanager
def _threads_own(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = unused()
    with database(folder, "pools-own-threads") as url, Semel(url) as semel:
        call = once(semel)
        yield lambda calls: alone(numbers.take(calls), call)


@contextmanager
def _threads_borrowed(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = unused()
    with (
        database(folder, "pools-psycopg") as url,
        ConnectionPool(url, min_size=1, max_size=8, open=True) as pool,
        Semel(pool) as semel,
    ):
        call = once(semel)
        yield lambda calls: alone(numbers.take(calls), call)


_OWN, _OWN_ASYNC = "its own connections", "its own connections, async"
POSTGRESQL_POOLS = Case(
    "postgresql-pools",
    "PostgreSQL, one caller: a first run on connections of the store's own, and on those of a library's pool",
    (
        Variant(_OWN_ASYNC, _async_first_runs("pools-own", _own), 100),
        Variant("asyncpg.Pool", _async_first_runs("pools-asyncpg", _asyncpg), 100, _OWN_ASYNC, Comparison("slower")),
        Variant(
            "asyncpg.Pool without reset",
            _async_first_runs("pools-no-reset", _asyncpg_without_reset),
            100,
            _OWN_ASYNC,
            Comparison("slower"),
        ),
        Variant(_OWN, _threads_own, 100),
        Variant("psycopg_pool.ConnectionPool", _threads_borrowed, 100, _OWN, Comparison("slower")),
    ),
    notes=("asyncpg's pool resets a connection each time that it is put back, which is a statement of its own.",),
    site=server,
)
