"""The flows of erasing before caches: what they have not confirmed is noted, and repeated by the sweep."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from semel import Cache, Key, Semel
from semel.core.flow import run
from semel.core.operations import (
    Complete,
    Confirm,
    Erase,
    Granted,
    Invalidate,
    Operation,
    Pending,
    PendingInvalidations,
)
from semel.engine.admin import erase, repeat_invalidations
from semel.errors import StoreUnavailable
from semel.stores.memory import MemoryStore, Table
from tests.unit.core.records import claim


class Behind:
    """A table behind caches that are away, or may still hold it, for as long as a set names the digest."""

    def __init__(self) -> None:
        self.table = Table()
        self.away: set[bytes] = set()
        self.held: set[bytes] = set()
        self.asked: list[Operation] = []

    def perform(self, operation: Operation) -> Any:
        self.asked.append(operation)
        if isinstance(operation, Invalidate) and operation.digest in self.away:
            message = "The cache is away."
            raise StoreUnavailable(message)
        if isinstance(operation, Invalidate) and operation.digest in self.held:
            message = "A process may hold it."
            raise StoreUnavailable(message, conflict=True)
        return self.table.apply(operation, 1)

    def perform_erase(self, operation: Operation) -> Any:
        """As the lane in front of the engine's sends it."""
        assert isinstance(operation, Erase)
        return self.perform(replace(operation, invalidates=True))

    def erased(self, value: str) -> Key:
        granted = self.table.apply(claim(value, value.encode()), 1)
        assert isinstance(granted, Granted)
        self.table.apply(Complete(granted.lease, b"outcome"), 1)
        run(erase(granted.record.key, reason="asked", by=""), self.perform_erase)
        return granted.record.key

    def pending(self) -> int:
        answer = self.table.apply(Pending(1000), 1)
        assert isinstance(answer, PendingInvalidations)
        return len(answer.invalidations)

    def repeat(self) -> int:
        return run(repeat_invalidations(), self.perform)


class Recording(MemoryStore):
    """A store in memory that notes what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Operation] = []

    def apply(self, operations: Any) -> Any:
        self.asked += operations
        return super().apply(operations)


@pytest.mark.parametrize(("cache", "noted"), [(None, False), (Cache(local=10), True)], ids=["alone", "behind a cache"])
def test_erasing_is_noted_where_a_cache_may_hold_the_record(cache: Cache | None, *, noted: bool) -> None:
    store = Recording()
    with Semel(store, cache=cache) as engine:
        engine.run("k", lambda: "value", operation="charge", fingerprint=None)
        engine.erase("k", operation="charge", reason="asked")
    assert [operation.invalidates for operation in store.asked if isinstance(operation, Erase)] == [noted]


def test_what_caches_have_not_confirmed_is_repeated() -> None:
    behind = Behind()
    behind.erased("a")
    behind.erased("b")
    assert behind.repeat() == 2
    assert behind.pending() == 0


def test_a_cache_that_is_away_keeps_its_note_and_nobody_elses() -> None:
    behind = Behind()
    behind.away = {behind.erased("a").digest}
    behind.erased("b")
    assert behind.repeat() == 1
    assert behind.pending() == 1
    behind.away = set()
    assert behind.repeat() == 1


def test_many_that_cannot_be_confirmed_yet_hold_up_none_of_the_others() -> None:
    behind = Behind()
    behind.held = {behind.erased(f"k{number}").digest for number in range(150)}
    digests = sorted(behind.held)
    behind.held -= set(digests[120:])
    assert behind.repeat() == 30
    assert behind.pending() == 120


def test_a_cache_that_is_away_for_many_in_a_row_is_left_to_the_next_sweep() -> None:
    behind = Behind()
    behind.away = {behind.erased(f"k{number}").digest for number in range(150)}
    assert behind.repeat() == 0
    assert sum(isinstance(operation, Invalidate) for operation in behind.asked) == 100


def test_a_note_is_removed_only_after_the_caches_have_confirmed() -> None:
    behind = Behind()
    behind.erased("a")
    behind.repeat()
    kinds = [type(operation) for operation in behind.asked if isinstance(operation, (Invalidate, Confirm))]
    assert kinds == [Invalidate, Confirm]


def test_it_goes_on_until_no_note_is_left() -> None:
    behind = Behind()
    for number in range(150):
        behind.erased(f"k{number}")
    assert behind.repeat() == 150


def test_a_store_without_caches_is_not_asked() -> None:
    store = Recording()
    with Semel(store) as engine:
        engine.run("k", lambda: "value", operation="charge", fingerprint=None)
        engine.erase("k", operation="charge", reason="asked")
        assert engine.sweep().invalidated == 0
    assert not {Pending, Invalidate, Confirm} & set(map(type, store.asked))
