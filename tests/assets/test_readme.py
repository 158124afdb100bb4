"""The checklist of the asset service names a test for each of its points: each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "examples" / "assets" / "README.md"
NAMED = re.findall(r"`(test_\w+)`", README.read_text(encoding="utf-8"))
DEFINED = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


def test_each_of_the_eleven_points_names_a_test() -> None:
    points = [line for line in README.read_text(encoding="utf-8").splitlines() if re.search(r"\| `test_\w+` \|$", line)]
    assert len(points) == 11


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_the_checklist_names_is_there(name: str) -> None:
    assert name in DEFINED
