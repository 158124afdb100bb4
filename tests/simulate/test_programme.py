"""The whole programme of the simulator, at the size that `SEMEL_EFFORT` asks for."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from semel.testing.simulate import SMALL, Asker, World, every, replay, some, verify

SCHEDULES = 5_000_000 if os.environ.get("SEMEL_EFFORT") == "full" else 200_000


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600 if SCHEDULES > 200_000 else 900)
def test_every_invariant_holds_in_every_schedule(record_property: Callable[[str, object], None]) -> None:
    report = verify(SCHEDULES)
    record_property("figures", report.summary())
    assert report.passed, str(report)
    assert report.schedules >= SCHEDULES


def test_the_same_seed_gives_the_same_schedules() -> None:
    first, second = some(SMALL, seed=7, first=0, count=50), some(SMALL, seed=7, first=0, count=50)
    assert (first.moves, first.seen) == (second.moves, second.seen)


def test_a_schedule_replays_with_a_trace() -> None:
    replayed = replay(SMALL[0], [])
    assert replayed.violation is None
    assert any("EFFECT" in line for line in replayed.trace)


def test_a_small_world_is_explored_to_its_end() -> None:
    tally = every(World(name="calm", askers=(Asker(0), Asker(1))))
    assert tally.complete
    assert not tally.failing
