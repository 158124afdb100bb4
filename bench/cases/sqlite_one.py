"""SQLite, one caller: what semel adds to the bare statements."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.by_hand import Reader, Writer, digest_of
from bench.callers import Numbers, alone, alone_async, event_loop, keys_of
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.sqlite_files import filled
from bench.workload import once, once_async
from semel import AsyncSemel, Semel

KEYS = 500
_FIRST = Comparison("slower", 1.3)
_REPLAY = Comparison("slower", 1.7)


@contextmanager
def _by_hand(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers, writer = Numbers(), Writer(filled(folder, effort, "one-by-hand"))
    yield lambda calls: alone(numbers.take(calls), writer.first_run)
    writer.close()


@contextmanager
def _by_hand_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers, writer = Numbers(), Writer(filled(folder, effort, "one-by-hand-async"))
    with event_loop() as loop, ThreadPoolExecutor(1) as thread:

        async def first_run(number: int) -> None:
            digest, nonce = digest_of(number), os.urandom(16)
            running = asyncio.get_running_loop()
            await running.run_in_executor(thread, writer.claim, number, digest, nonce)
            await running.run_in_executor(thread, writer.complete, digest, nonce)

        yield lambda calls: loop.run(alone_async(numbers.take(calls), first_run))
    writer.close()


@contextmanager
def _semel(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = Numbers()
    with Semel(filled(folder, effort, "one-semel")) as semel:
        call = once(semel)
        numbers.take(1)  # the file was filled with the first
        yield lambda calls: alone(numbers.take(calls), call)


@contextmanager
def _semel_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers, semel = Numbers(), AsyncSemel(filled(folder, effort, "one-semel-async"))
    call = once_async(semel)
    numbers.take(1)  # the file was filled with the first
    with event_loop() as loop:
        yield lambda calls: loop.run(alone_async(numbers.take(calls), call))
        loop.run(semel.close())


SQLITE_ONE = Case(
    "sqlite-one",
    "SQLite, one caller, first run: two statements, two commits",
    (
        Variant("by hand", _by_hand, 100),
        Variant("semel", _semel, 100, against="by hand", by=_FIRST),
        Variant("by hand, async", _by_hand_async, 100),
        Variant("semel, async", _semel_async, 100, against="by hand, async", by=_FIRST),
    ),
    notes=("By hand, async: through a thread, as an event loop must not wait for a disk.",),
)


@contextmanager
def _read(folder: Path, effort: Effort) -> Iterator[Measure]:
    keys, path = effort.keys(KEYS), filled(folder, effort, "replay-by-hand")
    writer = Writer(path)
    for number in range(keys):
        writer.first_run(number)
    writer.close()
    reader = Reader(path)
    digests = [digest_of(number) for number in range(keys)]
    yield lambda calls: alone(keys_of(calls, keys), lambda number: reader.read(digests[number]))
    reader.close()


@contextmanager
def _replay(folder: Path, effort: Effort) -> Iterator[Measure]:
    keys = effort.keys(KEYS)
    with Semel(filled(folder, effort, "replay-semel")) as semel:
        call = once(semel)
        alone(list(range(keys)), call)
        yield lambda calls: alone(keys_of(calls, keys), call)


@contextmanager
def _replay_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    keys, semel = effort.keys(KEYS), AsyncSemel(filled(folder, effort, "replay-semel-async"))
    call = once_async(semel)
    with event_loop() as loop:
        loop.run(alone_async(list(range(keys)), call))
        yield lambda calls: loop.run(alone_async(keys_of(calls, keys), call))
        loop.run(semel.close())


SQLITE_REPLAY = Case(
    "sqlite-replay",
    "SQLite, one caller, replay: one look-up by primary key",
    (
        Variant("bare read", _read, 3000),
        Variant("semel", _replay, 3000, against="bare read", by=_REPLAY),
        Variant("semel, async", _replay_async, 3000, against="bare read", by=_REPLAY),
    ),
    notes=("The bare read fetches the same row with the same statement and does nothing with it.",),
)
