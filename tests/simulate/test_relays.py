"""Relays between models of an outbox and of a broker: chosen by chance, and every mutant noticed."""

from __future__ import annotations

import pytest

from semel_lab.simulate import (
    RELAY_SOMETIMES,
    RELAY_WORLDS,
    Failing,
    RelayWorld,
    Writing,
    every,
    replay,
    some,
)
from tests.effort import FULL
from tests.simulate.reaching import reached
from tests.simulate.relay_mutants import RELAY_MUTANTS, RelayMutant
from tests.simulate.unshrunk import search, unshrunk

BY_CHANCE = 20_000 if FULL else 40
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 600)]


@pytest.mark.parametrize("world", RELAY_WORLDS, ids=lambda world: world.name)
def test_every_invariant_holds(world: RelayWorld) -> None:
    explored = some([world], seed=1, first=0, count=BY_CHANCE)
    assert not explored.failing, str(explored.failing[0])


def test_with_one_fault_every_schedule_is_right() -> None:
    small = RelayWorld(name="relays: small", writings=(Writing(), Writing(("a",))), relays=1, budget=1, slow=0)
    explored = every(small, 20_000 if FULL else 60)
    assert not explored.failing, str(explored.failing[0])
    assert explored.schedules > 10


def test_what_should_happen_sometimes_does() -> None:
    found = reached(RELAY_WORLDS, RELAY_SOMETIMES, most=500)
    assert found >= RELAY_SOMETIMES, sorted(RELAY_SOMETIMES - found)


def test_a_world_can_be_made_again_from_what_is_printed() -> None:
    for world in RELAY_WORLDS:
        assert eval(repr(world)) == world  # noqa: S307 - that this works is the point


def test_a_schedule_replays_with_a_trace() -> None:
    replayed = replay(RELAY_WORLDS[0], [])
    assert replayed.violation is None
    assert any("publishes ['e1.0', 'e3.0']" in line for line in replayed.trace), replayed.trace


def notice(mutant: RelayMutant) -> Failing | None:
    """The first schedule that gives the mutant away."""
    worlds = [world for world in RELAY_WORLDS if mutant.outbox in ("", world.outbox)]
    with mutant.switch(), unshrunk():
        return search(mutant, worlds, seed=2, most=20_000)


@pytest.mark.parametrize("mutant", RELAY_MUTANTS, ids=str)
def test_a_mutant_is_noticed(mutant: RelayMutant) -> None:
    found = notice(mutant)
    assert found is not None, f"{mutant} was not noticed"
    assert found.invariant in mutant.breaks, str(found)
