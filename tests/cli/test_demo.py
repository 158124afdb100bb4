"""`semel demo` from end to end: real processes, a real kill, a ledger that is counted again here."""

import json
import os
import re
import signal
import subprocess
import textwrap
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from semel import Semel
from semel.cli import main
from semel_lab.demo.ledger import Entry, Provider, read
from tests.cli.conftest import Run, command, environment
from tests.processes import child

SMALL = ["--payments", "3", "--workers", "3", "--duplicates", "12", "--seed", "7"]
ENDLESS = ["--payments", "99", *SMALL[2:]]
"""Far more than a test waits for: it does not end by itself before the test ends it."""


def workers_of(folder: Path) -> list[int]:
    """Processes that name this folder on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"demo.worker" in line and os.fsencode(folder) in line:
                found.append(int(entry.name))
    return found


def until(condition: object, seconds: float = 30) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_the_ledger_holds_although_a_worker_is_killed(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    done = run("demo", *SMALL, "--keep", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The ledger holds" in done.stdout
    kill = re.search(r"SIGKILL hits w\d \(pid (\d+)\) inside (pay-\d)", done.stdout)
    assert kill is not None
    assert re.search(rf"w\d takes {kill[2]} over", done.stdout)
    assert f"the provider knows the key of {kill[2]}" in done.stdout
    entries = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    charges = [entry for entry in entries if entry["kind"] == "charge"]
    assert Counter(entry["payment"] for entry in charges) == {"pay-1": 1, "pay-2": 1, "pay-3": 1}
    # Whatever else that worker had charged and not recorded was asked for again too.
    assert kill[2] in [entry["payment"] for entry in entries if entry["kind"] == "recognised"]
    with Semel(folder / "semel.db") as semel:
        attempts = {record.key.value: record.attempts for record in semel.records()}
    assert attempts[kill[2]] >= 2
    assert workers_of(folder) == []


@pytest.mark.slow
def test_a_ledger_that_does_not_hold_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rigged(path: Path) -> list[Entry]:
        entries = read(path)
        return [*entries, msgspec.structs.replace(entries[0], charge="ch_second", key="another")]

    monkeypatch.setattr("semel_lab.demo.main.read_ledger", rigged)
    assert main(["demo", "--payments", "1", "--workers", "2", "--duplicates", "3", "--seed", "1"]) == 1
    shown = capsys.readouterr().out
    assert "2 charges" in shown
    assert "The ledger does not hold" in shown


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_no_process_is_left_behind(ending: signal.Signals, code: int, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    with child(
        command(["demo", *ENDLESS, "--keep", str(folder)]),
        env=environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert any("done: ran" in line for line in process.stdout)
        assert len(workers_of(folder)) >= 2
        process.send_signal(ending)
        assert process.wait(60) == code
        assert "Traceback" not in process.stderr.read()
        until(lambda: workers_of(folder) == [])


def in_workers(folder: Path, program: str) -> str:
    """A PYTHONPATH under which every worker runs `program` first."""
    guarded = f"import sys\nif 'demo.worker' in ' '.join(sys.orig_argv):\n{textwrap.indent(program, '    ')}"
    (folder / "sitecustomize.py").write_text(guarded)
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))


@pytest.mark.slow
def test_a_key_that_differs_between_attempts_is_caught(run: Run, tmp_path: Path) -> None:
    rigged = "import os, semel\nsemel.Key.derive = lambda key, step: os.urandom(32).hex()\n"
    done = run("demo", *SMALL, PYTHONPATH=in_workers(tmp_path, rigged))
    assert done.returncode == 1
    assert "2 charges" in done.stdout
    assert "The ledger does not hold" in done.stdout


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_reported(run: Run, tmp_path: Path) -> None:
    done = run("demo", *SMALL, PYTHONPATH=in_workers(tmp_path, "raise SystemExit('no way')\n"))
    assert done.returncode == 1
    assert done.stderr.startswith("semel: demo_failed: ")
    assert "ended by itself" in done.stderr


def test_a_folder_with_old_records_is_refused(call: Run, tmp_path: Path) -> None:
    (tmp_path / "semel.db").touch()
    done = call("demo", "--keep", str(tmp_path))
    assert done.returncode == 2
    assert "not empty" in done.stderr


@pytest.mark.parametrize("option", [["--workers", "1"], ["--payments", "0"], ["--duplicates", "0"], ["--seed", "-1"]])
def test_impossible_numbers_are_refused(option: list[str], call: Run) -> None:
    assert call("demo", *option).returncode == 2


def test_the_provider_charges_a_key_once(tmp_path: Path) -> None:
    provider = Provider(tmp_path / "ledger.jsonl")
    first = provider.charge("k-1", "pay-1", "10.00", worker="w1", attempt=1)
    again = provider.charge("k-1", "pay-1", "10.00", worker="w2", attempt=2)
    other = provider.charge("k-2", "pay-1", "10.00", worker="w2", attempt=2)
    assert (first.kind, again.kind, other.kind) == ("charge", "recognised", "charge")
    assert again.charge == first.charge != other.charge
    assert read(tmp_path / "ledger.jsonl") == [first, again, other]


def test_a_damaged_ledger_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Provider(path).charge("k-1", "pay-1", "10.00", worker="w1", attempt=1)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(msgspec.DecodeError):
        read(path)
