"""Batches on the rules of a store: crashes, take-overs and lost replies chosen by chance, and every mutant noticed."""

from __future__ import annotations

import pytest

from semel_lab.simulate import BATCH_SOMETIMES, BATCH_WORLDS, BatchWorld, Failing, every, replay, some
from tests.effort import FULL
from tests.simulate.batch_mutants import BATCH_MUTANTS, BatchMutant
from tests.simulate.reaching import reached
from tests.simulate.unshrunk import search, unshrunk

BY_CHANCE = 20_000 if FULL else 40
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 600)]


@pytest.mark.parametrize("world", BATCH_WORLDS, ids=lambda world: world.name)
def test_every_invariant_holds(world: BatchWorld) -> None:
    explored = some([world], seed=1, first=0, count=BY_CHANCE)
    assert not explored.failing, str(explored.failing[0])


def test_with_one_fault_every_schedule_is_right() -> None:
    small = BatchWorld(name="batches: small", items=2, page=1, workers=1, budget=1, slow=0)
    explored = every(small, 20_000 if FULL else 60)
    assert not explored.failing, str(explored.failing[0])
    assert explored.schedules > 10


def test_what_should_happen_sometimes_does() -> None:
    found = reached(BATCH_WORLDS, BATCH_SOMETIMES, most=150)
    assert found >= BATCH_SOMETIMES, sorted(BATCH_SOMETIMES - found)


def test_a_world_can_be_made_again_from_what_is_printed() -> None:
    for world in BATCH_WORLDS:
        assert eval(repr(world)) == world  # noqa: S307 - that this works is the point


def test_a_schedule_replays_with_a_trace() -> None:
    replayed = replay(BATCH_WORLDS[0], [])
    assert replayed.violation is None
    assert any("runs i0" in line for line in replayed.trace), replayed.trace


def notice(mutant: BatchMutant) -> Failing | None:
    """The first schedule that gives the mutant away."""
    worlds = [world for world in BATCH_WORLDS if mutant.world in ("", world.name)]
    with mutant.switch(), unshrunk():
        return search(mutant, worlds, seed=2, most=20_000)


@pytest.mark.parametrize("mutant", BATCH_MUTANTS, ids=str)
def test_a_mutant_is_noticed(mutant: BatchMutant) -> None:
    found = notice(mutant)
    assert found is not None, f"{mutant} was not noticed"
    assert found.invariant in mutant.breaks, str(found)
