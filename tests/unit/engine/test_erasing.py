"""An engine on a store with caches in front of it: what they have not confirmed is repeated by the sweep."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from semel import AsyncSemel, Semel
from semel.core.operations import Awaiting, Confirm, Erase, Invalidate, Operation, Pending
from semel.core.store import Answers
from semel.errors import StoreUnavailable
from semel.stores.memory import MemoryStore


class Tiered(MemoryStore):
    """Records in memory behind caches that are away for as long as `away` names their digests."""

    tiers = True

    def __init__(self) -> None:
        super().__init__()
        self.away: set[bytes] = set()
        self.asked: list[Operation] = []

    def apply(self, operations: Sequence[Operation]) -> Answers:
        self.asked += operations
        if isinstance(operations[0], Invalidate) and operations[0].digest in self.away:
            return [StoreUnavailable("The cache is away.")]
        return super().apply(operations)

    def pending(self) -> int:
        (answer,) = super().apply([Pending(10)])
        assert isinstance(answer, Awaiting)
        return len(answer.invalidations)


def erased(store: MemoryStore, *keys: str) -> Semel:
    engine = Semel(store)
    for key in keys:
        engine.run(key, lambda: "value", operation="charge")
        engine.erase(key, operation="charge", reason="asked")
    return engine


def digest(engine: Semel, key: str) -> bytes:
    record = engine.read(key, operation="charge")
    assert record is not None
    return record.key.digest


def test_erasing_before_caches_is_noted_for_them() -> None:
    store = Tiered()
    erased(store, "k")
    assert [operation.tiers for operation in store.asked if isinstance(operation, Erase)] == [True]
    assert store.pending() == 1


def test_a_sweep_repeats_what_caches_have_not_confirmed() -> None:
    store = Tiered()
    engine = erased(store, "a", "b")
    assert engine.sweep().invalidated == 2
    assert store.pending() == 0


@pytest.mark.anyio
async def test_a_sweep_of_the_other_colour_repeats_it_too() -> None:
    store = Tiered()
    erased(store, "a")
    async with AsyncSemel(store) as engine:
        assert (await engine.sweep()).invalidated == 1


def test_a_cache_that_is_away_keeps_its_note_and_nobody_elses() -> None:
    store = Tiered()
    engine = erased(store, "a", "b")
    store.away = {digest(engine, "a")}
    assert engine.sweep().invalidated == 1
    assert store.pending() == 1
    store.away = set()
    assert engine.sweep().invalidated == 1


def test_a_sweep_confirms_only_after_the_caches() -> None:
    store = Tiered()
    erased(store, "a").sweep()
    kinds = [type(operation) for operation in store.asked if isinstance(operation, (Invalidate, Confirm))]
    assert kinds == [Invalidate, Confirm]


def test_a_sweep_goes_on_until_no_note_is_left() -> None:
    store = Tiered()
    engine = erased(store, *(f"k{number}" for number in range(150)))
    assert engine.sweep().invalidated == 150


@pytest.mark.parametrize("operation", [Pending, Invalidate, Confirm])
def test_a_store_without_caches_is_not_asked(operation: type[Operation]) -> None:
    store = Tiered()
    store.tiers = False  # as if it were a plain one
    erased(store, "a").sweep()
    assert not any(isinstance(asked, operation) for asked in store.asked)
