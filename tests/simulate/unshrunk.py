"""Mutants are noticed by the first schedule that breaks an invariant: to shrink it takes longer than to find it.

What always holds: the schedule that is remembered for a mutant is one of those that the search tries. If it gives the
mutant away, so does the search, by that schedule or by one before it; if it no longer does, the search goes through
all of them. A number that is wrong costs time, and never hides a mutant.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

from semel_lab.simulate import Failing, explore, some
from semel_lab.simulate.explore import AnyWorld
from tests.effort import FULL

_NOTICED_BY: Final = {
    "a-page-that-is-on-its-way-does-not-look-whether-the-batch-still-runs": (1434,),
    "a-batch-ends-without-a-last-look-at-its-failures": (152,),
    "a-row-follows-although-its-record-was-lost": (166,),
    "a-late-failure-replaces-a-success": (166,),
    "nobody-looks-whether-the-batch-still-runs": (94,),
    "what-is-in-doubt-under-hold-counts-as-completed": (35,),
    "a-page-that-somebody-has-begun-is-run-as-a-whole": (21,),
    "what-the-hook-could-not-tell-is-not-counted": (280,),
    "no-write-lies-between-the-floor-and-the-snapshot": (502,),
    "whoever-was-overtaken-reads-on": (547,),
    "what-is-not-published-is-deleted-with-the-rest": (283,),
    "a-window-has-no-end": (308,),
    "whoever-was-overtaken-reads-nothing-and-takes-it-for-published": (172,),
    "the-cursor-passes-what-is-parked-in-a-write-of-its-own": (63,),
    "a-failure-is-counted-though-an-open-transaction-holds-its-key": (920, 695),
    "a-failure-inside-a-transaction-is-not-written-down": (1077, 311),
}
"""By which schedules the search noticed a mutant, where it had to try many before: on each server that has it."""


def unshrunk() -> AbstractContextManager[Any]:
    """Failing schedules are as they were found."""
    return patch.object(explore, "_MOST_SHRINKING", 0)


def search(mutant: object, worlds: Sequence[AnyWorld], *, seed: int, most: int) -> Failing | None:
    """A schedule that breaks an invariant, of the first `most` by chance; the full effort begins at the first."""
    remembered = [] if FULL else [(number, 1) for number in _NOTICED_BY.get(str(mutant), ()) if number < most]
    for first, count in (*remembered, (0, most)):
        found = some(worlds, seed, first, count).failing
        if found:
            return found[0]
    return None
