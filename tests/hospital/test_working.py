"""Workers: instances are saved and resumed, tried again and killed, and each task has one effect."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.hospital.coder import Coder
from examples.hospital.delegates import Outside, make_delegates
from examples.hospital.instances import Instance, Instances
from examples.hospital.settings import SEMEL, Settings
from examples.hospital.working import Worker
from semel import Semel
from tests.hospital.conftest import Neighbours, end_leases, working

PATIENCE = 120.0  # for a loaded machine; what is waited for comes at once or never


@dataclass
class Ward:
    """A database with instances, and a worker in this process."""

    settings: Settings
    instances: Instances
    worker: Worker
    neighbours: Neighbours

    def get(self, instance: str) -> Instance:
        found = self.instances.get(instance)
        assert found is not None
        return found

    def run(self, instance: str) -> Instance:
        """Let the worker run it once, whether it is due or not; no other one may be open."""
        self.instances.give_back(instance)
        assert self.worker.run_one()
        return self.get(instance)

    def became(self, instance: str) -> list[tuple[str, str]]:
        return [(run.activity, run.became) for run in self.instances.runs(instance)]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/hospital.db"
    return str(request.getfixturevalue("postgresql").new_database())


@pytest.fixture
def ward(url: str, tmp_path: Path, neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ward]:
    settings = Settings(url, *neighbours.addresses, tmp_path / "codes.db")
    monkeypatch.setenv("SEMEL_STORE", url)
    instances = Instances(url)
    instances.create_tables()
    with Semel.from_settings(SEMEL) as semel:
        outside = Outside(neighbours.insurer, neighbours.books, Coder(settings.codes))
        yield Ward(settings, instances, Worker("worker-0", instances, make_delegates(semel, outside)), neighbours)
    instances.close()


on_a_file = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.02)


def test_an_instance_runs_to_its_end_and_a_second_one_replays_it(ward: Ward, claim: dict[str, str]) -> None:
    ended = [ward.run(ward.instances.add(claim)) for _ in range(2)]
    first, second = (one.id for one in ended)
    assert [(one.state, one.ended_at, one.variables["patientBalance"]) for one in ended] == [
        ("ended", "paid", "300.00"),
        ("ended", "paid", "300.00"),
    ]
    assert ward.became(first) == [("SUB_05", "ran"), ("SUB_06", "ran"), ("SUB_08", "ran")]
    assert ward.became(second) == [("SUB_05", "replayed"), ("SUB_06", "replayed"), ("SUB_08", "replayed")]
    assert ward.neighbours.effects(claim["claimId"]) == {"claims": 1, "appeals": 0, "postings": 1}


@on_a_file
def test_a_lost_reply_is_in_doubt_and_asked_for_again(ward: Ward, claim: dict[str, str]) -> None:
    ward.neighbours.insurer.faults(lose_reply=1)
    instance = ward.instances.add(claim)
    waits = ward.run(instance)
    assert (waits.state, waits.worker) == ("open", None)
    assert "AnswerLost" in waits.why
    assert ward.became(instance) == [("SUB_05", "ran"), ("SUB_06", "in-doubt")]
    assert ward.run(instance).ended_at == "paid"
    assert ward.became(instance)[2:] == [("SUB_06", "ran"), ("SUB_08", "ran")]
    assert ward.instances.runs(instance)[2].attempts == 2
    assert ward.neighbours.effects(claim["claimId"]) == {"claims": 1, "appeals": 0, "postings": 1}
    assert ward.neighbours.asked_for(claim["claimId"]) == 2


@on_a_file
def test_an_instance_that_waits_is_not_taken_before_its_time(ward: Ward, claim: dict[str, str]) -> None:
    instance = ward.instances.add(claim)
    ward.instances.give_back(instance, after=3600)
    assert not ward.worker.run_one()


@on_a_file
def test_an_instance_has_one_worker_at_a_time(ward: Ward, claim: dict[str, str]) -> None:
    instance = ward.instances.add(claim)
    taken = [ward.instances.take(name) for name in ("a", "b")]
    assert [None if one is None else one.id for one in taken] == [instance, None]


@on_a_file
def test_a_corrected_amount_stops_the_process_and_books_nothing(ward: Ward, claim: dict[str, str]) -> None:
    ward.run(ward.instances.add(claim))
    stopped = ward.run(ward.instances.add({**claim, "insurancePayment": "1300.00"}))
    assert stopped.state == "stopped"
    assert "KEY_REUSED" in stopped.why
    assert ward.became(stopped.id)[-1] == ("SUB_08", "refused")
    assert ward.neighbours.effects(claim["claimId"])["postings"] == 1


@on_a_file
def test_what_cannot_be_run_is_stopped_and_says_why(ward: Ward, claim: dict[str, str]) -> None:
    del claim["claimTotalAmount"]
    stopped = ward.run(ward.instances.add(claim))
    assert stopped.state == "stopped"
    assert "claimTotalAmount" in stopped.why
    assert ward.neighbours.effects(claim["claimId"])["postings"] == 0


def test_a_database_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="runs on sqlite or postgresql, not on 'mysql'"):
        Instances("mysql://localhost/hospital")


@on_a_file
@pytest.mark.slow
def test_a_killed_worker_is_followed_by_one_that_goes_on(ward: Ward, claim: dict[str, str]) -> None:
    insurer = ward.neighbours.insurer
    insurer.faults(delay=600)
    instance = ward.instances.add(claim)
    with working(ward.settings) as worker:
        until(lambda: insurer.faults()["under_way"] == 1)
        ward.instances.ask_to_die("worker-1")
        assert worker.wait(PATIENCE) == -signal.SIGKILL
    assert ward.became(instance) == [("SUB_05", "ran"), ("SUB_06", "running")]
    insurer.faults(delay=0)
    end_leases(ward.settings)
    with working(ward.settings):
        until(lambda: ward.get(instance).state != "open")
    assert ward.get(instance).ended_at == "paid"
    assert ward.became(instance)[1:] == [("SUB_06", "in-doubt"), ("SUB_06", "ran"), ("SUB_08", "ran")]
    assert ward.neighbours.effects(claim["claimId"]) == {"claims": 1, "appeals": 0, "postings": 1}
    assert ward.neighbours.asked_for(claim["claimId"]) == 2


@on_a_file
@pytest.mark.slow
def test_a_worker_that_is_told_to_stop_saves_and_another_goes_on(ward: Ward, claim: dict[str, str]) -> None:
    insurer = ward.neighbours.insurer
    insurer.faults(delay=600)
    instance = ward.instances.add(claim)
    with working(ward.settings) as worker:
        until(lambda: insurer.faults()["under_way"] == 1)
        worker.terminate()
        until(lambda: _has_got_signal(worker.pid))
        insurer.faults(delay=0)
        assert worker.wait(PATIENCE) == 0
    assert (ward.get(instance).state, ward.get(instance).worker) == ("open", None)
    assert ward.became(instance) == [("SUB_05", "ran"), ("SUB_06", "ran")]
    assert ward.run(instance).ended_at == "paid"
    assert ward.became(instance)[2:] == [("SUB_08", "ran")]


def _has_got_signal(pid: int) -> bool:
    """Whether no SIGTERM is pending any more: its handler runs before the next step of the main thread."""
    status = Path(f"/proc/{pid}/status").read_text()
    pending = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return not any(mask & (1 << (signal.SIGTERM - 1)) for mask in pending)
