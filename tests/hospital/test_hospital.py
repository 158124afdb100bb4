"""The hospital: its revenue cycle has one effect for each task, however it is run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from examples.hospital.clients import Insurer
from examples.hospital.coder import Coder
from examples.hospital.delegates import AssignCodes, HospitalTask, Outside, SubmitClaim, make_delegates
from examples.hospital.domain import NAMESPACE, Codes, balance_of, guide_of
from examples.hospital.process import run, start
from semel import Semel
from semel.errors import UsageError
from semel.settings import read_settings
from semel.workflow import BpmnError, Completed, Incident, Retry, delegate
from semel.workflow.engines.spiff import ScriptEngine, TaskNotDone
from tests.hospital.conftest import Neighbours

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


KEYS = {
    "PAYMENT_PROCESSING": ("PAYMENT_V1", ("claimId", "paymentId")),
    "CLAIM_SUBMISSION": ("CLAIM_SUBMISSION_V1", ("claimId", "insuranceId", "tissGuideNumber")),
    "CODE_ASSIGNMENT": ("v1", ("medicalRecordId", "procedureDate")),
    "GLOSA_APPEAL": ("GLOSA_APPEAL_V1", ("glosaId", "claimId", "appealType")),
}
"""What it asked for, without process instance, amount and date in the key of a payment: they let it be made again."""


class Hospital:
    """The hospital on a file, with the systems around it as processes."""

    def __init__(self, folder: Path, neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SEMEL_STORE", f"sqlite:///{folder}/semel.db")
        self.semel = Semel.from_settings(SETTINGS)
        self.neighbours = neighbours
        self.coder = Coder(folder / "codes.db")
        self.outside = Outside(neighbours.insurer, neighbours.books, self.coder)
        self.delegates: dict[str, HospitalTask] = make_delegates(self.semel, self.outside)
        self.engine = ScriptEngine(self.delegates)

    def cycle(self, claim: dict[str, str], **changes: Any) -> Any:
        """Run a whole process to its end, and give the end and its data."""
        workflow = start(self.engine, {**claim, **changes})
        end = run(workflow)
        return end, workflow.data

    def effects(self, claim: dict[str, str]) -> tuple[int, int, int]:
        """How many claims, appeals and payments there are of it, by the ledgers."""
        found = self.neighbours.effects(claim["claimId"])
        return found["claims"], found["appeals"], found["postings"]


@pytest.fixture
def hospital(tmp_path: Path, neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hospital]:
    made = Hospital(tmp_path, neighbours, monkeypatch)
    yield made
    made.semel.close()


def test_the_settings_file_declares_the_twelve_types_with_how_long_each_is_kept() -> None:
    declared = read_settings(SETTINGS).operations
    assert {name: fields["keep_for"] for name, fields in declared.declared.items()} == TYPES
    assert declared.strict


def test_each_delegate_is_kept_as_the_file_says(hospital: Hospital) -> None:
    kept = {task.operation: task.policy.keep_for for task in hospital.delegates.values()}
    assert kept == {name: TYPES[name or ""] for name in kept}


def test_keys_and_versions_are_those_that_the_hospital_asked_for(hospital: Hospital) -> None:
    found = {task.operation: (task.version, task.key) for task in hospital.delegates.values()}
    assert found == KEYS


def test_an_operation_that_is_not_declared_is_refused(hospital: Hospital) -> None:
    with pytest.raises(UsageError, match="TYPO"):

        @delegate(hospital.semel, operation="TYPO", key="claimId")
        def mistyped(claimId: str) -> None: ...  # noqa: N803


def test_the_cycle_ends_paid_with_the_balance_of_the_patient(hospital: Hospital, claim: dict[str, str]) -> None:
    end, data = hospital.cycle(claim)
    assert end == "paid"
    assert data["patientBalance"] == "300.00"
    assert data["requiresPatientBilling"] is True
    assert data["submissionProtocol"].startswith("P-")
    assert data["submissionStatus"] == "SUBMITTED"
    entered = {entry["number"]: entry["day"] for entry in hospital.neighbours.insurer.entries("claims")}
    assert data["submissionDate"] == entered[data["submissionProtocol"]]


def test_a_second_start_is_one_claim_and_one_payment(hospital: Hospital, claim: dict[str, str]) -> None:
    first, second = hospital.cycle(claim)[1], hospital.cycle(claim)[1]
    assert second["submissionProtocol"] == first["submissionProtocol"]
    assert hospital.effects(claim) == (1, 0, 1)
    assert hospital.neighbours.asked_for(claim["claimId"]) == 1


@pytest.mark.parametrize("fault", ["lose_reply", "error_reply"])
@pytest.mark.parametrize("times", [1, 2])
def test_lost_answers_are_no_second_claim_and_no_second_payment(
    hospital: Hospital, claim: dict[str, str], fault: str, times: int
) -> None:
    hospital.neighbours.insurer.faults(**{fault: times})
    hospital.neighbours.books.faults(**{fault: times})
    end, _ = hospital.cycle(claim)
    assert end == "paid"
    assert hospital.effects(claim) == (1, 0, 1)
    assert hospital.neighbours.asked_for(claim["claimId"]) == 1 + times


def test_another_payment_under_a_key_that_is_forgotten_is_not_booked_and_not_tried_again(
    hospital: Hospital, claim: dict[str, str], tmp_path: Path
) -> None:
    hospital.cycle(claim)
    with closing(sqlite3.connect(tmp_path / "semel.db", timeout=30)) as rows, rows:
        rows.execute("UPDATE semel_record SET expires_us = 0 WHERE status = 'completed'")
    end = hospital.delegates["payments/process"].run({**claim, "insurancePayment": "900.00"})
    assert isinstance(end, Incident)
    assert "used for something else" in end.reason
    assert hospital.effects(claim) == (1, 0, 1)


@pytest.mark.parametrize("amount", ["1e999999", "-5", "1200.001", "1000000000.01"])
def test_what_is_no_amount_is_not_booked(hospital: Hospital, claim: dict[str, str], amount: str) -> None:
    end = hospital.delegates["payments/process"].run({**claim, "insurancePayment": amount})
    assert isinstance(end, Incident)
    assert "NoAmount" in end.reason
    assert hospital.effects(claim) == (0, 0, 0)


def test_an_answer_that_comes_too_late_is_no_second_claim(hospital: Hospital, claim: dict[str, str]) -> None:
    insurer = Insurer(hospital.neighbours.addresses[0], timeout=0.2)
    submit = SubmitClaim(hospital.semel, Outside(insurer, hospital.neighbours.books, hospital.coder))
    variables = {**claim, "procedureCodes": ["1"]}
    hospital.neighbours.insurer.faults(delay=600)
    assert isinstance(submit.run(variables), Retry)
    hospital.neighbours.insurer.faults(delay=0)
    assert isinstance(hospital.delegates["claims/submit"].run(variables), Completed)
    assert hospital.effects(claim) == (1, 0, 0)
    insurer.close()


def test_a_retried_submission_is_one_submission_record(hospital: Hospital, claim: dict[str, str]) -> None:
    submit = hospital.delegates["claims/submit"]
    variables = {**claim, "procedureCodes": ["1"]}
    hospital.neighbours.insurer.faults(lose_reply=1)
    ends = [submit.run(variables) for _ in range(3)]
    assert [type(end) for end in ends] == [Retry, Completed, Completed]
    assert hospital.semel.count(operation="CLAIM_SUBMISSION", scan=True) == 1
    assert hospital.effects(claim) == (1, 0, 0)


def test_a_corrected_amount_is_refused_and_books_nothing(hospital: Hospital, claim: dict[str, str]) -> None:
    hospital.cycle(claim)
    with pytest.raises(TaskNotDone) as caught:
        hospital.cycle(claim, insurancePayment="1300.00")
    assert isinstance(caught.value.end, BpmnError)
    assert caught.value.end.code == "KEY_REUSED"
    assert hospital.effects(claim) == (1, 0, 1)


def test_a_rerun_neither_asks_the_coder_again_nor_overwrites_validated_codes(
    hospital: Hospital, claim: dict[str, str]
) -> None:
    procedure = claim["medicalRecordId"], date.fromisoformat(claim["procedureDate"])
    first = hospital.cycle(claim)[1]
    hospital.coder.validate(*procedure, ("20101015",))
    again = hospital.cycle(claim)[1]
    assert again["procedureCodes"] == first["procedureCodes"]
    assert hospital.coder.count_suggestions(*procedure) == 1
    assert hospital.coder.find(*procedure) == Codes(("20101015",), "person")


def test_a_task_that_is_done_anew_takes_the_codes_that_a_person_validated(
    hospital: Hospital, claim: dict[str, str]
) -> None:
    class AssignedAnew(AssignCodes):
        version = "v2"

    procedure = claim["medicalRecordId"], date.fromisoformat(claim["procedureDate"])
    hospital.cycle(claim)
    hospital.coder.validate(*procedure, ("20101015",))
    end = AssignedAnew(hospital.semel, hospital.outside).run(claim)
    assert isinstance(end, Completed)
    assert hospital.coder.count_suggestions(*procedure) == 2, "it ran, and the coder had another opinion"
    assert (end.variables["procedureCodes"], end.variables["codesChosenBy"]) == (["20101015"], "person")
    assert hospital.coder.find(*procedure) == Codes(("20101015",), "person")


def test_codes_of_one_procedure_are_not_those_of_the_next_in_the_same_record(
    hospital: Hospital, claim: dict[str, str]
) -> None:
    hospital.coder.validate(claim["medicalRecordId"], date.fromisoformat(claim["procedureDate"]), ("20101015",))
    first, next_one = (
        hospital.delegates["coding/assign"].run({**claim, "procedureDate": day})
        for day in (claim["procedureDate"], "2024-12-05")
    )
    assert isinstance(first, Completed)
    assert isinstance(next_one, Completed)
    assert (first.variables["procedureCodes"], first.variables["codesChosenBy"]) == (["20101015"], "person")
    assert "20101015" not in next_one.variables["procedureCodes"]
    assert next_one.variables["codesChosenBy"] == "coder"


@pytest.mark.parametrize("fault", ["lose_reply", "error_reply"])
def test_a_refusal_that_is_lost_is_asked_for_again(
    hospital: Hospital, refused_claim: dict[str, str], fault: str
) -> None:
    hospital.neighbours.insurer.faults(**{fault: 1})
    end, _ = hospital.cycle(refused_claim)
    assert end == "appealed"
    assert hospital.neighbours.insurer.faults()[fault] == 0, "it was this refusal that was lost"
    record = hospital.semel.read(hospital.delegates["claims/submit"].identify(refused_claim))
    assert record is not None
    assert record.attempts == 2
    assert hospital.effects(refused_claim) == (0, 1, 0)


def test_a_refused_claim_is_appealed_once(hospital: Hospital, refused_claim: dict[str, str]) -> None:
    (first, data), (second, again) = (hospital.cycle(refused_claim) for _ in range(2))
    assert (first, second) == ("appealed", "appealed")
    assert data["glosaId"].startswith("G-")
    assert (again["glosaId"], again["appealProtocol"]) == (data["glosaId"], data["appealProtocol"])
    assert hospital.effects(refused_claim) == (0, 1, 0)


def test_records_are_found_by_the_patient(hospital: Hospital, claim: dict[str, str]) -> None:
    hospital.cycle(claim)
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
