"""TLC checks the TLA+ model of searching, `docs/model/Search.tla`: what is found, and that every mistake is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.model.tlc import VIOLATED, Tlc

pytestmark = pytest.mark.timeout(300)

MODEL: Final = Path(__file__).parents[2] / "docs" / "model"
SPEC: Final = "Search.tla"
REAL: Final = (MODEL / "Search.cfg").read_text(encoding="utf-8")
PROMISES: Final = "    Search_FindsExactly\n    Search_NothingLeft\n"
MISTAKES: Final = {
    "rows are not written": "Unnoticed_Missing",
    "rows are written outside": "Unnoticed_Outside",
    "erasing leaves rows": "Unnoticed_Erased",
    "deleting leaves rows": "Unnoticed_Deleted",
    "the text is not compared": "Unnoticed_Text",
}


@pytest.fixture
def tlc(tmp_path: Path) -> Iterator[Tlc]:
    """TLC, which goes on after the first invariant that is violated."""
    tlc = Tlc(tmp_path, "-continue")
    yield tlc
    tlc.close()


def violated(tlc: Tlc, config: str) -> set[str]:
    """The invariants that TLC finds violated."""
    verdict = tlc.check((MODEL / SPEC).read_text(encoding="utf-8"), config, SPEC)
    assert verdict.distinct > 500, f"too little was explored:\n{verdict.output}"
    return set(VIOLATED.findall(verdict.output))


def test_a_record_is_found_by_what_its_last_claim_said_and_every_mistake_is_noticed(tlc: Tlc) -> None:
    assert violated(tlc, REAL) == set()
    chosen = ", ".join(f'"{mistake}"' for mistake in MISTAKES)
    with_mistakes = REAL.replace('Mistakes = {"none"}', f"Mistakes = {{{chosen}}}")
    with_mistakes = with_mistakes.replace(PROMISES, "".join(f"    {name}\n" for name in MISTAKES.values()))
    assert violated(tlc, with_mistakes) == set(MISTAKES.values())
