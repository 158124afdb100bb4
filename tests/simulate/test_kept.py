"""Schedules that once broke an invariant, kept for good: each is what the shrinker left of a real mistake.

A change of the engine may give their choices another meaning; then they are schedules like any other.
"""

from __future__ import annotations

import pytest

from semel_lab.simulate import SMALL, World, replay
from tests.simulate.mutants import BY_NAME, RIVALS

KEPT = [
    ("a promoted waiter that came too late kept its turn for ever", RIVALS, [0, 2, 0, 1, 1, 1, 0, 0, 0, 0, 1]),
    (
        "a handler whose keeper stood still was not told",
        BY_NAME["long handler"],
        [0] * 6 + [2, 0, 0, 0, 0, 1],
    ),
    ("a lease was counted from when its claim was sent again", BY_NAME["rerun"], [4]),
    ("a retryable failure made an earlier doubt expire", BY_NAME["handler fails"], [0] * 7 + [2] + [0] * 17 + [2]),
    ("a claim lost on its way blocked its own caller", BY_NAME["rerun"], [4, 1, 2]),
]


@pytest.mark.parametrize(("what", "world", "choices"), KEPT, ids=[what.replace(" ", "-") for what, _, _ in KEPT])
def test_it_does_not_happen_again(what: str, world: World, choices: list[int]) -> None:
    replayed = replay(world, choices)
    assert replayed.violation is None, "\n".join([what, *replayed.trace])


@pytest.mark.parametrize("world", SMALL, ids=[world.name.replace(" ", "-") for world in SMALL])
def test_the_ordinary_schedule_ends_well(world: World) -> None:
    assert replay(world, []).violation is None
