"""MariaDB, 64 callers in one process: semel's lanes against one statement per call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.by_hand_mariadb import AsyncHands, Hands
from bench.callers import event_loop, in_tasks, in_threads
from bench.cases.served_many import ServedMany, unused
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.mariadb_server import database, server

CALLERS = 64
FIRST = 1_280
REPLAY = 3_200
_TARGET = Comparison("faster", 5.0)
_SEMEL = ServedMany(database, CALLERS, keys=1_000)


@contextmanager
def _by_hand(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = unused()
    with database(folder, "many-by-hand") as url:
        hands = Hands(url, CALLERS)
        yield lambda calls: in_threads(CALLERS, numbers.take(calls), hands.first_run)
        hands.close()


@contextmanager
def _by_hand_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = unused()
    with database(folder, "many-by-hand-async") as url, event_loop() as loop:
        hands = loop.run(AsyncHands.open(url, CALLERS))
        yield lambda calls: loop.run(in_tasks(CALLERS, numbers.take(calls), hands.first_run))
        loop.run(hands.close())


MARIADB_64 = Case(
    "mariadb-64",
    "MariaDB, 64 callers in one process: a durable claim and a durable completion",
    (
        Variant("by hand, threads, first run", _by_hand, 320),
        Variant("semel, threads, first run", _SEMEL.first, FIRST, against="by hand, threads, first run", by=_TARGET),
        Variant("by hand, tasks, first run", _by_hand_async, 320),
        Variant("semel, tasks, first run", _SEMEL.first_async, FIRST, against="by hand, tasks, first run", by=_TARGET),
        Variant("semel, threads, replay", _SEMEL.replay, REPLAY),
        Variant("semel, tasks, replay", _SEMEL.replay_async, REPLAY),
    ),
    notes=(
        "By hand: 64 connections, a plain insert and a plain update, each committed by itself.",
        "Threads through PyMySQL, tasks through asyncmy.",
    ),
    site=server,
)
