"""A wrong service is told by exactly the case that is meant for its fault."""

from __future__ import annotations

import pytest

from semel_lab.conform import CASES
from tests.conform import wrong_answers, wrong_comparisons, wrong_keys, wrong_runs
from tests.conform.conftest import Judge, failed
from tests.conform.fault import Fault

pytestmark = pytest.mark.slow

FAULTS = [
    kind
    for module in (wrong_keys, wrong_answers, wrong_comparisons, wrong_runs)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Fault) and kind != Fault
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.__name__}-{fault.told_by}")
def test_a_fault_is_told_by_its_case_alone(fault: type[Fault], judge: Judge) -> None:
    assert failed(judge(fault(), timeout=3.0)) == [fault.told_by]


def test_every_case_tells_a_fault() -> None:
    assert {case.id for case in CASES} - {fault.told_by for fault in FAULTS} == set()
