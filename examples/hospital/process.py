"""The revenue cycle as a process of SpiffWorkflow, from its BPMN file; saved as text, and loaded again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from SpiffWorkflow.bpmn.serializer import BpmnWorkflowSerializer
from SpiffWorkflow.bpmn.workflow import BpmnWorkflow
from SpiffWorkflow.spiff.parser.process import SpiffBpmnParser
from SpiffWorkflow.spiff.serializer.config import SPIFF_CONFIG
from SpiffWorkflow.task import TaskState

from semel.workflow.engines.spiff import ScriptEngine, TaskNotDone, reset_failed_tasks

DIAGRAM = Path(__file__).with_name("revenue_cycle.bpmn")
MOST_TRIES = 5
_SERIALIZER = BpmnWorkflowSerializer(BpmnWorkflowSerializer.configure(SPIFF_CONFIG))


def start(engine: ScriptEngine, variables: Mapping[str, Any]) -> Any:
    """A new instance of the process."""
    parser = SpiffBpmnParser()
    parser.add_bpmn_file(str(DIAGRAM))
    workflow = BpmnWorkflow(parser.get_spec("revenue_cycle"), script_engine=engine)
    workflow.task_tree.data.update(variables)
    return workflow


def save(workflow: Any) -> str:
    """An instance as text."""
    return str(_SERIALIZER.serialize_json(workflow))


def load(engine: ScriptEngine, saved: str) -> Any:
    """An instance as it was saved; tasks that were in error are tried again."""
    workflow = _SERIALIZER.deserialize_json(saved)
    workflow.script_engine = engine
    reset_failed_tasks(workflow)
    return workflow


def run_steps(workflow: Any, before: Callable[[Any], None], after: Callable[[Any], None]) -> str:
    """Run an instance to its end, telling of each task before it runs and after; says which end that was.

    Raises:
        TaskNotDone: a task is not done.
    """
    workflow.do_engine_steps(will_complete_task=before, did_complete_task=after)
    return end_of(workflow)


def end_of(workflow: Any) -> str:
    """The end event that an instance came to."""
    ends = [task.task_spec.name for task in workflow.get_tasks(state=TaskState.COMPLETED)]
    return next(name for name in ("paid", "appealed") if name in ends)


def data_of(workflow: Any) -> dict[str, Any]:
    """The data of an instance, as of the task that was last completed."""
    done = sorted(workflow.get_tasks(state=TaskState.COMPLETED), key=lambda task: float(task.last_state_change))
    return dict(workflow.task_tree.data) | {name: value for task in done for name, value in task.data.items()}


def run(workflow: Any) -> str:
    """Run an instance to its end, trying again at once what is not done, and say which end that was.

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
    return end_of(workflow)
