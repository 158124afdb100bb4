"""SQLite, 64 callers: semel's group commit against one commit per statement."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.by_hand import Writer, digest_of
from bench.callers import Numbers, event_loop, in_tasks, in_threads
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.sqlite_files import filled
from bench.workload import once, once_async
from semel import AsyncSemel, Semel

CALLERS = 64
_TARGET = Comparison("faster", 8.0)


@contextmanager
def _by_hand(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers, writer = Numbers(), Writer(filled(folder, effort, "many-by-hand"))
    yield lambda calls: in_threads(CALLERS, numbers.take(calls), writer.first_run)
    writer.close()


@contextmanager
def _by_hand_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers, writer = Numbers(), Writer(filled(folder, effort, "many-by-hand-async"))
    with event_loop() as loop, ThreadPoolExecutor(1) as thread:

        async def first_run(number: int) -> None:
            digest, nonce = digest_of(number), os.urandom(16)
            running = asyncio.get_running_loop()
            await running.run_in_executor(thread, writer.claim, number, digest, nonce)
            await running.run_in_executor(thread, writer.complete, digest, nonce)

        yield lambda calls: loop.run(in_tasks(CALLERS, numbers.take(calls), first_run))
    writer.close()


@contextmanager
def _semel(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = Numbers()
    with Semel(filled(folder, effort, "many-semel")) as semel:
        call = once(semel)
        numbers.take(1)  # the file was filled with the first
        yield lambda calls: in_threads(CALLERS, numbers.take(calls), call)


@contextmanager
def _semel_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers, semel = Numbers(), AsyncSemel(filled(folder, effort, "many-semel-async"))
    call = once_async(semel)
    numbers.take(1)  # the file was filled with the first
    with event_loop() as loop:
        yield lambda calls: loop.run(in_tasks(CALLERS, numbers.take(calls), call))
        loop.run(semel.close())


SQLITE_64 = Case(
    "sqlite-64",
    "SQLite, 64 callers, first run: a durable claim and a durable completion",
    (
        Variant("by hand, threads", _by_hand, 320),
        Variant("semel, threads", _semel, 1920, against="by hand, threads", by=_TARGET),
        Variant("by hand, tasks", _by_hand_async, 320),
        Variant("semel, tasks", _semel_async, 1920, against="by hand, tasks", by=_TARGET),
    ),
    notes=(
        "By hand, threads: 64 threads share one connection under a lock; each statement is a transaction of its own.",
        "By hand, tasks: 64 tasks hand the same to one writer thread, as aiosqlite does.",
    ),
)
