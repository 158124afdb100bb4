"""Workers and the state of their engine are killed at every position: one effect for each task."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from SpiffWorkflow.task import TaskState

from tests.effort import FULL
from tests.processes import run_bounded
from tests.workflow.killed_worker import POSITIONS, TASKS, ledger_of, load, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200 if FULL else 300)]
INSTANCES, KILLS = (100, 500) if FULL else (3, 5)
ROOT = Path(__file__).parents[2]


def run_worker(folder: Path, position: str, *, times: int = 1, keys: str = "derived") -> int:
    """Run one to its end, and say how that came."""
    command = [sys.executable, "-m", "tests.workflow.killed_worker", str(folder), position, str(times), keys]
    ended = run_bounded(command, 240, cwd=ROOT)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode


def test_one_effect_for_each_task_however_often_workers_are_killed_and_states_are_lost(tmp_path: Path) -> None:
    claims = [f"CLAIM-{number:03}" for number in range(INSTANCES)]
    for claim in claims:
        start(tmp_path, claim)
    kills = losses = runs = 0
    while kills < KILLS:
        runs += 1
        # A number of passes that goes with no number of positions: every task is struck at every one of them.
        times = 1 + runs * 3 % (4 if INSTANCES < 10 else 17)
        if run_worker(tmp_path, POSITIONS[runs % len(POSITIONS)], times=times) == 0:
            lost = claims  # as if the engine had forgotten all that it ever saved
        else:
            kills += 1
            lost = [claims[kills * 37 % INSTANCES]] if kills % 2 == 0 else []
        for claim in lost:
            start(tmp_path, claim)
        losses += len(lost)
    assert run_worker(tmp_path, "nowhere") == 0
    ledgers = [ledger_of(tmp_path, system) for system in TASKS.values()]
    asked = sum(ledger.requests() for ledger in ledgers)
    print(f"{kills} kills over {INSTANCES} instances, {losses} states lost, {asked} requests to the systems around")
    for ledger in ledgers:
        assert {claim: ledger.payments(claim) for claim in claims} == dict.fromkeys(claims, 1)
    assert asked > len(ledgers) * INSTANCES, "some of them were struck between the effect and its record"
    for claim in claims:
        data = load(tmp_path / f"{claim}.json").data
        assert {data[f"{task}Receipt"][:2] for task in TASKS} == {"R-"}


@pytest.mark.parametrize("position", POSITIONS if FULL else ("after the effect", "before saving"))
def test_a_kill_strikes_where_it_is_told_to(tmp_path: Path, position: str) -> None:
    start(tmp_path, "CLAIM-001")
    assert run_worker(tmp_path, position) == -signal.SIGKILL
    assert ledger_of(tmp_path, "insurer").requests() == (0 if position == "before the effect" else 1)
    saved = load(tmp_path / "CLAIM-001.json").get_tasks(spec_name="SUB_06")
    assert [task.has_state(TaskState.COMPLETED) for task in saved] == [position == "after saving"]


def test_without_a_derived_key_a_kill_after_the_effect_is_seen_as_two_payments(tmp_path: Path) -> None:
    start(tmp_path, "CLAIM-001")
    assert run_worker(tmp_path, "after the effect", times=2, keys="random") == -signal.SIGKILL
    assert run_worker(tmp_path, "nowhere", keys="random") == 0
    payments = {system: ledger_of(tmp_path, system).payments("CLAIM-001") for system in TASKS.values()}
    assert payments == {"insurer": 1, "bank": 2}
