"""The notes of the memory store about what caches have to forget."""

from semel.core.operations import Confirm, Invalidate, Invalidation, Pending, PendingInvalidations, Recorded
from semel.stores.memory import Invalidations


def noted(*invalidations: Invalidation) -> Invalidations:
    notes = Invalidations()
    for invalidation in invalidations:
        notes.note(invalidation)
    return notes


def test_the_oldest_are_asked_for_first() -> None:
    old, new = Invalidation(b"b", "pay", 1), Invalidation(b"a", "pay", 2)
    assert noted(new, old).apply(Pending(1), 3) == PendingInvalidations((old,))


def test_a_confirmed_one_is_gone() -> None:
    notes = noted(Invalidation(b"a", "pay", 1))
    assert notes.apply(Confirm(b"a", 1), 3) == Recorded(3)
    assert notes.apply(Pending(9), 3) == PendingInvalidations(())


def test_one_that_was_noted_again_is_not_confirmed_by_the_earlier_invalidation() -> None:
    again = Invalidation(b"a", "pay", 2)
    notes = noted(Invalidation(b"a", "pay", 1), again)
    notes.apply(Confirm(b"a", 1), 3)
    assert notes.apply(Pending(9), 3) == PendingInvalidations((again,))


def test_an_invalidation_finds_no_cache_to_tell() -> None:
    assert noted().apply(Invalidate(b"a", "pay"), 3) == Recorded(3)
