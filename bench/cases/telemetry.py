"""What metrics cost: PostgreSQL, 64 callers in one process, with and without an observer that counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.callers import event_loop, in_tasks, in_threads, keys_of
from bench.cases.memory import Prepare
from bench.cases.postgresql_many import CALLERS, FIRST, REPLAY
from bench.cases.served_many import unused
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import database, server
from bench.workload import once, once_async
from semel import AsyncSemel, Observer, Semel

_KEYS = 2_000
_AT_MOST = Comparison("slower", 1.03)


def _observer(*, counts: bool) -> Observer | None:
    if not counts:
        return None
    from semel.telemetry.prometheus import PrometheusObserver  # of an extra that not everybody has who measures

    return PrometheusObserver()


def _name(kind: str, *, counts: bool) -> str:
    return f"telemetry-{kind}-{'counted' if counts else 'bare'}"


def _first_in_threads(*, counts: bool) -> Prepare:
    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = unused()
        with (
            database(folder, _name("threads", counts=counts)) as url,
            Semel(url, observer=_observer(counts=counts)) as semel,
        ):
            call = once(semel)
            yield lambda calls: in_threads(CALLERS, numbers.take(calls), call)

    return prepare


def _first(*, counts: bool) -> Prepare:
    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = unused()
        with database(folder, _name("tasks", counts=counts)) as url, event_loop() as loop:
            semel = AsyncSemel(url, observer=_observer(counts=counts))
            call = once_async(semel)
            yield lambda calls: loop.run(in_tasks(CALLERS, numbers.take(calls), call))
            loop.run(semel.close())

    return prepare


def _replay(*, counts: bool) -> Prepare:
    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        keys = effort.keys(_KEYS)
        with database(folder, _name("replay", counts=counts)) as url, event_loop() as loop:
            semel = AsyncSemel(url, observer=_observer(counts=counts))
            call = once_async(semel)
            loop.run(in_tasks(CALLERS, list(range(keys)), call))
            yield lambda calls: loop.run(in_tasks(CALLERS, keys_of(calls, keys), call))
            loop.run(semel.close())

    return prepare


TELEMETRY = Case(
    "telemetry",
    "PostgreSQL, 64 callers in one process: what metrics cost",
    (
        Variant("tasks, first run", _first(counts=False), FIRST),
        Variant("tasks, first run, counted", _first(counts=True), FIRST, "tasks, first run", _AT_MOST),
        Variant("tasks, replay", _replay(counts=False), REPLAY),
        Variant("tasks, replay, counted", _replay(counts=True), REPLAY, "tasks, replay", _AT_MOST),
        Variant("threads, first run", _first_in_threads(counts=False), FIRST),
        Variant("threads, first run, counted", _first_in_threads(counts=True), FIRST, "threads, first run", _AT_MOST),
    ),
    notes=("Counted: PrometheusObserver, two histograms and a counter for each call.",),
    needs="prometheus-client",
    site=server,
)
