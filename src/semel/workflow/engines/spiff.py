"""SpiffWorkflow: a script engine whose service tasks are delegates, and a parser of files that were drawn for Camunda.

- What a task gave is part of the process when the process is saved; what is not saved is replayed from the record.
- A business error goes to the boundary event that catches its code. One that nothing catches leaves its task in error,
  as everything does that is not done: SpiffWorkflow would otherwise go on as if it were.
- A service task of Camunda becomes one of SpiffWorkflow, so that processes are saved and loaded without another
  converter. What would be left out of it in silence is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from semel.errors import UsageError
from semel.extras import requires
from semel.workflow.ends import BpmnError, Completed, End, Incident, Retry
from semel.workflow.engines.running import BackgroundLoop, Runnable, as_json_data, run_here
from semel.workflow.inputs import KEY

with requires("semel.workflow.engines.spiff", "SpiffWorkflow"):
    from SpiffWorkflow.bpmn.exceptions import WorkflowTaskException
    from SpiffWorkflow.bpmn.parser.util import full_tag
    from SpiffWorkflow.bpmn.script_engine import PythonScriptEngine
    from SpiffWorkflow.bpmn.specs.mixins import BoundaryEventMixin as BoundaryEvent
    from SpiffWorkflow.bpmn.util.event import BpmnEvent
    from SpiffWorkflow.spiff.parser.process import SpiffBpmnParser
    from SpiffWorkflow.spiff.parser.task_spec import ServiceTaskParser as SpiffServiceTaskParser
    from SpiffWorkflow.spiff.specs.defaults import ServiceTask
    from SpiffWorkflow.spiff.specs.event_definitions import ErrorEventDefinition
    from SpiffWorkflow.task import TaskState

__all__ = ["CamundaParser", "ScriptEngine", "ServiceTaskParser", "TaskNotDone", "reset_failed_tasks"]

_CAMUNDA: Final = "{http://camunda.org/schema/1.0/bpmn}"
_ZEEBE: Final = "{http://camunda.org/schema/zeebe/1.0}"
_MAPPINGS: Final = (f"{_CAMUNDA}inputOutput", f"{_ZEEBE}ioMapping")
_EXPRESSIONS: Final = ("=", "${", "#{")


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
        delegates: by the id of the service task operator; in files of Camunda by topic or by type of job.
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
        end = self._run(delegate, task, {**_without_own_result(task), **given})
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


class ServiceTaskParser(SpiffServiceTaskParser):  # type: ignore[misc]  # SpiffWorkflow has no types
    """Parses service tasks of SpiffWorkflow, of Camunda 7 (external, by topic) and of Camunda 8 (by type of job).

    For `OVERRIDE_PARSER_CLASSES` of a parser of your own; `CamundaParser` has it.
    """

    def create_task(self) -> Any:
        """The task as SpiffWorkflow knows it.

        Raises:
            ValidationException: it names neither an operator nor a topic nor a type, or what it names, or a mapping of
                variables, is written in a language that SpiffWorkflow does not speak.
        """
        extensions = self.parse_extensions()
        if "serviceTaskOperator" in extensions:
            return super().create_task()
        return self.spec_class(
            self.spec,
            self.bpmn_id,
            operation_name=self._delegate_name(),
            operation_params={},
            result_variable=None,
            prescript=extensions.get("preScript"),
            postscript=extensions.get("postScript"),
            **self.bpmn_attributes,
        )

    def _delegate_name(self) -> str:
        elements = list(self.node.iterfind(f"{full_tag('extensionElements')}/*"))
        if any(element.tag in _MAPPINGS for element in elements):
            self.raise_validation_exception(
                "Mappings of variables are not carried out here; have the delegate take the variables themselves"
            )
        types = [element.get("type") for element in elements if element.tag == f"{_ZEEBE}taskDefinition"]
        name = next(iter(types), None) or self.node.get(f"{_CAMUNDA}topic")
        if not name or name.startswith(_EXPRESSIONS):
            self.raise_validation_exception(
                "A service task names its delegate: by the id of an operator, by camunda:topic, or by the type of "
                "zeebe:taskDefinition, and not by an expression"
            )
        return str(name)


class CamundaParser(SpiffBpmnParser):  # type: ignore[misc]  # SpiffWorkflow has no types
    """A parser of SpiffWorkflow that also takes the service tasks of files that were drawn for Camunda 7 or 8."""

    OVERRIDE_PARSER_CLASSES: ClassVar = {
        **SpiffBpmnParser.OVERRIDE_PARSER_CLASSES,
        full_tag("serviceTask"): (ServiceTaskParser, ServiceTask),
    }


def _without_own_result(task: Any) -> dict[str, Any]:
    """The data of a task without what an earlier pass of it gave: a loop asks the same question again."""
    name = getattr(task.task_spec, "result_variable", None)
    own = task.data.get(name)
    return {key: value for key, value in task.data.items() if key != name or not _is_result(own)}


def _is_result(value: Any) -> bool:
    return isinstance(value, Mapping) and KEY in value


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
