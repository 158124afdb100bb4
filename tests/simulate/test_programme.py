"""The whole programme of the simulator, at the size that `SEMEL_EFFORT` asks for.

At the small effort chance chooses all schedules, and must reach everything that is to be reached. The full effort
explores the small worlds to the end as well, with their whole budget of faults; with a smaller one `test_explore.py`,
`test_servers.py` and `test_within.py` do that at either effort.
"""

from __future__ import annotations

from collections.abc import Callable
from random import SystemRandom

import pytest

from semel_lab.simulate import verify
from tests.effort import FULL

SCHEDULES = 5_000_000 if FULL else 30_000


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600 if FULL else 600)
def test_every_invariant_holds_in_every_schedule(record_property: Callable[[str, object], None]) -> None:
    report = verify(SCHEDULES)
    record_property("figures", report.summary())
    assert report.passed, str(report)
    assert report.schedules >= SCHEDULES
    assert all(world.complete for world in report.worlds)
    assert len(report.worlds) > 20 or not FULL


@pytest.mark.slow
def test_a_run_is_the_same_however_many_processes_share_it() -> None:
    count = 2_500 if FULL else 1_500  # more than one process takes at a time
    alone, shared = verify(count, seed=3, workers=0), verify(count, seed=3, workers=2)
    assert (alone.moves, alone.seen) == (shared.moves, shared.seen)


def test_no_schedule_asks_the_machine_for_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(_source: SystemRandom) -> float:
        raise AssertionError("drawn outside the choices of the schedule")

    monkeypatch.setattr(SystemRandom, "random", draw)
    assert not verify(1_500, seed=3, workers=0).failing


def test_a_run_that_does_not_reach_everything_is_no_pass() -> None:
    report = verify(20, workers=0)
    assert not report.failing
    assert report.missing
    assert not report.passed
    assert "NOT PROVED" in str(report)


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    verify(1_500, workers=0, progress=lambda done, total: told.append((done, total)))
    assert told == [(1_000, 1_500), (1_500, 1_500)]
