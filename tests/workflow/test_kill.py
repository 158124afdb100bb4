"""Workers and the state of their engine are killed at every position: one payment for each task."""

from __future__ import annotations

import signal
import sys
from itertools import cycle, islice
from pathlib import Path

import pytest

from tests.effort import FULL
from tests.processes import run_bounded
from tests.workflow.killed_worker import POSITIONS, load, start
from tests.workflow.ledger import Ledger

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if FULL else 300)]
INSTANCES, KILLS = (100, 500) if FULL else (3, 5)
ROOT = Path(__file__).parents[2]


def run_worker(folder: Path, position: str, keys: str = "derived") -> int:
    """Run one to its end, and say how that came."""
    command = [sys.executable, "-m", "tests.workflow.killed_worker", str(folder), position, keys]
    ended = run_bounded(command, 240, cwd=ROOT)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode


def test_one_payment_for_each_task_however_often_workers_are_killed(tmp_path: Path) -> None:
    claims = [f"CLAIM-{number:03}" for number in range(INSTANCES)]
    for claim in claims:
        start(tmp_path, claim)
    kills = 0
    for position in islice(cycle(POSITIONS), KILLS):
        if run_worker(tmp_path, position) == 0:
            for claim in claims:  # as if the engine had forgotten all that it ever saved
                start(tmp_path, claim)
        else:
            kills += 1
    assert run_worker(tmp_path, "nowhere") == 0
    ledger = Ledger(tmp_path / "bank.db")
    print(f"{kills} kills over {INSTANCES} instances, and {ledger.requests()} requests to the bank")
    assert kills > 0
    assert {claim: ledger.payments(claim) for claim in claims} == dict.fromkeys(claims, 1)
    for claim in claims:
        assert load(tmp_path / f"{claim}.json").data["receipt"].startswith("R-")


@pytest.mark.parametrize("position", POSITIONS if FULL else ("after the bank", "before saving"))
def test_a_kill_strikes_where_it_is_told_to(tmp_path: Path, position: str) -> None:
    start(tmp_path, "CLAIM-001")
    assert run_worker(tmp_path, position) == -signal.SIGKILL
    asked = Ledger(tmp_path / "bank.db").requests()
    assert asked == (0 if position == "before the bank" else 1)
    assert load(tmp_path / "CLAIM-001.json").completed == (position == "after saving")


def test_without_a_derived_key_a_kill_after_the_bank_is_seen_as_two_payments(tmp_path: Path) -> None:
    start(tmp_path, "CLAIM-001")
    assert run_worker(tmp_path, "after the bank", "random") == -signal.SIGKILL
    assert run_worker(tmp_path, "nowhere", "random") == 0
    assert Ledger(tmp_path / "bank.db").payments("CLAIM-001") == 2
