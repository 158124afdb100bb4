"""What chance reaches: no more schedules than it takes to reach all that should happen sometimes.

What always holds: the schedules are the first ones of the seed, so `most` of them reach whatever is reached here.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from semel_lab.simulate import some
from semel_lab.simulate.explore import AnyWorld
from tests.effort import FULL

_AT_A_TIME: Final = 25


def reached(worlds: tuple[AnyWorld, ...], wanted: AbstractSet[str], *, most: int) -> set[str]:
    """All that happened, until what is wanted did or `most` schedules have run; the full effort runs all of them."""
    at_a_time = most if FULL else _AT_A_TIME
    seen: set[str] = set()
    for first in range(0, most, at_a_time):
        explored = some(worlds, seed=0, first=first, count=min(at_a_time, most - first))
        seen |= explored.seen.keys()
        if explored.failing or seen >= wanted:
            break
    return seen
