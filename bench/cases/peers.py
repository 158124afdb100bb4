"""A peer beside semel: idemkit's decorator on idemkit's memory backend, asked for the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.callers import alone, alone_async, event_loop, keys_of
from bench.cases.memory import FEW, Prepare, first, first_async, replay, replay_async
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.machine import version_of
from bench.workload import AMOUNT, TENANT, charge, charge_async, order

MANY = 5_000
_FASTER = Comparison("faster")


def decorated(backend: Any, *, blocking: bool) -> Callable[..., Any]:
    """`charge` under idemkit's decorator, asked for the same: scope, key, and a refusal of other arguments."""
    import idemkit

    config = idemkit.MethodConfig(
        key_fields=["order_id"],
        scope=lambda arguments: arguments["tenant"],
        validation_fingerprint=lambda arguments: str(arguments["amount"]).encode(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        decorator = (idemkit.idempotent_sync if blocking else idemkit.idempotent)(backend=backend, config=config)
        call: Callable[..., Any] = decorator(charge if blocking else charge_async)
    return lambda number: call(TENANT, order(number), AMOUNT)


def _in_memory(*, blocking: bool) -> Callable[..., Any]:
    import idemkit

    return decorated(idemkit.InMemoryBackend(), blocking=blocking)


@contextmanager
def _peer_first(folder: Path, effort: Effort) -> Iterator[Measure]:
    def measure(calls: int) -> float:
        call = _in_memory(blocking=True)
        call(-1)
        return alone(list(range(calls)), call)

    yield measure


@contextmanager
def _peer_first_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    async def measure(calls: int) -> float:
        call = _in_memory(blocking=False)
        await call(-1)
        return await alone_async(list(range(calls)), call)

    with event_loop() as loop:
        yield lambda calls: loop.run(measure(calls))


@contextmanager
def _peer_replay(folder: Path, effort: Effort) -> Iterator[Measure]:
    call = _in_memory(blocking=True)
    alone(list(range(FEW)), call)
    yield lambda calls: alone(keys_of(calls, FEW), call)


def _peer_replay_async(usual: int) -> Prepare:
    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        keys, call = effort.keys(usual), _in_memory(blocking=False)
        with event_loop() as loop:
            loop.run(alone_async(list(range(keys)), call))
            yield lambda calls: loop.run(alone_async(keys_of(calls, keys), call))

    return prepare


IDEMKIT = Case(
    "idemkit",
    f"Beside idemkit {version_of('idemkit') or '(not installed)'}: one caller, memory stores, per call",
    (
        Variant("idemkit, sync, first run", _peer_first, FEW),
        Variant("semel, sync, first run", first, FEW, against="idemkit, sync, first run", by=_FASTER),
        Variant("idemkit, sync, replay", _peer_replay, FEW),
        Variant("semel, sync, replay", replay(FEW), FEW, against="idemkit, sync, replay", by=_FASTER),
        Variant("idemkit, async, first run", _peer_first_async, FEW),
        Variant("semel, async, first run", first_async, FEW, against="idemkit, async, first run", by=_FASTER),
        Variant("idemkit, async, replay", _peer_replay_async(FEW), FEW),
        Variant("semel, async, replay", replay_async(FEW), FEW, against="idemkit, async, replay", by=_FASTER),
        Variant("idemkit, async, replay, 5,000 records", _peer_replay_async(MANY), FEW),
        Variant(
            "semel, async, replay, 5,000 records",
            replay_async(MANY),
            FEW,
            against="idemkit, async, replay, 5,000 records",
            by=_FASTER,
        ),
    ),
    notes=(
        f"At most {FEW} records in each store, unless said: idemkit's memory backend walks all records at every claim.",
        "idemkit's sync decorator runs its async core on a loop in another thread.",
    ),
    needs="idemkit",
)
