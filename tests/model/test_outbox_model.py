"""TLC checks the TLA+ model of the outbox, `docs/model/Outbox.tla`: nothing is lost, and every mistake is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.model.tlc import Tlc

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MODEL: Final = Path(__file__).parents[2] / "docs" / "model"
SPEC: Final = "Outbox.tla"
TEXT: Final = (MODEL / SPEC).read_text(encoding="utf-8")
REAL: Final = (MODEL / "Outbox.cfg").read_text(encoding="utf-8")
MISTAKES: Final = {
    "the cursor goes by position": "Unnoticed_Position",
    "the floor is read with the snapshot": "Unnoticed_Floor",
    "no write before the snapshot": "Unnoticed_NoWrite",
    "late ones are not looked for": "Unnoticed_Late",
    "what runs is read": "Unnoticed_Running",
    "saved before it is published": "Unnoticed_Early",
    "no fence": "Unnoticed_NoFence",
    "who was overtaken goes on": "Unnoticed_Overtaken",
}


@pytest.fixture(scope="module")
def tlc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tlc]:
    checker = Tlc(tmp_path_factory.mktemp("tlc"))
    yield checker
    checker.close()


def test_what_is_committed_is_published_and_nothing_else(tlc: Tlc) -> None:
    verdict = tlc.check(TEXT, REAL, SPEC)
    assert verdict.violated is None, verdict.output
    assert verdict.distinct > 50_000, f"too little was explored:\n{verdict.output}"


@pytest.mark.parametrize(("mistake", "unnoticed"), MISTAKES.items())
def test_a_mistake_is_noticed(mistake: str, unnoticed: str, tlc: Tlc) -> None:
    config = REAL.replace('Mistakes = {"none"}', f'Mistakes = {{"{mistake}"}}')
    assert config != REAL
    head, _ = config.split("INVARIANTS\n")
    assert tlc.check(TEXT, f"{head}INVARIANTS\n    {unnoticed}\n", SPEC).violated == unnoticed
