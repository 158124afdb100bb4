"""The revenue cycle of one claim: started twice, with an answer of the insurer lost. `python -m examples.hospital`."""

from __future__ import annotations

from pathlib import Path

from examples.hospital.delegates import make_delegates
from examples.hospital.outside import Outside
from examples.hospital.process import run, start
from semel import Semel
from semel.workflow.engines.spiff import ScriptEngine

CLAIM = {
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


def main() -> None:
    """Run it, and show what the systems around the hospital have seen."""
    folder = Path(".hospital")
    folder.mkdir(exist_ok=True)
    outside = Outside(folder / "outside.db")
    with Semel(f"sqlite:///{folder}/semel.db") as semel:
        engine = ScriptEngine(make_delegates(semel, outside))
        for number in (1, 2):
            outside.loses_answers = 1 if number == 1 else 0
            workflow = start(engine, CLAIM)
            end = run(workflow)
            balance = workflow.data["patientBalance"]
            print(f"start {number}: {end}, protocol {workflow.data['submissionProtocol']}, patient owes {balance}")
    print(f"the insurer has {outside.count('claim')} claim, the books have {outside.count('posting')} payment")


if __name__ == "__main__":
    main()
