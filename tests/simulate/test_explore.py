"""Exploring: to the end where that is asked for, the same for the same seed, and failures that can be looked at."""

from __future__ import annotations

import gc
from dataclasses import replace
from unittest.mock import patch

import pytest

from semel.stores.memory import Table
from semel_lab.simulate import SMALL, SOMETIMES, Asker, Violation, World, every, explore, large, replay, some
from semel_lab.simulate.explore import Tally, calm_down
from semel_lab.simulate.simulation import Simulation
from tests.effort import FULL

PAIR = (Asker(0), Asker(1))
WHOLE = None if FULL else 1_000
"""How many schedules of a world are explored without cutting short; None: all."""


def broken() -> object:
    """A store that lets anybody write."""
    return patch.object(Table, "owned", lambda self, lease: self.records.get(lease.key.digest))


def test_the_same_seed_gives_the_same_schedules() -> None:
    first, second = some(SMALL, seed=7, first=0, count=50), some(SMALL, seed=7, first=0, count=50)
    assert (first.moves, first.seen) == (second.moves, second.seen)


def test_a_seed_gives_the_same_worlds() -> None:
    assert large(5, 20) == large(5, 20)
    assert large(5, 20) != large(6, 20)


def test_a_world_can_be_made_again_from_what_is_printed() -> None:
    for world in (*SMALL, *large(0, 30)):
        assert eval(repr(world)) == world  # noqa: S307 - that this works is the point


@pytest.mark.parametrize("in_doubt", ["rerun", "hold", "reconcile"])
def test_without_faults_every_order_of_moves_is_tried_and_nothing_is_done_twice(in_doubt: str) -> None:
    askers = (Asker(0), Asker(0), Asker(1))
    tally = every(World(name="calm", askers=askers, slow=2, in_doubt=in_doubt))  # type: ignore[arg-type]
    assert tally.complete
    assert not tally.failing
    assert tally.schedules > 300
    assert "effect repeated" not in tally.seen
    assert not any(name.startswith("fault") for name in tally.seen)


def test_states_seen_before_are_not_explored_again() -> None:
    tally = every(World(name="pair", askers=PAIR, faults=("lose", "crash"), budget=1, slow=1))
    assert tally.complete
    assert 0 < tally.cut < tally.schedules


@pytest.mark.slow
@pytest.mark.parametrize("world", SMALL, ids=lambda world: world.name)
def test_nothing_is_lost_by_cutting_short(world: World) -> None:
    crowded = len(world.askers) > 2
    smaller = replace(world, budget=0 if crowded else 1, slow=min(world.slow, 1))
    cut, ends_of_cut = ends_of(smaller)
    with patch.object(Simulation, "_know", lambda self: None):
        whole, ends_of_whole = ends_of(smaller, WHOLE)
    assert not whole.failing
    assert whole.schedules >= min(cut.schedules, WHOLE or cut.schedules)
    assert whole.seen.keys() <= cut.seen.keys(), "cutting short loses what happens"
    assert ends_of_whole <= ends_of_cut, "cutting short loses an end"
    if whole.complete:
        assert whole.seen.keys() == cut.seen.keys()
        assert ends_of_whole == ends_of_cut


def ends_of(world: World, most: int | None = None) -> tuple[Tally, set[object]]:
    """How the records of a world can end up."""
    ends: set[object] = set()

    def note(sim: Simulation) -> None:
        store = sim.store
        ends.update(
            (record.status, record.fence, record.attempts, record.doubtful, record.outcome, record.error)
            for record in store.table.records.values()
        )
        ends.update(
            (life.number, tuple(effect.value for effect in life.effects)) for life in store.claims.lives.values()
        )
        calm_down(sim)

    with patch.object(explore, "calm_down", note):
        return every(world, most), ends


def test_schedules_leave_nothing_behind() -> None:
    every(SMALL[0], 50)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        every(SMALL[0], 500)
        assert len(gc.get_objects()) - before < 500
    finally:
        gc.enable()


def test_at_most_so_many_schedules_is_not_to_the_end() -> None:
    tally = every(SMALL[0], 100)
    assert tally.schedules == 100
    assert not tally.complete


def test_a_schedule_replays_with_a_trace() -> None:
    replayed = replay(SMALL[0], [])
    assert replayed.violation is None
    assert any("EFFECT" in line for line in replayed.trace)


def test_a_choice_that_does_not_exist_is_taken_for_the_ordinary_one() -> None:
    assert replay(SMALL[0], [99] * 50).trace == replay(SMALL[0], []).trace


def test_a_failing_schedule_is_shrunk_and_replays() -> None:
    with broken():  # type: ignore[attr-defined]
        (failing,) = some(SMALL[:1], seed=0, first=0, count=3_000).failing
        replayed = replay(failing.world, failing.choices)
        assert replayed.violation is not None
        assert replayed.violation.invariant == failing.invariant == "I4"
        assert sum(map(bool, failing.choices)) <= 3
        shown = str(failing)
    assert failing.seed in shown
    assert f"replay({failing.world!r}, {list(failing.choices)})" in shown
    assert "VIOLATION" in shown
    assert replay(failing.world, failing.choices).violation is None


def test_a_failing_world_is_reported_with_its_choices() -> None:
    with broken():  # type: ignore[attr-defined]
        tally = every(SMALL[0])
        assert tally.failing
        assert not tally.complete


def test_an_error_where_none_belongs_is_a_violation_too() -> None:
    with patch.object(Table, "complete", side_effect=RuntimeError("oops")):
        (failing,) = some(SMALL[:1], seed=0, first=0, count=5).failing
    assert failing.invariant == "broke"


def test_a_violation_is_nothing_a_flow_could_catch() -> None:
    assert not issubclass(Violation, Exception)


def test_what_should_happen_sometimes_is_written_once() -> None:
    reached = some([*SMALL, *large(0, 40)], seed=0, first=0, count=4_000).seen.keys()
    assert reached - SOMETIMES <= {"resolved", "refused: Checkpoint", "counted again, after others"}
