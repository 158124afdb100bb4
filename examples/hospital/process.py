"""The revenue cycle as a process of SpiffWorkflow, from its BPMN file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from SpiffWorkflow.bpmn.workflow import BpmnWorkflow
from SpiffWorkflow.spiff.parser.process import SpiffBpmnParser
from SpiffWorkflow.task import TaskState

from semel.workflow.engines.spiff import ScriptEngine, TaskNotDone, reset_failed_tasks

DIAGRAM = Path(__file__).with_name("revenue_cycle.bpmn")
MOST_TRIES = 5


def start(engine: ScriptEngine, variables: Mapping[str, Any]) -> Any:
    """A new instance of the process."""
    parser = SpiffBpmnParser()
    parser.add_bpmn_file(str(DIAGRAM))
    workflow = BpmnWorkflow(parser.get_spec("revenue_cycle"), script_engine=engine)
    workflow.task_tree.data.update(variables)
    return workflow


def run(workflow: Any) -> str:
    """Run an instance to its end, trying again what is not done, and say which end that was.

    Raises:
        TaskNotDone: a task was tried often enough.
    """
    for left in range(MOST_TRIES, -1, -1):
        reset_failed_tasks(workflow)
        try:
            workflow.do_engine_steps()
            break
        except TaskNotDone:
            if left == 0:
                raise
    ends = [task.task_spec.name for task in workflow.get_tasks(state=TaskState.COMPLETED)]
    return next(name for name in ("paid", "appealed") if name in ends)
