"""Callers with transactions of their own, over the models of the servers: every schedule, and every mutant noticed."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from semel_lab.simulate import WITHIN_SOMETIMES, WITHIN_WORLDS, Failing, WithinWorld, every, replay, some
from semel_lab.simulate.within import WithinSimulation
from tests.effort import FULL
from tests.simulate.search_mutants import SEARCH_ROW_MUTANTS
from tests.simulate.unshrunk import search, unshrunk
from tests.simulate.within_mutants import WITHIN_MUTANTS, WithinMutant

BY_CHANCE = 2_000
WHOLE = 5_000 if FULL else 1_000
"""How many schedules of a world are explored at most without cutting short."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_what_should_happen_sometimes_is_written_once() -> None:
    reached = some(WITHIN_WORLDS, seed=0, first=0, count=3_000).seen.keys()
    seldom = {"FailedBefore", "LeaseLost", "StoreUnavailable", "late claim left behind"}
    assert reached - WITHIN_SOMETIMES <= {f"within: {name}" for name in seldom}


def test_a_claim_that_came_too_late_and_cannot_be_given_back_is_in_doubt() -> None:
    slow = next(world for world in WITHIN_WORLDS if world.name == "mysql: a slow lane")
    explored = every(slow)
    assert not explored.failing
    assert explored.seen["within: late claim left behind"] > 0


@pytest.mark.parametrize("world", WITHIN_WORLDS, ids=lambda world: world.name)
def test_nothing_is_lost_by_cutting_short(world: WithinWorld) -> None:
    crowded = len(world.callers) > 2
    smaller = replace(world, budget=0 if crowded else 1, slow=0)
    cut = every(smaller)
    with patch.object(WithinSimulation, "_know", lambda self: None):
        whole = every(smaller, WHOLE)
    assert not whole.failing
    assert whole.schedules >= cut.schedules
    assert whole.seen.keys() <= cut.seen.keys()


def test_a_world_can_be_made_again_from_what_is_printed() -> None:
    for world in WITHIN_WORLDS:
        assert eval(repr(world)) == world  # noqa: S307 - that this works is the point


def test_a_schedule_replays_with_a_trace() -> None:
    replayed = replay(WITHIN_WORLDS[0], [])
    assert replayed.violation is None
    assert any("is told: replay" in line for line in replayed.trace)


def notice(mutant: WithinMutant, server: str) -> Failing | None:
    """The first schedule that gives the mutant away: by chance, which is quick, or else by looking at every one."""
    worlds = [world for world in WITHIN_WORLDS if world.server == server]
    if mutant in SEARCH_ROW_MUTANTS:
        worlds = [world for world in worlds if world.searched]
    with mutant.switch(), unshrunk():
        found = search(mutant, worlds, seed=0, most=BY_CHANCE)
        for world in worlds:
            found = found or next(iter(every(world).failing), None)
    return found


@pytest.mark.parametrize(
    ("mutant", "server"),
    [
        pytest.param(mutant, server, id=f"{mutant}-{server}")
        for mutant in (*WITHIN_MUTANTS, *SEARCH_ROW_MUTANTS)
        for server in mutant.servers
    ],
)
def test_a_mutant_is_noticed(mutant: WithinMutant, server: str) -> None:
    failing = notice(mutant, server)
    assert failing is not None, "nobody noticed"
    assert failing.invariant in mutant.breaks, str(failing)
