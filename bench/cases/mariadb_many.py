"""MariaDB, 64 callers in one process: semel's lanes against one statement per call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.by_hand_mariadb import AsyncHands, Hands
from bench.callers import Numbers, event_loop, in_tasks, in_threads, keys_of
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.mariadb_server import database, server
from bench.workload import once, once_async
from semel import AsyncSemel, Semel

CALLERS = 64
KEYS = 1_000
FIRST = 1_280
REPLAY = 3_200
_TARGET = Comparison("faster", 5.0)


@contextmanager
def _by_hand(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = Numbers()
    numbers.take(1)  # the tables were filled with the first
    with database(folder, "many-by-hand") as url:
        hands = Hands(url, CALLERS)
        yield lambda calls: in_threads(CALLERS, numbers.take(calls), hands.first_run)
        hands.close()


@contextmanager
def _by_hand_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = Numbers()
    numbers.take(1)  # the tables were filled with the first
    with database(folder, "many-by-hand-async") as url, event_loop() as loop:
        hands = loop.run(AsyncHands.open(url, CALLERS))
        yield lambda calls: loop.run(in_tasks(CALLERS, numbers.take(calls), hands.first_run))
        loop.run(hands.close())


@contextmanager
def _first(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = Numbers()
    numbers.take(1)  # the tables were filled with the first
    with database(folder, "many-semel") as url, Semel(url) as semel:
        call = once(semel)
        yield lambda calls: in_threads(CALLERS, numbers.take(calls), call)


@contextmanager
def _first_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = Numbers()
    numbers.take(1)  # the tables were filled with the first
    with database(folder, "many-semel-async") as url, event_loop() as loop:
        semel = AsyncSemel(url)
        call = once_async(semel)
        yield lambda calls: loop.run(in_tasks(CALLERS, numbers.take(calls), call))
        loop.run(semel.close())


@contextmanager
def _replay(folder: Path, effort: Effort) -> Iterator[Measure]:
    keys = effort.keys(KEYS)
    with database(folder, "many-replay") as url, Semel(url) as semel:
        call = once(semel)
        in_threads(CALLERS, list(range(keys)), call)
        yield lambda calls: in_threads(CALLERS, keys_of(calls, keys), call)


@contextmanager
def _replay_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    keys = effort.keys(KEYS)
    with database(folder, "many-replay-async") as url, event_loop() as loop:
        semel = AsyncSemel(url)
        call = once_async(semel)
        loop.run(in_tasks(CALLERS, list(range(keys)), call))
        yield lambda calls: loop.run(in_tasks(CALLERS, keys_of(calls, keys), call))
        loop.run(semel.close())


MARIADB_64 = Case(
    "mariadb-64",
    "MariaDB, 64 callers in one process: a durable claim and a durable completion",
    (
        Variant("by hand, threads, first run", _by_hand, 320),
        Variant("semel, threads, first run", _first, FIRST, against="by hand, threads, first run", by=_TARGET),
        Variant("by hand, tasks, first run", _by_hand_async, 320),
        Variant("semel, tasks, first run", _first_async, FIRST, against="by hand, tasks, first run", by=_TARGET),
        Variant("semel, threads, replay", _replay, REPLAY),
        Variant("semel, tasks, replay", _replay_async, REPLAY),
    ),
    notes=(
        "By hand: 64 connections, a plain insert and a plain update, each committed by itself.",
        "Threads through PyMySQL, tasks through asyncmy.",
    ),
    site=server,
)
