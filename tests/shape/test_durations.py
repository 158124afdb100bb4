"""A run can say how long the tests of each folder take, their child processes with them."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.processes import run_bounded

ROOT = Path(__file__).parents[2]
LONGEST = 90.0
TESTS = """
import subprocess, sys

import pytest

BUSY = "import time\\nwhile time.process_time() < 0.3: pass"

def test_passes():
    subprocess.run([sys.executable, "-c", BUSY], check=True)

@pytest.mark.skip
def test_is_skipped():
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_every_test_is_counted_once_in_its_folder(tmp_path: Path, workers: str) -> None:
    for folder, name in (("unit/core", "test_a.py"), ("unit", "test_b.py"), ("cli", "test_c.py")):
        (tmp_path / "tests" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / folder / name).write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.durations", "-p", "no:cacheprovider", "-n", workers]
    command += ["-c", os.devnull, "--rootdir", str(tmp_path), "--durations-by-folder", str(tmp_path)]
    ran = run_bounded(command, LONGEST, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    table = re.findall(r"^ +([\d.]+) s +[\d.]+ s +(\d+) tests  (\S+)$", ran.stdout, re.MULTILINE)
    assert sorted(row[1:] for row in table) == [("2", "tests/cli"), ("4", "tests/unit")], ran.stdout
    assert {folder for seconds, _, folder in table if float(seconds) >= 0.3} == {"tests/cli", "tests/unit"}, ran.stdout
