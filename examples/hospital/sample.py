"""Claims to try."""

from __future__ import annotations

from typing import Final

from examples.hospital.outside.app import REFUSED_GUIDES

CLAIM: Final = {
    "patientId": "patient-7",
    "medicalRecordId": "MR-123",
    "claimId": "CLAIM-001",
    "insuranceId": "INS-789",
    "tissGuideNumber": "TISS-001",
    "paymentId": "1",
    "claimTotalAmount": "1500.00",
    "insurancePayment": "1200.00",
    "paymentDate": "2024-12-09",
    "procedureDate": "2024-12-01",
}


def make_claim(number: int, *, is_refused: bool = False) -> dict[str, str]:
    """The claim with that number; the insurer refuses it if asked to."""
    guide = f"{REFUSED_GUIDES}{number:03}" if is_refused else f"TISS-{number:03}"
    own = {"claimId": f"CLAIM-{number:03}", "medicalRecordId": f"MR-{122 + number}", "tissGuideNumber": guide}
    return {**CLAIM, **own}
