"""SpiffWorkflow: a script engine whose service tasks are delegates.

- What a task gave is part of the process when the process is saved; what is not saved is replayed from the record.
- A business error goes to the boundary event that catches its code. One that nothing catches leaves its task in error,
  as everything does that is not done: SpiffWorkflow would otherwise go on as if it were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from semel.errors import UsageError
from semel.extras import requires
from semel.workflow.ends import BpmnError, Completed, End, Incident, Retry
from semel.workflow.engines.running import BackgroundLoop, Runnable, as_json_data, run_here

with requires("semel.workflow.engines.spiff", "SpiffWorkflow"):
    from SpiffWorkflow.bpmn.exceptions import WorkflowTaskException
    from SpiffWorkflow.bpmn.script_engine import PythonScriptEngine
    from SpiffWorkflow.bpmn.specs.mixins import BoundaryEventMixin as BoundaryEvent
    from SpiffWorkflow.bpmn.util.event import BpmnEvent
    from SpiffWorkflow.spiff.specs.event_definitions import ErrorEventDefinition
    from SpiffWorkflow.task import TaskState

__all__ = ["ScriptEngine", "TaskNotDone", "reset_failed_tasks"]


class TaskNotDone(WorkflowTaskException):  # type: ignore[misc]  # SpiffWorkflow has no types
    """A service task is not done, and is in error now. Reset it to have it tried again.

    Attributes:
        end: why: `Retry`, `Incident`, or a `BpmnError` that no boundary event catches.
    """

    def __init__(self, end: Retry | Incident | BpmnError, task: Any) -> None:
        super().__init__(_why(end), task=task)
        self.end = end


class ScriptEngine(PythonScriptEngine):  # type: ignore[misc]  # SpiffWorkflow has no types
    """Runs the service tasks of a process by delegates. Outputs become data of the process.

    Args:
        delegates: by the id of the service task operator.
        environment: where scripts and expressions run; by default that of SpiffWorkflow.
    """

    def __init__(self, delegates: Mapping[str, Runnable], environment: Any = None) -> None:
        super().__init__(environment)
        self._delegates = dict(delegates)
        self._loop = BackgroundLoop()

    def call_service(self, task: Any, *, operation_name: str, operation_params: Mapping[str, Any]) -> str:
        """Run the delegate of a service task; what it gives is also the task's result variable.

        Raises:
            TaskNotDone: it is not done, and the task is in error.
            UsageError: there is no delegate of that name, or the process has to be changed; the task is in error.
        """
        delegate = self._delegates.get(operation_name)
        if delegate is None:
            raise UsageError(f"No delegate is registered for {operation_name!r:.100}; nothing ran.")
        given = {name: parameter["value"] for name, parameter in operation_params.items()}
        end = self._run(delegate, task, {**task.data, **given})
        if isinstance(end, Completed):
            outputs = as_json_data(end.variables)
            task.data.update(outputs)
            return json.dumps(outputs)
        if isinstance(end, BpmnError) and _throw(task, end):
            return json.dumps({"code": end.code, "message": end.message})
        raise TaskNotDone(end, task)

    def close(self) -> None:
        """End the thread that runs delegates of an `AsyncSemel`, if there is one. Close the engine before."""
        self._loop.close()

    def run_coroutine(self, work: Any) -> Any:
        """Carry a coroutine out where delegates of an `AsyncSemel` run, such as the `close()` of that engine."""
        return self._loop.run(work)

    def _run(self, delegate: Runnable, task: Any, variables: Mapping[str, Any]) -> End:
        instance, activity = str(task.workflow.top_workflow.task_tree.id), task.task_spec.bpmn_id
        if not delegate.is_async:
            end: End = delegate.run(variables, instance=instance, activity=activity)
            return end
        found: End = self._loop.run(run_here(delegate, variables, instance=instance, activity=activity))
        return found


def reset_failed_tasks(workflow: Any) -> int:
    """Make the tasks of a process that are in error ready again, so that the next steps try them; says how many."""
    failed = workflow.get_tasks(state=TaskState.ERROR)
    for task in failed:
        workflow.reset_from_task_id(task.id)
    return len(failed)


def _throw(task: Any, error: BpmnError) -> bool:
    """Send a business error to the boundary event that catches it; false where there is none.

    To that one alone: SpiffWorkflow would give it to every task that waits for the code, in other branches too.
    """
    event = BpmnEvent(ErrorEventDefinition(error.code, code=error.code), payload=dict(error.variables))
    catcher = _find_catcher(task, event)
    if catcher is None:
        return False
    catcher.data.update(error.variables)
    catcher.task_spec.catch(catcher, event)
    catcher.task_spec._update(catcher)  # noqa: SLF001 - what its event manager does after an event
    return True


def _find_catcher(task: Any, event: BpmnEvent) -> Any:
    """The boundary event of a task, or of a subprocess around it. They stand beside it, below what splits the way."""
    while task is not None:
        for other in task.parent.children:
            spec = other.task_spec
            if isinstance(spec, BoundaryEvent) and other.has_state(TaskState.WAITING) and spec.catches(other, event):
                return other
        parent = getattr(task.workflow, "parent_task_id", None)
        task = None if parent is None else task.workflow.top_workflow.get_task_from_id(parent)
    return None


def _why(end: Retry | Incident | BpmnError) -> str:
    match end:
        case Retry():
            return f"The task is not done, and may be tried again in {end.after.total_seconds():.1f} s: {end.reason}"
        case Incident():
            return f"The task needs a person, who finds it as {end.reference[:16]}: {end.reason}"
    return f"No boundary event catches the error of the task: {end}"
