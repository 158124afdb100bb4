"""Consumers and outboxes over models of a broker and of a database: chosen by chance, and every mutant noticed."""

from __future__ import annotations

import pytest

from semel_lab.simulate import EVENT_SOMETIMES, EVENT_WORLDS, EventWorld, Failing, every, replay, some
from tests.effort import FULL
from tests.simulate.event_mutants import EVENT_MUTANTS, EventMutant
from tests.simulate.reaching import reached
from tests.simulate.unshrunk import search, unshrunk

BY_CHANCE = 20_000 if FULL else 150
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("world", EVENT_WORLDS, ids=lambda world: world.name)
def test_every_invariant_holds(world: EventWorld) -> None:
    explored = some([world], seed=1, first=0, count=BY_CHANCE)
    assert not explored.failing, str(explored.failing[0])


def test_with_one_fault_every_schedule_is_right() -> None:
    small = EventWorld(name="events: small", processes=1, budget=1, slow=0, transaction=True, outbox=True)
    explored = every(small, 20_000 if FULL else 600)
    assert not explored.failing, str(explored.failing[0])
    assert explored.schedules > 10


def test_what_should_happen_sometimes_does() -> None:
    found = reached(EVENT_WORLDS, EVENT_SOMETIMES, most=2_000)
    assert found >= EVENT_SOMETIMES, sorted(EVENT_SOMETIMES - found)


def test_a_world_can_be_made_again_from_what_is_printed() -> None:
    for world in EVENT_WORLDS:
        assert eval(repr(world)) == world  # noqa: S307 - that this works is the point


def test_a_schedule_replays_with_a_trace() -> None:
    replayed = replay(EVENT_WORLDS[0], [])
    assert replayed.violation is None
    assert any("says processed: ack" in line for line in replayed.trace)


def notice(mutant: EventMutant) -> Failing | None:
    """The first schedule that gives the mutant away."""
    with mutant.switch(), unshrunk():
        return search(mutant, EVENT_WORLDS, seed=2, most=40_000)


@pytest.mark.parametrize("mutant", EVENT_MUTANTS, ids=str)
def test_a_mutant_is_noticed(mutant: EventMutant) -> None:
    found = notice(mutant)
    assert found is not None, f"{mutant} was not noticed"
    assert found.invariant in mutant.breaks, str(found)
