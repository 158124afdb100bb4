"""Workers and the state of their engine are killed at every position: one effect for each task."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from SpiffWorkflow.task import TaskState

from tests.effort import FULL
from tests.processes import run_bounded
from tests.workflow.killed_worker import POSITIONS, TASKS, ledger_of, load, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200 if FULL else 300)]
INSTANCES, KILLS = (100, 500) if FULL else (3, 6)
ROOT = Path(__file__).parents[2]


def run_worker(folder: Path, position: str, *, times: int = 1, keys: str = "derived") -> int:
    """Run one to its end, and say how that came."""
    command = [sys.executable, "-m", "tests.workflow.killed_worker", str(folder), position, str(times), keys]
    ended = run_bounded(command, 240, cwd=ROOT)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode


class States:
    """What the engine has saved of its processes, and how it is lost."""

    def __init__(self, folder: Path, claims: list[str]) -> None:
        self._folder = folder
        self._claims = claims
        self._first: dict[str, str] = {}
        self.losses = 0
        for claim in claims:
            self._start(claim)

    def lose(self, number: int) -> None:
        """Lose one that has gone on: an old state comes back, or the process is started anew."""
        begun = [claim for claim in self._claims if self._path(claim).read_text() != self._first[claim]]
        if begun:
            self.losses += 1
            claim = begun[number * 7 % len(begun)]
            if number % 2:
                self._path(claim).write_text(self._first[claim])
            else:
                self._start(claim)

    def lose_all(self) -> None:
        """Start all processes anew."""
        self.losses += len(self._claims)
        for claim in self._claims:
            self._start(claim)

    def _start(self, claim: str) -> None:
        start(self._folder, claim)
        self._first[claim] = self._path(claim).read_text()

    def _path(self, claim: str) -> Path:
        return self._folder / f"{claim}.json"


def test_one_effect_for_each_task_however_often_workers_are_killed_and_states_are_lost(tmp_path: Path) -> None:
    claims = [f"CLAIM-{number:03}" for number in range(INSTANCES)]
    states = States(tmp_path, claims)
    struck = Counter[str]()
    runs = 0
    while (kills := struck.total()) < KILLS:
        # Every position in turn, most often at the first task that comes there: so tasks are struck while they are new.
        position, times = POSITIONS[runs % len(POSITIONS)], 2 if runs // len(POSITIONS) % 5 == 4 else 1
        runs += 1
        if run_worker(tmp_path, position, times=times) == 0:
            states.lose_all()
            continue
        struck[position] += 1
        if kills % 2:
            states.lose(kills // 2)
    assert run_worker(tmp_path, "nowhere") == 0
    ledgers = [ledger_of(tmp_path, system) for system in TASKS.values()]
    asked = sum(ledger.requests() for ledger in ledgers)
    print(f"{dict(struck)} kills over {INSTANCES} instances, {states.losses} states lost, {asked} requests to others")
    for ledger in ledgers:
        assert {claim: ledger.payments(claim) for claim in claims} == dict.fromkeys(claims, 1)
    assert set(struck) == set(POSITIONS)
    assert states.losses
    assert asked == len(ledgers) * INSTANCES + struck["after the effect"], "asked again where a kill explains it"
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
