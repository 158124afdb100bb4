"""The memory store: what the engine itself costs per call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.callers import alone, alone_async, event_loop, keys_of
from bench.harness import Case, Effort, Measure, Variant
from bench.workload import AMOUNT, TENANT, charge, charge_async, once, once_async, order
from semel import AsyncSemel, Semel

FEW = 200
Prepare = Callable[[Path, Effort], AbstractContextManager[Measure]]


@contextmanager
def _bare(folder: Path, effort: Effort) -> Iterator[Measure]:
    yield lambda calls: alone(list(range(calls)), lambda number: charge(TENANT, order(number), AMOUNT))


@contextmanager
def _bare_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    with event_loop() as loop:
        yield lambda calls: loop.run(
            alone_async(list(range(calls)), lambda number: charge_async(TENANT, order(number), AMOUNT))
        )


@contextmanager
def first(folder: Path, effort: Effort) -> Iterator[Measure]:
    """Every call with a new key, on a new store."""

    def measure(calls: int) -> float:
        with Semel("memory://") as semel:
            call = once(semel)
            call(-1)  # opens the store, starts the keeper
            return alone(list(range(calls)), call)

    yield measure


@contextmanager
def first_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    """The same, awaited."""

    async def measure(calls: int) -> float:
        async with AsyncSemel("memory://") as semel:
            call = once_async(semel)
            await call(-1)
            return await alone_async(list(range(calls)), call)

    with event_loop() as loop:
        yield lambda calls: loop.run(measure(calls))


def replay(usual: int) -> Prepare:
    """Every call with a key that is completed, of so many."""

    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        keys = effort.keys(usual)
        with Semel("memory://") as semel:
            call = once(semel)
            alone(list(range(keys)), call)
            yield lambda calls: alone(keys_of(calls, keys), call)

    return prepare


def replay_async(usual: int) -> Prepare:
    """The same, awaited."""

    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        keys, semel = effort.keys(usual), AsyncSemel("memory://")
        call = once_async(semel)
        with event_loop() as loop:
            loop.run(alone_async(list(range(keys)), call))
            yield lambda calls: loop.run(alone_async(keys_of(calls, keys), call))
            loop.run(semel.close())

    return prepare


ENGINE = Case(
    "engine",
    "The engine alone: one caller, memory store, per call",
    (
        Variant("bare function", _bare, 2000),
        Variant("semel, first run", first, 2000, against="bare function"),
        Variant("semel, replay", replay(FEW), 2000, against="bare function"),
        Variant("bare coroutine", _bare_async, 2000),
        Variant("semel, async, first run", first_async, 2000, against="bare coroutine"),
        Variant("semel, async, replay", replay_async(FEW), 2000, against="bare coroutine"),
    ),
    notes=("The handler returns a small dictionary; key, scope and fingerprint are taken from three arguments.",),
)
