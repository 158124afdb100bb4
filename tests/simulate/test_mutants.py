"""Every mutant is noticed: a mistake that the simulator overlooks fails the build."""

from __future__ import annotations

import pytest

from semel.testing.simulate import Failing, every
from tests.simulate.mutants import MUTANTS, Mutant

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ENOUGH = 40_000


def test_there_are_mutants_enough() -> None:
    assert len(MUTANTS) >= 15


def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_is_noticed(mutant: Mutant) -> None:
    found = _first_failing(mutant)
    assert found is not None, "nobody noticed"
    # Most mistakes break several promises. A call that merely falls over does not count, unless that is the mistake.
    assert found.invariant != "broke" or "broke" in mutant.breaks


def _first_failing(mutant: Mutant) -> Failing | None:
    with mutant.switch():
        for world in mutant.worlds:
            tally = every(world, ENOUGH)
            if tally.failing:
                return tally.failing[0]
    return None
