"""Batches on PostgreSQL: against calls of `run`, a bare COPY and other ways, and from few items to many."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.callers import Numbers, event_loop, in_tasks
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import database, execute, server
from bench.site import Fact
from semel import AsyncSemel
from semel.batch import Batch, Batches, Item

CALLERS = 64
_ITEMS = 5000
_LOADED = 100_000
_FEW, _MANY = 10_000, 1_000_000
_PAGES_AT_ONCE = 4
_RECOUNTED = 500
_COLUMNS = ("batch", "position", "id", "data")
_SEED_TABLES = (
    "CREATE TABLE bulk (id text PRIMARY KEY, completed integer NOT NULL DEFAULT 0)",
    (
        "CREATE TABLE bulk_item (bulk text NOT NULL, id text NOT NULL, data text NOT NULL, status text NOT NULL, "
        "result text, PRIMARY KEY (bulk, id))"
    ),
)
Work = Callable[[AsyncSemel, str, int], Coroutine[Any, Any, float]]
Prepare = Callable[[Path, Effort], Any]


def item_of(number: int) -> dict[str, Any]:
    """An item of about 130 bytes."""
    return {"id": f"item-{number:010}", "amount": "12.50", "account": f"account-{number % 97}", "note": "x" * 60}


async def pay(item: Item) -> str:
    """An item that takes no time."""
    return item.id


def _prepare(name: str, work: Work) -> Prepare:
    """Measures one kind of work on a database of its own; it is told the number of the round."""

    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        rounds = Numbers()
        with database(folder, name) as url, event_loop() as loop:
            semel = AsyncSemel(url)
            yield lambda calls: loop.run(work(semel, f"{name}-{rounds.take(1)[0]}", calls))
            loop.run(semel.close())

    return prepare


async def start(semel: AsyncSemel, name: str, items: int) -> Batch[AsyncSemel]:
    """A batch of so many items."""
    return await Batches(semel).start(name, map(item_of, range(items)), operation="pay", item_id="id")


async def _call(semel: AsyncSemel, name: str, calls: int) -> float:
    async def call(number: int) -> Any:
        item = item_of(number)

        async def run() -> str:
            return str(item["id"])

        return await semel.run((name, item["id"]), run, operation="pay", fingerprint=item)

    return await in_tasks(CALLERS, list(range(calls)), call)


async def _run_items(semel: AsyncSemel, name: str, calls: int) -> float:
    batch = await start(semel, name, calls)
    began = time.perf_counter()
    status = await batch.run(pay, concurrency=CALLERS)
    return _check(status.completed, calls, time.perf_counter() - began)


@contextmanager
def _pages(folder: Path, effort: Effort) -> Iterator[Measure]:
    import asyncpg

    rounds = Numbers()
    with database(folder, "batch_page") as url, event_loop() as loop:
        semel = AsyncSemel(url)
        pool = loop.run(_open(asyncpg.create_pool(url, min_size=_PAGES_AT_ONCE, max_size=_PAGES_AT_ONCE)))

        @asynccontextmanager
        async def begin() -> AsyncIterator[Any]:
            async with pool.acquire() as connection, connection.transaction():
                yield connection

        async def run(calls: int) -> float:
            batch = await start(semel, f"page-{rounds.take(1)[0]}", calls)
            began = time.perf_counter()
            status = await batch.run(pay, concurrency=_PAGES_AT_ONCE, commit="page", transaction=begin)
            return _check(status.completed, calls, time.perf_counter() - began)

        yield lambda calls: loop.run(run(calls))
        loop.run(pool.close())
        loop.run(semel.close())


async def _open(pool: AbstractAsyncContextManager[Any]) -> Any:
    return await pool.__aenter__()


async def _load(semel: AsyncSemel, name: str, calls: int) -> float:
    items = [item_of(number) for number in range(calls)]
    began = time.perf_counter()
    await Batches(semel).start(name, items, operation="pay", item_id="id")
    return time.perf_counter() - began


@contextmanager
def _copy(folder: Path, effort: Effort) -> Iterator[Measure]:
    """The rows that loading writes, into the table that it writes them to, from bytes that are ready."""
    import asyncpg

    rounds = Numbers()
    with database(folder, "batch_copy") as url, event_loop() as loop:
        connection = loop.run(asyncpg.connect(url))

        async def copy(calls: int) -> float:
            batch = 1_000_000 + rounds.take(1)[0]
            items = [item_of(number) for number in range(calls)]
            rows = [(batch, place, item["id"], msgspec.json.encode(item)) for place, item in enumerate(items)]
            began = time.perf_counter()
            await connection.copy_records_to_table("semel_item", records=rows, columns=_COLUMNS)
            return time.perf_counter() - began

        yield lambda calls: loop.run(copy(calls))
        loop.run(connection.close())


def _check(done: int, asked: int, seconds: float) -> float:
    """The seconds, if all items were done: what stops early is quick.

    Raises:
        RuntimeError: some were not.
    """
    if done != asked:
        raise RuntimeError(f"{done} of {asked} items were done")
    return seconds


def _facts(folder: Path, effort: Effort) -> Sequence[Fact]:
    few, many = effort.calls(_FEW), effort.calls(_MANY)
    small, large = (_measure_alone(folder, f"batch_slope_{items}", items) for items in (few, many))
    grown = (large["kilobytes"] - small["kilobytes"]) / 1024
    return [
        Fact(f"time per item of {many:,} items, of that of {few:,}", large["run"] / small["run"], "×", 1.1),
        Fact(f"time to load an item of {many:,}, of that of {few:,}", large["load"] / small["load"], "×", 1.1),
        Fact(f"memory that {many - few:,} more items take", grown, "MiB", 20),
    ]


def _measure_alone(folder: Path, name: str, items: int) -> dict[str, float]:
    """Seconds per item and the largest size of a process that loads and runs so many items."""
    with database(folder, name) as url:
        told = subprocess.run(
            [sys.executable, "-m", "bench.cases.batch", url, str(items)], capture_output=True, check=True, text=True
        )
    measured: dict[str, float] = json.loads(told.stdout)
    return measured


async def _measure(url: str, items: int) -> dict[str, float]:
    async with AsyncSemel(url) as semel:
        began = time.perf_counter()
        batch = await start(semel, "slope", items)
        loaded = time.perf_counter()
        status = await batch.run(pay, concurrency=CALLERS, page=500)
        ended = time.perf_counter()
    _check(status.completed, items, 0)
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"load": (loaded - began) / items, "run": (ended - loaded) / items, "kilobytes": size}


async def _whole(semel: AsyncSemel, name: str, calls: int) -> float:
    """Loading and running together."""
    began = time.perf_counter()
    status = await (await start(semel, name, calls)).run(pay, concurrency=CALLERS)
    return _check(status.completed, calls, time.perf_counter() - began)


def _name_of(item: dict[str, Any]) -> str:
    return str(item["id"])


@contextmanager
def _dbos(folder: Path, effort: Effort) -> Iterator[Measure]:
    """A queue of DBOS whose workflows do nothing, with as many of them at once."""
    from dbos import DBOS

    with database(folder, "batch_dbos") as url:
        DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
        done_by = DBOS.workflow()(_name_of)
        DBOS.launch()
        queue = DBOS.register_queue("items", worker_concurrency=CALLERS, polling_interval_sec=0.05)

        def measure(calls: int) -> float:
            began = time.perf_counter()
            handles = [queue.enqueue(done_by, item_of(number)) for number in range(calls)]
            done = sum(handle.get_result() is not None for handle in handles)
            return _check(done, calls, time.perf_counter() - began)

        try:
            yield measure
        finally:
            DBOS.destroy()


@contextmanager
def _recount(folder: Path, effort: Effort) -> Iterator[Measure]:
    """The algorithm of a plain tutorial: after each item, all items of the bulk are counted again."""
    import psycopg

    rounds = Numbers()
    with database(folder, "batch_recount") as url:
        execute(url, *_SEED_TABLES)
        with psycopg.connect(url, autocommit=True) as connection:

            def measure(calls: int) -> float:
                name = f"bulk-{rounds.take(1)[0]}"
                began = time.perf_counter()
                connection.execute("INSERT INTO bulk (id) VALUES (%s)", (name,))
                with connection.cursor() as cursor:
                    rows = [(name, item["id"], json.dumps(item)) for item in map(item_of, range(calls))]
                    cursor.executemany("INSERT INTO bulk_item VALUES (%s, %s, %s, 'PENDING')", rows)
                for _, id_, _ in rows:
                    connection.execute(
                        "UPDATE bulk_item SET status = 'COMPLETED', result = id WHERE bulk = %s AND id = %s",
                        (name, id_),
                    )
                    connection.execute(
                        "UPDATE bulk SET completed = (SELECT count(*) FROM bulk_item WHERE bulk = %s AND "
                        "status = 'COMPLETED') WHERE id = %s",
                        (name, name),
                    )
                return time.perf_counter() - began

            yield measure


_RUN, _COPY, _DBOS = "run, 64 callers", "bare COPY of the same rows", "DBOS queue, 64 at once"
BATCH = Case(
    "batch",
    "batches on PostgreSQL: items and pages against calls of run, loading against a bare COPY",
    (
        Variant(_RUN, _prepare("batch_run", _call), _ITEMS),
        Variant('batch, commit="item"', _prepare("batch_item", _run_items), _ITEMS, _RUN, Comparison("faster", 1)),
        Variant('batch, commit="page"', _pages, _ITEMS, _RUN, Comparison("faster", 2)),
        Variant(_COPY, _copy, _LOADED),
        Variant("loading a batch", _prepare("batch_load", _load), _LOADED, _COPY, Comparison("faster", 0.5)),
    ),
    notes=(
        "Items of about 130 bytes that take no time, 64 at once; pages of 100, 4 transactions at once.",
        "COPY and loading write to the same table with the same indexes; loading encodes, checks and digests items.",
        "The slope is measured with pages of 500, each size in a process of its own.",
    ),
    site=server,
    facts=_facts,
)
BATCH_PEERS = Case(
    "batch-peers",
    "other ways to do many items on PostgreSQL, loading and running together",
    (
        Variant(_DBOS, _dbos, _RECOUNTED),
        Variant("the same as a batch", _prepare("batch_peer", _whole), _ITEMS, _DBOS, Comparison("faster", 10)),
        Variant("counting all items after each", _recount, _RECOUNTED, _DBOS, Comparison("faster")),
    ),
    notes=(f"DBOS and the recount with {_RECOUNTED} items, the batch with {_ITEMS}; the recount is quadratic.",),
    needs="dbos",
    site=server,
)


if __name__ == "__main__":
    import asyncio

    json.dump(asyncio.run(_measure(sys.argv[1], int(sys.argv[2]))), sys.stdout)
