"""PostgreSQL, one caller: what semel adds to the bare statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.by_hand_postgresql import AsyncHand, Hand
from bench.callers import Numbers, alone, alone_async, event_loop, keys_of
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import database, server
from bench.workload import once, once_async
from semel import AsyncSemel, Semel

KEYS = 500
_FIRST = Comparison("slower", 1.3)
_REPLAY = Comparison("slower", 1.7)


@contextmanager
def _by_hand(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = Numbers()
    with database(folder, "one-by-hand") as url:
        hand = Hand(url)
        yield lambda calls: alone(numbers.take(calls), hand.first_run)
        hand.close()


@contextmanager
def _by_hand_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = Numbers()
    with database(folder, "one-by-hand-async") as url, event_loop() as loop:
        hand = loop.run(AsyncHand.open(url))
        yield lambda calls: loop.run(alone_async(numbers.take(calls), hand.first_run))
        loop.run(hand.close())


@contextmanager
def _semel(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = Numbers()
    numbers.take(1)  # the template was filled with the first
    with database(folder, "one-semel") as url, Semel(url) as semel:
        call = once(semel)
        yield lambda calls: alone(numbers.take(calls), call)


@contextmanager
def _semel_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = Numbers()
    numbers.take(1)  # the template was filled with the first
    with database(folder, "one-semel-async") as url, event_loop() as loop:
        semel = AsyncSemel(url)
        call = once_async(semel)
        yield lambda calls: loop.run(alone_async(numbers.take(calls), call))
        loop.run(semel.close())


@contextmanager
def _read(folder: Path, effort: Effort) -> Iterator[Measure]:
    keys = effort.keys(KEYS)
    with database(folder, "one-read") as url:
        hand = Hand(url)
        alone(list(range(keys)), hand.first_run)
        yield lambda calls: alone(keys_of(calls, keys), hand.read)
        hand.close()


@contextmanager
def _read_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    keys = effort.keys(KEYS)
    with database(folder, "one-read-async") as url, event_loop() as loop:
        hand = loop.run(AsyncHand.open(url))
        loop.run(alone_async(list(range(keys)), hand.first_run))
        yield lambda calls: loop.run(alone_async(keys_of(calls, keys), hand.read))
        loop.run(hand.close())


@contextmanager
def _replay(folder: Path, effort: Effort) -> Iterator[Measure]:
    keys = effort.keys(KEYS)
    with database(folder, "one-replay") as url, Semel(url) as semel:
        call = once(semel)
        alone(list(range(keys)), call)
        yield lambda calls: alone(keys_of(calls, keys), call)


@contextmanager
def _replay_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    keys = effort.keys(KEYS)
    with database(folder, "one-replay-async") as url, event_loop() as loop:
        semel = AsyncSemel(url)
        call = once_async(semel)
        loop.run(alone_async(list(range(keys)), call))
        yield lambda calls: loop.run(alone_async(keys_of(calls, keys), call))
        loop.run(semel.close())


POSTGRESQL_ONE = Case(
    "postgresql-one",
    "PostgreSQL, one caller: two statements and two commits for a first run, one look-up for a replay",
    (
        Variant("by hand, first run", _by_hand, 100),
        Variant("semel, first run", _semel, 100, against="by hand, first run", by=_FIRST),
        Variant("by hand, async, first run", _by_hand_async, 100),
        Variant("semel, async, first run", _semel_async, 100, against="by hand, async, first run", by=_FIRST),
        Variant("bare read", _read, 1000),
        Variant("semel, replay", _replay, 1000, against="bare read", by=_REPLAY),
        Variant("bare read, async", _read_async, 1000),
        Variant("semel, async, replay", _replay_async, 1000, against="bare read, async", by=_REPLAY),
    ),
    notes=(
        "By hand: a plain insert and a plain update, prepared, in autocommit, through psycopg; async through asyncpg.",
        "The bare read fetches the whole row by its primary key and does nothing with it.",
    ),
    site=server,
)
