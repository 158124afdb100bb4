"""A worker on processes of SpiffWorkflow that kills itself, started with a folder, a position, and which keys it sends.

The state of each process is a file. The worker goes on with all that have not ended, and ends with 0 when all have. At
the position that it is told, it dies as if by SIGKILL from outside: nothing is cleaned up.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from SpiffWorkflow.bpmn.serializer import BpmnWorkflowSerializer
from SpiffWorkflow.bpmn.workflow import BpmnWorkflow
from SpiffWorkflow.spiff.parser.process import SpiffBpmnParser
from SpiffWorkflow.spiff.serializer.config import SPIFF_CONFIG

from semel import Attempt, Semel
from semel.workflow import Delegate
from semel.workflow.engines.spiff import ScriptEngine, TaskNotDone, reset_failed_tasks
from tests.workflow.ledger import Ledger

PROCESS = Path(__file__).parent / "processes" / "payment.bpmn"
POSITIONS = ("before the bank", "after the bank", "before saving", "while saving", "after saving")
SERIALIZER = BpmnWorkflowSerializer(BpmnWorkflowSerializer.configure(SPIFF_CONFIG))


class Pay(Delegate[Semel]):
    """Pays at a bank that honours keys; a mutant sends another key each time."""

    operation = "PAYMENT_PROCESSING"
    key = "claimId"
    lease_for = 0.5

    def __init__(self, semel: Semel, ledger: Ledger, dies_at: str, keys: str) -> None:
        self.ledger, self.dies_at, self.keys = ledger, dies_at, keys
        super().__init__(semel)

    def execute(self, claimId: str, attempt: Attempt) -> str:  # noqa: N803
        die_at(self.dies_at, "before the bank")
        key = attempt.derive("bank") if self.keys == "derived" else uuid4().hex
        receipt = self.ledger.pay(key, claimId)
        die_at(self.dies_at, "after the bank")
        return receipt

    def outputs(self, value: str, v: Any) -> dict[str, Any]:
        return {"receipt": value}


def die_at(chosen: str, here: str) -> None:
    """Die, if it is to be here."""
    if chosen == here:
        os.kill(os.getpid(), signal.SIGKILL)


def start(folder: Path, claim: str) -> None:
    """A process that has not begun, as a file."""
    parser = SpiffBpmnParser()
    parser.add_bpmn_file(str(PROCESS))
    workflow = BpmnWorkflow(parser.get_spec("revenue_cycle"))
    workflow.task_tree.data.update(claimId=claim)
    (folder / f"{claim}.json").write_text(SERIALIZER.serialize_json(workflow))


def load(path: Path) -> Any:
    """A process as it was saved."""
    return SERIALIZER.deserialize_json(path.read_text())


def save(path: Path, workflow: Any, dies_at: str) -> None:
    """Save a process, so that a file is either the old state or the new one."""
    die_at(dies_at, "before saving")
    new = path.with_suffix(".new")
    new.write_text(SERIALIZER.serialize_json(workflow))
    die_at(dies_at, "while saving")
    new.rename(path)
    die_at(dies_at, "after saving")


def step(path: Path, engine: ScriptEngine, dies_at: str) -> bool:
    """Go on with one process; false while it has not ended."""
    workflow = load(path)
    if workflow.completed:
        return True
    workflow.script_engine = engine
    reset_failed_tasks(workflow)
    try:
        workflow.do_engine_steps()
    except TaskNotDone:
        time.sleep(0.05)  # until the lease of the one that died is over
        return False
    save(path, workflow, dies_at)
    return bool(workflow.completed)


def main(folder: Path, dies_at: str, keys: str) -> None:
    """Work until all processes have ended."""
    with Semel(f"sqlite:///{folder}/semel.db") as semel:
        pay = Pay(semel, Ledger(folder / "bank.db"), dies_at, keys)
        engine = ScriptEngine({"payments/charge": pay})
        waiting = sorted(folder.glob("*.json"))
        while waiting:
            waiting = [path for path in waiting if not step(path, engine, dies_at)]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
