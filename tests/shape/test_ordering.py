"""Tests that may take longer than others come first, and the rest stays in order."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.processes import run_bounded

ROOT = Path(__file__).parents[2]
LONGEST = 90.0
LONG_AND_SHORT = """
import pytest

def test_short(): pass

@pytest.mark.timeout(60)
def test_of_a_shorter_limit(): pass

@pytest.mark.timeout(900)
def test_long(): pass

def test_last(): pass

@pytest.mark.timeout(300)
def test_long_too(): pass
"""


@pytest.mark.slow
def test_tests_that_may_take_longer_than_others_come_first(tmp_path: Path) -> None:
    (tmp_path / "test_order.py").write_text(LONG_AND_SHORT)
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "tests.ordering", "-p", "no:cacheprovider"]
    options = ["-c", os.devnull, "-o", "timeout=120", "--rootdir", str(tmp_path), str(tmp_path)]
    ran = run_bounded([*command, *options], LONGEST, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert re.findall(r"::test_(\w+)", ran.stdout) == ["long", "long_too", "short", "of_a_shorter_limit", "last"]
