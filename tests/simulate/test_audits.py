"""The audit chain statement by statement: crashes and lost replies chosen by chance, and every mutant noticed."""

from __future__ import annotations

import pytest

from semel_lab.simulate import AUDIT_SOMETIMES, AUDIT_WORLDS, AuditWorld, Failing, every, replay, some
from tests.effort import FULL
from tests.simulate.audit_mutants import AUDIT_MUTANTS, AuditMutant
from tests.simulate.reaching import reached
from tests.simulate.unshrunk import search, unshrunk

BY_CHANCE = 20_000 if FULL else 150
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 600)]


@pytest.mark.parametrize("world", AUDIT_WORLDS, ids=lambda world: world.name)
def test_every_invariant_holds(world: AuditWorld) -> None:
    explored = some([world], seed=1, first=0, count=BY_CHANCE)
    assert not explored.failing, str(explored.failing[0])


def test_two_writers_in_every_order_fork_no_chain() -> None:
    small = AuditWorld(name="audit: small", writers=2, entries=1, seals=0, budget=1)
    explored = every(small, 50_000 if FULL else 400)
    assert not explored.failing, str(explored.failing[0])
    assert explored.schedules > 100


def test_what_should_happen_sometimes_does() -> None:
    found = reached(AUDIT_WORLDS, AUDIT_SOMETIMES, most=400)
    assert found >= AUDIT_SOMETIMES, sorted(AUDIT_SOMETIMES - found)


def test_a_world_can_be_made_again_from_what_is_printed() -> None:
    for world in AUDIT_WORLDS:
        assert eval(repr(world)) == world  # noqa: S307 - that this works is the point


def test_a_schedule_replays_with_a_trace() -> None:
    replayed = replay(AUDIT_WORLDS[0], [])
    assert replayed.violation is None
    assert any("append" in line for line in replayed.trace), replayed.trace


def notice(mutant: AuditMutant) -> Failing | None:
    """The first schedule that gives the mutant away."""
    with mutant.switch(), unshrunk():
        return search(mutant, AUDIT_WORLDS, seed=2, most=5_000)


@pytest.mark.parametrize("mutant", AUDIT_MUTANTS, ids=str)
def test_a_mutant_is_noticed(mutant: AuditMutant) -> None:
    found = notice(mutant)
    assert found is not None, f"{mutant} was not noticed"
    assert found.invariant in mutant.breaks, str(found)
