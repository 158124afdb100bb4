"""A worker on processes of SpiffWorkflow that kills itself.

It is started with a folder, a position, which time of coming there is its last, and which keys it sends. The state of
each process is a file, saved after every task. The worker goes on with all that have not ended, and ends with 0 when
all have. At its position it dies as if by SIGKILL from outside: nothing is cleaned up.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from SpiffWorkflow.bpmn.serializer import BpmnWorkflowSerializer
from SpiffWorkflow.bpmn.workflow import BpmnWorkflow
from SpiffWorkflow.spiff.parser.process import SpiffBpmnParser
from SpiffWorkflow.spiff.serializer.config import SPIFF_CONFIG

from semel import Attempt, Semel
from semel.workflow import delegate
from semel.workflow.engines.spiff import ScriptEngine, TaskNotDone, reset_failed_tasks
from tests.workflow.ledger import Ledger

PROCESS = Path(__file__).parent / "processes" / "cycle.bpmn"
POSITIONS = ("before the effect", "after the effect", "before saving", "while saving", "after saving")
TASKS = {"claims/submit": "insurer", "payments/charge": "bank"}
"""The tasks of a process, and the systems that they have an effect in."""
SERIALIZER = BpmnWorkflowSerializer(BpmnWorkflowSerializer.configure(SPIFF_CONFIG))


class Doom:
    """Where and when a worker dies."""

    def __init__(self, position: str, times: int) -> None:
        self._position = position
        self._times = times
        self._passed = Counter[str]()

    def pass_by(self, here: str) -> None:
        """Die, if it is to be here and now."""
        self._passed[here] += 1
        if here == self._position and self._passed[here] == self._times:
            os.kill(os.getpid(), signal.SIGKILL)


def ledger_of(folder: Path, system: str) -> Ledger:
    """The ledger of a system around the worker, which honours keys."""
    return Ledger(folder / f"{system}.db")


def make_delegate(semel: Semel, operation: str, ledger: Ledger, doom: Doom, keys: str) -> Any:
    """A task that has its effect in one system; a mutant sends another key each time."""
    output = f"{operation}Receipt"

    @delegate(semel, operation=operation, key="claimId", lease_for=0.5, outputs=lambda receipt, _: {output: receipt})
    def work(claimId: str, attempt: Attempt) -> str:  # noqa: N803
        doom.pass_by("before the effect")
        key = attempt.derive(operation) if keys == "derived" else uuid4().hex
        receipt = ledger.pay(key, claimId)
        doom.pass_by("after the effect")
        return receipt

    return work


def start(folder: Path, claim: str) -> None:
    """A process that has not begun, as a file."""
    parser = SpiffBpmnParser()
    parser.add_bpmn_file(str(PROCESS))
    workflow = BpmnWorkflow(parser.get_spec("claim_cycle"))
    workflow.task_tree.data.update(claimId=claim)
    write(folder / f"{claim}.json", workflow)


def write(path: Path, workflow: Any, between: Callable[[], None] = lambda: None) -> None:
    """Write a process, so that a file is either the old state or the new one."""
    new = path.with_suffix(".new")
    new.write_text(SERIALIZER.serialize_json(workflow))
    between()
    new.rename(path)


def load(path: Path) -> Any:
    """A process as it was saved."""
    return SERIALIZER.deserialize_json(path.read_text())


def save(path: Path, workflow: Any, doom: Doom) -> None:
    """Save a process."""
    doom.pass_by("before saving")
    write(path, workflow, lambda: doom.pass_by("while saving"))
    doom.pass_by("after saving")


def step(path: Path, engine: ScriptEngine, doom: Doom) -> bool:
    """Go on with one process; false while it has not ended."""
    workflow = load(path)
    if workflow.completed:
        return True
    workflow.script_engine = engine
    reset_failed_tasks(workflow)

    def save_after(task: Any) -> None:
        if task.task_spec.bpmn_id in ("SUB_06", "SUB_08", "ended"):
            save(path, workflow, doom)

    try:
        workflow.do_engine_steps(did_complete_task=save_after)
    except TaskNotDone:
        time.sleep(0.05)  # until the lease of the one that died is over
        return False
    save(path, workflow, doom)
    return bool(workflow.completed)


def main(folder: Path, doom: Doom, keys: str) -> None:
    """Work until all processes have ended."""
    with Semel(f"sqlite:///{folder}/semel.db") as semel:
        engine = ScriptEngine(
            {task: make_delegate(semel, task, ledger_of(folder, system), doom, keys) for task, system in TASKS.items()}
        )
        waiting = sorted(folder.glob("*.json"))
        while waiting:
            waiting = [path for path in waiting if not step(path, engine, doom)]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Doom(sys.argv[2], int(sys.argv[3])), sys.argv[4])
