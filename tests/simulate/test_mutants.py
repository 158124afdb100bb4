"""Every mutant is noticed: a mistake that the simulator overlooks fails the build."""

from __future__ import annotations

import pytest

from semel_lab.simulate import Failing, every, some
from tests.simulate.guard_mutants import GUARD_MUTANTS
from tests.simulate.history_mutants import HISTORY_MUTANTS
from tests.simulate.mutants import MUTANTS, Mutant
from tests.simulate.reopened_mutants import REOPENED_MUTANTS
from tests.simulate.search_mutants import SEARCH_MUTANTS
from tests.simulate.stated_mutants import STATED_MUTANTS
from tests.simulate.unshrunk import unshrunk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EVERY_MUTANT = [*MUTANTS, *GUARD_MUTANTS, *STATED_MUTANTS, *REOPENED_MUTANTS, *HISTORY_MUTANTS, *SEARCH_MUTANTS]
BY_CHANCE, TO_THE_END = 1_000, 30_000


def notice(mutant: Mutant) -> Failing | None:
    """The first schedule that gives the mutant away: by chance, which is quick, or else by looking at every one."""
    with mutant.switch(), unshrunk():
        found = some(mutant.worlds, seed=0, first=0, count=BY_CHANCE).failing
        for world in mutant.worlds:
            found = found or every(world, TO_THE_END).failing
    return found[0] if found else None


def test_there_are_mutants_enough() -> None:
    assert len(EVERY_MUTANT) >= 40


def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in EVERY_MUTANT}) == len(EVERY_MUTANT)


@pytest.mark.parametrize("mutant", EVERY_MUTANT, ids=str)
def test_a_mutant_is_noticed(mutant: Mutant) -> None:
    failing = notice(mutant)
    assert failing is not None, "nobody noticed"
    assert failing.invariant in mutant.breaks, str(failing)
