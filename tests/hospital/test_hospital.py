"""The hospital: its revenue cycle has one effect for each task, however it is run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from examples.hospital.__main__ import CLAIM
from examples.hospital.delegates import HospitalTask, make_delegates
from examples.hospital.domain import NAMESPACE, balance_of, guide_of
from examples.hospital.outside import Outside
from examples.hospital.process import run, start
from semel import Semel
from semel.errors import UsageError
from semel.settings import read_settings
from semel.workflow import BpmnError, Completed, Retry, delegate
from semel.workflow.engines.spiff import ScriptEngine, TaskNotDone
from tests.processes import run_bounded

ROOT = Path(__file__).parents[2]
SETTINGS = ROOT / "examples" / "hospital" / "semel.toml"
WEEK = timedelta(days=7)
TYPES = {
    "PAYMENT_PROCESSING": timedelta(days=90),
    "CLAIM_SUBMISSION": timedelta(days=1825),
    "CODE_ASSIGNMENT": timedelta(days=365),
    "GLOSA_APPEAL": WEEK,
    "AUTHORIZATION_REQUEST": WEEK,
    "PATIENT_BILLING": WEEK,
    "RECONCILIATION": WEEK,
    "AUDIT_COMPLETION": WEEK,
    "DOCUMENT_GENERATION": WEEK,
    "NOTIFICATION_SEND": WEEK,
    "INTEGRATION_CALL": WEEK,
    "CUSTOM": WEEK,
}
"""The operation types that the hospital asked for, and how long each is kept."""


class Hospital:
    """The hospital on a file."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SEMEL_STORE", f"sqlite:///{folder}/semel.db")
        self.semel = Semel.from_settings(SETTINGS)
        self.outside = Outside(folder / "outside.db")
        self.delegates: dict[str, HospitalTask] = make_delegates(self.semel, self.outside)
        self.engine = ScriptEngine(self.delegates)

    def cycle(self, **changes: Any) -> Any:
        """Run a whole process to its end, and give its data and the end."""
        workflow = start(self.engine, {**CLAIM, **changes})
        end = run(workflow)
        return end, workflow.data


@pytest.fixture
def hospital(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hospital]:
    made = Hospital(tmp_path, monkeypatch)
    yield made
    made.semel.close()


def test_the_settings_file_declares_the_twelve_types_with_how_long_each_is_kept() -> None:
    declared = read_settings(SETTINGS).operations
    assert {name: fields["keep_for"] for name, fields in declared.declared.items()} == TYPES
    assert declared.strict


def test_each_delegate_is_kept_as_the_file_says(hospital: Hospital) -> None:
    kept = {task.operation: task.policy.keep_for for task in hospital.delegates.values()}
    assert kept == {name: TYPES[name or ""] for name in kept}


def test_an_operation_that_is_not_declared_is_refused(hospital: Hospital) -> None:
    with pytest.raises(UsageError, match="TYPO"):

        @delegate(hospital.semel, operation="TYPO", key="claimId")
        def mistyped(claimId: str) -> None: ...  # noqa: N803


def test_the_cycle_ends_paid_with_the_balance_of_the_patient(hospital: Hospital) -> None:
    end, data = hospital.cycle()
    assert end == "paid"
    assert data["patientBalance"] == "300.00"
    assert data["requiresPatientBilling"] is True
    assert data["submissionProtocol"] == "P-1"
    assert data["submissionStatus"] == "SUBMITTED"


def test_a_second_start_is_one_claim_and_one_payment(hospital: Hospital) -> None:
    first, second = hospital.cycle()[1], hospital.cycle()[1]
    assert second["submissionProtocol"] == first["submissionProtocol"]
    assert (hospital.outside.count("claim"), hospital.outside.count("posting")) == (1, 1)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_lost_answers_are_no_second_claim_and_no_second_payment(hospital: Hospital, lost: int) -> None:
    hospital.outside.loses_answers = lost
    end, _ = hospital.cycle()
    assert end == "paid"
    assert (hospital.outside.count("claim"), hospital.outside.count("posting")) == (1, 1)


def test_a_retried_submission_is_one_submission_record(hospital: Hospital) -> None:
    submit = hospital.delegates["claims/submit"]
    variables = {
        "claimId": "CLAIM-002",
        "insuranceId": "INS-789",
        "tissGuideNumber": "TISS-001",
        "procedureCodes": ["1"],
        "procedureDate": "2024-12-01",
    }
    hospital.outside.loses_answers = 1
    ends = [submit.run(variables) for _ in range(3)]
    assert [type(end) for end in ends] == [Retry, Completed, Completed]
    assert hospital.semel.count(operation="CLAIM_SUBMISSION", scan=True) == 1
    assert hospital.outside.count("claim") == 1


def test_a_corrected_amount_is_refused_and_books_nothing(hospital: Hospital) -> None:
    hospital.cycle()
    with pytest.raises(TaskNotDone) as caught:
        hospital.cycle(insurancePayment="1300.00")
    assert isinstance(caught.value.end, BpmnError)
    assert caught.value.end.code == "KEY_REUSED"
    assert hospital.outside.count("posting") == 1


def test_a_rerun_neither_asks_the_coder_again_nor_overwrites_validated_codes(hospital: Hospital) -> None:
    first = hospital.cycle()[1]
    hospital.outside.validate_codes("MR-123", ("20101015",))
    again = hospital.cycle()[1]
    assert again["procedureCodes"] == first["procedureCodes"]
    assert hospital.outside.count("suggestion") == 1
    assert hospital.outside.keep_codes("MR-123", ("99999999",)) == ("20101015",)


def test_a_refused_claim_is_appealed_once(hospital: Hospital) -> None:
    hospital.outside.denies.add("TISS-001")
    assert [hospital.cycle()[0] for _ in range(2)] == ["appealed", "appealed"]
    assert (hospital.outside.count("appeal"), hospital.outside.count("posting")) == (1, 0)


def test_records_are_found_by_the_patient(hospital: Hospital) -> None:
    hospital.cycle()
    found = {record.key.operation for record in hospital.semel.records(subject="patient-7", scan=True)}
    assert found == {"CODE_ASSIGNMENT", "CLAIM_SUBMISSION", "PAYMENT_PROCESSING"}


def test_what_is_missing_counts_as_nothing_in_a_balance() -> None:
    balance = balance_of(Decimal("1500.00"), Decimal(0), Decimal(0))
    assert balance.patient == Decimal("1500.00")
    assert not balance_of(Decimal("0.1") + Decimal("0.2"), Decimal("0.3"), Decimal(0)).requires_billing


def test_a_guide_is_xml_that_names_the_claim() -> None:
    guide = ET.fromstring(guide_of("C&1", "TISS-001", ("1", "2"), date(2024, 12, 1)))  # noqa: S314 - our own
    assert guide.findtext(f".//{{{NAMESPACE}}}conta") == "C&1"
    assert len(guide.findall(f".//{{{NAMESPACE}}}codigoProcedimento")) == 2


@pytest.mark.slow
def test_the_program_shows_one_claim_and_one_payment(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = run_bounded([sys.executable, "-m", "examples.hospital"], 60, cwd=tmp_path, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "start 1: paid, protocol P-1, patient owes 300.00",
        "start 2: paid, protocol P-1, patient owes 300.00",
        "the insurer has 1 claim, the books have 1 payment",
    ]
