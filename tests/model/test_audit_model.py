"""TLC checks the TLA+ model of the audit chain, `docs/model/Audit.tla`, and that every mistake is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.model.tlc import Tlc, Verdict

pytestmark = pytest.mark.timeout(300)

MODEL: Final = Path(__file__).parents[2] / "docs" / "model"
SPEC: Final = "Audit.tla"
REAL: Final = (MODEL / "Audit.cfg").read_text(encoding="utf-8")
PROMISES: Final = "    Audit_Whole\n    Audit_Noticed\n    Audit_Once\n    Audit_Kept\n"
MISTAKES: Final = {
    "the head is not compared": "Unnoticed_Compare",
    "the head moves alone": "Unnoticed_Alone",
    "ids are not looked for": "Unnoticed_Ids",
    "the hash before is not hashed": "Unnoticed_Previous",
    "numbers are not compared": "Unnoticed_Numbers",
    "links are not compared": "Unnoticed_Links",
    "the head is not looked at": "Unnoticed_Head",
    "seals are not compared": "Unnoticed_Seals",
    "anchors are not compared": "Unnoticed_Anchors",
}


@pytest.fixture(scope="module")
def tlc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tlc]:
    """TLC; once all have appended, nothing has to happen any more."""
    tlc = Tlc(tmp_path_factory.mktemp("audit"), "-deadlock")
    yield tlc
    tlc.close()


def check(tlc: Tlc, config: str) -> Verdict:
    return tlc.check((MODEL / SPEC).read_text(encoding="utf-8"), config, SPEC)


def test_the_chain_never_forks_and_whoever_tampers_is_noticed(tlc: Tlc) -> None:
    verdict = check(tlc, REAL)
    assert verdict.violated is None, verdict.output
    assert verdict.distinct > 5_000, f"too little was explored:\n{verdict.output}"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_noticed(tlc: Tlc, mistake: str) -> None:
    config = REAL.replace('"none"', f'"{mistake}"').replace("    TypeOK\n" + PROMISES, f"    {MISTAKES[mistake]}\n")
    verdict = check(tlc, config)
    assert verdict.violated == MISTAKES[mistake], verdict.output
