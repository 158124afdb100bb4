"""A failed assertion names what was compared, in test modules and in the modules that they share."""

import os
import sys
from pathlib import Path

from tests.processes import run_bounded

ROOT = Path(__file__).parents[2]
LONGEST = 90.0
COUNTING = """
def test_counts():
    effects = 0
    assert effects == 1

def test_says_it_itself():
    effects = 0
    assert effects == 1, f"{effects} effects, not one"
"""


def test_the_summary_of_a_failed_comparison_names_what_was_compared(tmp_path: Path) -> None:
    (tmp_path / "test_counting.py").write_text(COUNTING)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.failure_messages"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = run_bounded([*command, "--rootdir", str(tmp_path), str(tmp_path)], LONGEST, cwd=tmp_path, env=environment)
    lines = [line.partition(" - ")[2] for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert lines == ["assert effects == 1 -> assert 0 == 1", "AssertionError: 0 effects, not one"]


def test_modules_that_tests_share_explain_their_assertions_too() -> None:
    from tests.faults import crowd

    assert type(crowd.__loader__).__name__ == "AssertionRewritingHook"
