"""The page of failure modes names tests that exist, and leaves no row of this release out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/failure-modes.md").read_text()
ROWS = [*(f"F{number:02}" for number in range(1, 100)), *(f"S{number:02}" for number in range(1, 28))]


def _tests() -> set[str]:
    sources = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "src/semel/testing/contract").rglob("*.py")]
    return {name for source in sources for name in re.findall(r"def (test_\w+)", source.read_text())}


@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_this_release_has_a_test(row: str) -> None:
    assert re.search(rf"^\| {row} \|.*`test_\w+`", PAGE, re.MULTILINE), row


def test_every_test_named_exists() -> None:
    missing = set(re.findall(r"`(test_\w+)`", PAGE)) - _tests()
    assert not missing
