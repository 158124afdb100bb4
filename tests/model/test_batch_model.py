"""TLC checks the TLA+ model of a batch, `docs/model/Batch.tla`: nothing twice, nothing left; mistakes are noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.effort import FULL
from tests.model.tlc import STUCK, Tlc

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 300)]

MODEL: Final = Path(__file__).parents[2] / "docs" / "model"
SPEC: Final = "Batch.tla"
TEXT: Final = (MODEL / SPEC).read_text(encoding="utf-8")
REAL: Final = (MODEL / "Batch.cfg").read_text(encoding="utf-8")
MISTAKES: Final = {
    "no fence": "Unnoticed_NoFence",
    "every end is counted": "Unnoticed_EveryEnd",
    "the row comes first": "Unnoticed_RowFirst",
    "done without counting": "Unnoticed_NotCounted",
    "ended without looking again": "Unnoticed_NotAgain",
}


@pytest.fixture(scope="module")
def tlc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tlc]:
    checker = Tlc(tmp_path_factory.mktemp("tlc"))
    yield checker
    checker.close()


def with_mistake(mistake: str) -> str:
    config = REAL.replace('Mistakes = {"none"}', f'Mistakes = {{"{mistake}"}}')
    assert config != REAL
    return config.split("INVARIANTS\n")[0]


def test_every_effect_is_there_once_and_nothing_is_left(tlc: Tlc) -> None:
    verdict = tlc.check(TEXT, REAL if FULL else REAL.replace("MaxEnds = 2", "MaxEnds = 1"), SPEC)
    assert verdict.violated is None, verdict.output
    assert verdict.code == 0, verdict.output
    assert verdict.distinct > 20_000, f"too little was explored:\n{verdict.output}"


@pytest.mark.parametrize(("mistake", "unnoticed"), MISTAKES.items())
def test_a_mistake_is_noticed(mistake: str, unnoticed: str, tlc: Tlc) -> None:
    assert tlc.check(TEXT, f"{with_mistake(mistake)}INVARIANTS\n    {unnoticed}\n", SPEC).violated == unnoticed


def test_a_batch_whose_pages_nobody_takes_over_is_stuck(tlc: Tlc) -> None:
    assert STUCK.search(tlc.check(TEXT, with_mistake("nobody looks for what was left"), SPEC).output)
