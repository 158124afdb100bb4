"""Tests that may take longer than others come first in the part of each worker, and the rest stays in order."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.ordering import arrange
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


def file_of(test: str) -> str:
    return test.partition("::")[0]


LONG = ["b::1", "b::2", "b::3", "d::1", "e::1", "e::2"]
SHORT = [f"{file}::{number}" for file in "acf" for number in range(5)]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_part_begins_with_whole_files_of_long_tests(workers: int) -> None:
    arranged = arrange(LONG, SHORT, workers, file_of)
    assert sorted(arranged) == sorted([*LONG, *SHORT])
    assert [test for test in arranged if test in SHORT] == SHORT
    size = len(arranged) // workers
    parts = [arranged[start : start + size] for start in range(0, size * workers, size)]
    first = [{file_of(test) for test in part if test in LONG} for part in parts]
    assert all(first), "a worker begins with short tests"
    assert sum(map(len, first)) == len({*map(file_of, LONG)}), "the long tests of a file are in two parts"
    assert all(sorted(part, key=lambda test: test in SHORT) == part for part in parts), "a long test behind a short one"


@pytest.mark.parametrize(("long", "short"), [([], []), (LONG, []), ([], SHORT), (["b::1"], ["a::1"])])
def test_nothing_is_lost_where_there_are_few(long: list[str], short: list[str]) -> None:
    assert sorted(arrange(long, short, 3, file_of)) == sorted([*long, *short])
