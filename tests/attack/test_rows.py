"""Every threat has tests, and they exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.attack.rows import ROWS

ROOT = Path(__file__).parents[2]


@cache
def _tests() -> frozenset[str]:
    sources = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "src/semel/testing/contract").rglob("*.py")]
    return frozenset(name for source in sources for name in re.findall(r"def (test_\w+)", source.read_text()))


def test_every_threat_has_a_row() -> None:
    assert list(ROWS) == [f"S{number:02}" for number in range(1, 28)]


@pytest.mark.parametrize("name", ROWS)
def test_the_tests_of_a_row_exist(name: str) -> None:
    wanted = set(ROWS[name].tests)
    assert wanted
    assert sorted(wanted - _tests()) == []
