"""The examples run, and the tutorials show them as they are."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, page

PAYMENTS = ROOT / "examples" / "payments"


def run(script: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("tutorial", "script"),
    [
        ("docs/tutorials/first-key.md", "payments/first_key.py"),
        ("docs/tutorials/payment.md", "payments/payment.py"),
        ("docs/tutorials/events.md", "events/meter.py"),
    ],
)
def test_the_tutorial_shows_the_example(tutorial: str, script: str) -> None:
    name = script.partition("/")[2]
    shown = next(block.text for block in page(tutorial).blocks if block.word == "file" and block.rest == name)
    assert shown == (ROOT / "examples" / script).read_text(encoding="utf-8")


def test_the_first_key_runs_once(tmp_path: Path) -> None:
    script = PAYMENTS / "first_key.py"
    assert run(script, "o-1", "100", cwd=tmp_path).stdout == "charging 100 cents\nreceipt for o-1\n"
    assert run(script, "o-1", "100", cwd=tmp_path).stdout == "receipt for o-1 (replayed)\n"
    assert run(script, "o-1", "101", cwd=tmp_path).returncode == 1


@pytest.mark.slow
def test_the_payment_survives_its_crash(tmp_path: Path) -> None:
    script = PAYMENTS / "payment.py"
    assert run(script, "o-1", "--crash", cwd=tmp_path).returncode == -signal.SIGKILL
    assert run(script, "o-1", cwd=tmp_path).stdout.endswith("ch_1 ran\n")
    assert run(script, "o-1", cwd=tmp_path).stdout == "ch_1 replayed\n"
    assert len((tmp_path / "provider.jsonl").read_text().splitlines()) == 1
