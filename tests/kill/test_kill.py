"""Worker processes on one SQLite file, killed at random and at every position: nothing is lost, doubled or wedged."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.effort import FULL
from tests.kill.grounds.sqlite import SqliteGround
from tests.kill.program import demand_a_pass, kill_and_check, stall_and_check

KILLS = 5000 if FULL else 100
STALLS = 200 if FULL else 12
PATIENCE = 7200 if FULL else 600  # a bound for the hopeless, not a measure

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE)]


def test_killed_workers_lose_nothing_and_repeat_only_what_a_kill_explains(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    outcome = kill_and_check(tmp_path, SqliteGround(str(tmp_path / "semel.db")), KILLS, seed=1)
    record_property("figures", outcome.text)
    demand_a_pass(outcome, KILLS)


def test_workers_that_stood_still_past_their_lease_change_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    outcome = stall_and_check(tmp_path, SqliteGround(str(tmp_path / "semel.db")), STALLS, seed=2)
    record_property("figures", outcome.summary)
    assert outcome.run.wedged == []
    assert outcome.verdict.problems == []
    assert outcome.verdict.zombies > 0
