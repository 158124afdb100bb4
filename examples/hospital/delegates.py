"""The tasks of the revenue cycle: what makes each of them this one, what it does, what the process gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from examples.hospital.clients import Books, ClaimDenied, Insurer, KeyTaken, Receipt
from examples.hospital.coder import Coder
from examples.hospital.domain import Balance, Codes, NoAmount, balance_of, guide_of
from semel import Attempt, Semel
from semel.events import Backoff
from semel.workflow import BpmnError, Delegate


@dataclass(frozen=True)
class Outside:
    """The systems around the hospital."""

    insurer: Insurer
    books: Books
    coder: Coder

    def close(self) -> None:
        """Close the connections to them."""
        self.insurer.close()
        self.books.close()


class HospitalTask(Delegate[Semel]):
    """What all of them have: the systems around, how long to wait after a lost answer, what is not tried again."""

    backoff = Backoff(1.5, spread=0)
    final_errors = (KeyTaken, NoAmount)

    def __init__(self, semel: Semel, outside: Outside) -> None:
        self.outside = outside
        super().__init__(semel)

    def about(self, v: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Records are found by the patient, and erased by it."""
        return {"subject": v["patientId"]} if "patientId" in v else None


class AssignCodes(HospitalTask):
    """SUB_05. A rerun gives the recorded codes; it never asks the coder again, nor touches what a person validated."""

    operation = "CODE_ASSIGNMENT"
    version = "v1"
    key = ("medicalRecordId", "procedureDate")

    def execute(self, medicalRecordId: str, procedureDate: date) -> Codes:  # noqa: N803 - names of the process
        suggested = self.outside.coder.suggest(medicalRecordId, procedureDate)
        return self.outside.coder.keep(medicalRecordId, procedureDate, suggested)

    def outputs(self, value: Codes, v: Mapping[str, Any]) -> dict[str, Any]:
        """The codes, and who chose them."""
        return {"procedureCodes": list(value.codes), "codesChosenBy": value.chosen_by}


class SubmitClaim(HospitalTask):
    """SUB_06. A second submission would be refused by the insurer, so there is none.

    A refusal is recorded with its number: however often the task is run, there is one to appeal against.
    """

    operation = "CLAIM_SUBMISSION"
    version = "CLAIM_SUBMISSION_V1"
    key = ("claimId", "insuranceId", "tissGuideNumber")

    def execute(
        self,
        *,
        claimId: str,  # noqa: N803 - names of the process
        insuranceId: str,  # noqa: N803 - as above
        tissGuideNumber: str,  # noqa: N803 - as above
        procedureCodes: tuple[str, ...],  # noqa: N803 - as above
        procedureDate: date,  # noqa: N803 - as above
        attempt: Attempt,
    ) -> Receipt:
        guide = guide_of(claimId, tissGuideNumber, procedureCodes, procedureDate)
        try:
            return self.outside.insurer.submit(attempt.derive(insuranceId), claimId, tissGuideNumber, guide)
        except ClaimDenied as denied:
            raise BpmnError("GLOSA", str(denied), {"glosaId": denied.glosa}) from denied

    def outputs(self, value: Receipt, v: Mapping[str, Any]) -> dict[str, Any]:
        """The protocol of the insurer, and the day that it says; a replay has the same day."""
        return {
            "claimSubmitted": True,
            "submissionProtocol": value.number,
            "submissionDate": value.day,
            "submissionStatus": "SUBMITTED",
        }


class ProcessPayment(HospitalTask):
    """SUB_08. Neither the process instance nor the amount is part of the key: both would let it be booked again."""

    operation = "PAYMENT_PROCESSING"
    version = "PAYMENT_V1"
    key = ("claimId", "paymentId")

    def execute(
        self,
        *,
        claimId: str,  # noqa: N803 - names of the process
        paymentId: str,  # noqa: N803 - as above
        claimTotalAmount: Decimal,  # noqa: N803 - as above
        paymentDate: date,  # noqa: N803 - as above
        attempt: Attempt,
        insurancePayment: Decimal = Decimal(0),  # noqa: N803 - as above
        adjustments: Decimal = Decimal(0),
    ) -> Balance:
        balance = balance_of(claimTotalAmount, insurancePayment, adjustments)
        self.outside.books.post(attempt.derive("finance"), claimId, insurancePayment)
        return balance

    def outputs(self, value: Balance, v: Mapping[str, Any]) -> dict[str, Any]:
        """Who owes what. The date stays an input: a task that set it to now would change its own question."""
        return {
            "paymentProcessed": True,
            "insurancePaymentAmount": value.insurance,
            "totalAdjustments": value.adjustments,
            "patientBalance": value.patient,
            "requiresPatientBilling": value.requires_billing,
        }


class AppealGlosa(HospitalTask):
    """The insurer refused a claim: ask it once to look again."""

    operation = "GLOSA_APPEAL"
    version = "GLOSA_APPEAL_V1"
    key = ("glosaId", "claimId", "appealType")

    def execute(self, glosaId: str, claimId: str, attempt: Attempt, appealType: str = "technical") -> Receipt:  # noqa: N803
        return self.outside.insurer.appeal(attempt.derive("insurer"), claimId, glosaId, appealType)

    def outputs(self, value: Receipt, v: Mapping[str, Any]) -> dict[str, Any]:
        """The protocol of the appeal."""
        return {"appealProtocol": value.number}


def make_delegates(semel: Semel, outside: Outside) -> dict[str, HospitalTask]:
    """The delegates, by the operators of the process."""
    return {
        "coding/assign": AssignCodes(semel, outside),
        "claims/submit": SubmitClaim(semel, outside),
        "payments/process": ProcessPayment(semel, outside),
        "glosas/appeal": AppealGlosa(semel, outside),
    }
