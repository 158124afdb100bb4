"""Redis and DynamoDB in the simulator: what they forget is found and explained, and every mistake is noticed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from semel_lab.simulate import SERVER_SOMETIMES, SERVER_WORLDS, SOMETIMES, World, every, replay, some
from tests.effort import FULL
from tests.simulate.mutants import Mutant
from tests.simulate.server_mutants import SERVER_MUTANTS
from tests.simulate.test_mutants import notice

FORGETTING = [world for world in SERVER_WORLDS if {"evict", "forget"} & set(world.faults)]
FORGOTTEN = "effect repeated, its record was forgotten"


@pytest.mark.parametrize("world", SERVER_WORLDS, ids=lambda world: world.name)
def test_the_ordinary_schedule_ends_well(world: World) -> None:
    assert replay(world, []).violation is None


def test_what_should_happen_sometimes_is_written_once() -> None:
    reached = some(SERVER_WORLDS, seed=0, first=0, count=2_000).seen.keys()
    assert reached - SERVER_SOMETIMES - SOMETIMES <= {"refused: Checkpoint"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("world", FORGETTING, ids=lambda world: world.name)
def test_every_second_effect_on_a_redis_that_forgets_is_explained(world: World) -> None:
    tally = every(world if FULL else replace(world, budget=1))
    assert tally.complete, tally.failing
    assert tally.seen[FORGOTTEN]


@pytest.mark.slow
@pytest.mark.parametrize("in_doubt", ["hold", "rerun"])
def test_a_redis_that_forgets_nothing_does_nothing_twice(in_doubt: str) -> None:
    world = World(name="calm redis", store="redis", askers=FORGETTING[0].askers, slow=2, in_doubt=in_doubt)  # type: ignore[arg-type]
    tally = every(world)
    assert tally.complete
    assert not {"effect repeated", FORGOTTEN} & tally.seen.keys()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("word", ["twice", "lag", "expire"])
def test_what_dynamodb_does_of_itself_repeats_nothing(word: str) -> None:
    worlds = [world for world in SERVER_WORLDS if word in world.faults]
    for world in worlds:
        slow = 2 if FULL else 0 if len(world.askers) > 2 else 1
        tally = every(replace(world, faults=(word,), budget=1, slow=slow))  # type: ignore[arg-type]
        assert tally.complete, tally.failing
        assert "effect repeated" not in tally.seen


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", SERVER_MUTANTS, ids=str)
def test_a_mutant_is_noticed(mutant: Mutant) -> None:
    failing = notice(mutant)
    assert failing is not None, "nobody noticed"
    assert failing.invariant in mutant.breaks, str(failing)
