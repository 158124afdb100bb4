"""How a task is run and compensated: as ordinary operations of the engine.

- A duplicate never calls the function: its value is decoded by the annotation of `execute`.
- A compensation is an operation of its own. Its record, which is kept at least as long as that of the original, is what
  marks the original: whoever asks for a duplicate of it reads that record, too.
- What a task met is told as a value. Only what has to be changed in the program or in the process is raised.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from semel.core.flow import Flow, ask
from semel.core.key import Key
from semel.core.operations import Read
from semel.core.record import Status, StoredRecord
from semel.engine import call_errors
from semel.engine.async_engine import AsyncEngine
from semel.engine.call_flow import Request, Result, stored_record_of
from semel.engine.decorator import async_call_function, sync_call_function
from semel.engine.sync_engine import SyncEngine
from semel.errors import ResultNotKept, SemelError, StoreUnavailable, UsageError
from semel.workflow.ends import COMPENSATED, BpmnError, Completed, End, Incident, Retry
from semel.workflow.inputs import DUPLICATE, EXECUTION_TIME, FROM_CACHE, KEY
from semel.workflow.task import Place, Task, Work


class Run:
    """One run of a task: how its function ended, and in which attempt."""

    error: Exception | None = None
    number = 1

    def __init__(self, task: Task, work: Work, request: Request, arguments: dict[str, Any]) -> None:
        self.task = task
        self.work = work
        self.request = request
        self.arguments = arguments

    def begin(self, attempt: Any) -> Any:
        """Call the function as this attempt."""
        if attempt is not None:
            self.number = attempt.number
        return self.work.call(attempt, self.arguments)

    def fail(self, error: Exception) -> Exception:
        """Note how the function ended, and give what is recorded of it."""
        self.error = self.task.translate(error)
        return self.error

    def explain(self, error: Exception) -> End:
        """What an error of the call means.

        Raises:
            Exception: it is neither about the task nor an answer of the engine.
        """
        reference = self.request.key.reference
        if error is self.error:
            return self.task.after_failure(self.work, error, reference, self.number)
        if isinstance(error, SemelError):
            return self.task.explain(error, reference)
        raise error


@dataclass(frozen=True, slots=True)
class Done:
    """What the original of a compensation gave."""

    value: Any


def refuse_in_workflow() -> None:
    """Refuse to run where an engine runs code again and again to find out where it was.

    Raises:
        UsageError: this is the code of a workflow.
    """
    temporal = sys.modules.get("temporalio.workflow")
    if temporal is not None and temporal.in_workflow():
        raise UsageError(
            "This is the code of a Temporal workflow, which is run again on every replay; nothing ran. Call the "
            "delegate from an activity: semel.workflow.engines.temporal.activity()."
        )


def _judge_original(task: Task, record: StoredRecord | None, now_us: int) -> Done | Retry | Incident | None:
    """What a compensation has to do about its original: undo what it gave, wait, call a person, or (None) nothing."""
    if record is None or record.status in (Status.FAILED, Status.CANCELLED):
        return None
    if record.status is Status.RUNNING and record.lease_us > now_us:
        wait = timedelta(microseconds=record.lease_us - now_us)
        return Retry(wait, counts=False, reason="What is to be compensated is still running.")
    if record.status is not Status.COMPLETED:
        return Incident(record.reference, "Whether what is to be compensated happened is in doubt.")
    if record.expires_us <= now_us:
        return None
    try:
        return Done(call_errors.replay(record, task.execution.spec.shape))
    except ResultNotKept as error:
        return Incident(record.reference, error.message)


def _marks(compensation: StoredRecord | None, now_us: int) -> bool:
    """Whether a compensation has begun, and was not given up."""
    if compensation is None:
        return False
    if compensation.status in (Status.FAILED, Status.CANCELLED) and compensation.final:
        return False
    return compensation.status is not Status.COMPLETED or compensation.expires_us > now_us


def _own(key: Key, result: Result[Any] | None) -> dict[str, Any]:
    """What semel sets in the variables of the process; without a result nothing ran and nothing was found."""
    is_fresh = result is not None and not result.replayed
    return {
        KEY: key.reference,
        DUPLICATE: result is not None and result.replayed,
        FROM_CACHE: result is not None and result.cache == "hit",
        EXECUTION_TIME: round(result.seconds * 1000) if result is not None and is_fresh else 0,
    }


def _once(operation: Any) -> Flow[Any]:
    return (yield from ask(operation))


class AsyncTasks:
    """Runs the tasks of one delegate."""

    def __init__(self, engine: AsyncEngine, task: Task) -> None:
        self._engine = engine
        self._task = task

    async def run(self, variables: Mapping[str, Any], place: Place) -> End:
        """Run a task once, or say what came of it before."""
        refuse_in_workflow()
        task = self._task
        key = task.identify(variables)
        request, arguments = task.request(task.execution, key, variables, place, {})
        run = Run(task, task.execution, request, arguments)
        try:
            result = await self._engine.call(request, self._handler(run))
            if result.replayed and task.compensation is not None and await self._is_compensated(variables, result):
                return BpmnError(COMPENSATED, "It was done, and compensated since; nothing ran now.")
        except Exception as error:  # noqa: BLE001 - judged by the run, which raises what is not about it
            return run.explain(error)
        return Completed({**task.outputs(result.value, variables), **_own(key, result)}, result.value)

    async def compensate(self, variables: Mapping[str, Any], place: Place) -> End:
        """Undo a task once, if it was done.

        Raises:
            UsageError: the delegate declares no compensation.
        """
        refuse_in_workflow()
        task, work = self._task, self._task.compensation
        if work is None:
            raise UsageError("This delegate has no compensate(); nothing ran.")
        original = task.identify(variables)
        try:
            found = await self._ask(Read(original.digest, operation=original.operation))
        except StoreUnavailable as error:
            return task.explain(error, original.reference)
        done = _judge_original(task, found.record, found.now_us)
        if done is None:
            return Completed(_own(original, None))
        if not isinstance(done, Done):
            return done
        key = task.identify_compensation(variables, found.record)
        tags = {"compensates": original.reference}
        request, arguments = task.request(work, key, variables, place, tags)
        run = Run(task, work, request, {"value": done.value, **arguments})
        try:
            result = await self._engine.call(request, self._handler(run))
        except Exception as error:  # noqa: BLE001 - judged by the run, which raises what is not about it
            return run.explain(error)
        return Completed(_own(key, result), result.value)

    def _handler(self, run: Run) -> Callable[[], Awaitable[Any]]:
        async def call_task() -> Any:
            try:
                value = await async_call_function(lambda: run.begin(self._engine.current()))
            except Exception as error:
                recorded = run.fail(error)
                if recorded is error:
                    raise
                raise recorded from error
            if isinstance(value, BpmnError):
                raise run.fail(value)
            return value

        return call_task

    async def _is_compensated(self, variables: Mapping[str, Any], result: Result[Any]) -> bool:
        original = stored_record_of(result)
        if original is None:
            return False
        key = self._task.identify_compensation(variables, original)
        found = await self._ask(Read(key.digest, operation=key.operation))
        return _marks(found.record, found.now_us)

    async def _ask(self, operation: Any) -> Any:
        return await self._engine.perform(_once(operation))


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class SyncTasks:
    """Runs the tasks of one delegate."""

    def __init__(self, engine: SyncEngine, task: Task) -> None:
        self._engine = engine
        self._task = task

    def run(self, variables: Mapping[str, Any], place: Place) -> End:
        """Run a task once, or say what came of it before."""
        refuse_in_workflow()
        task = self._task
        key = task.identify(variables)
        request, arguments = task.request(task.execution, key, variables, place, {})
        run = Run(task, task.execution, request, arguments)
        try:
            result = self._engine.call(request, self._handler(run))
            if result.replayed and task.compensation is not None and self._is_compensated(variables, result):
                return BpmnError(COMPENSATED, "It was done, and compensated since; nothing ran now.")
        except Exception as error:  # noqa: BLE001 - judged by the run, which raises what is not about it
            return run.explain(error)
        return Completed({**task.outputs(result.value, variables), **_own(key, result)}, result.value)

    def compensate(self, variables: Mapping[str, Any], place: Place) -> End:
        """Undo a task once, if it was done.

        Raises:
            UsageError: the delegate declares no compensation.
        """
        refuse_in_workflow()
        task, work = self._task, self._task.compensation
        if work is None:
            raise UsageError("This delegate has no compensate(); nothing ran.")
        original = task.identify(variables)
        try:
            found = self._ask(Read(original.digest, operation=original.operation))
        except StoreUnavailable as error:
            return task.explain(error, original.reference)
        done = _judge_original(task, found.record, found.now_us)
        if done is None:
            return Completed(_own(original, None))
        if not isinstance(done, Done):
            return done
        key = task.identify_compensation(variables, found.record)
        tags = {"compensates": original.reference}
        request, arguments = task.request(work, key, variables, place, tags)
        run = Run(task, work, request, {"value": done.value, **arguments})
        try:
            result = self._engine.call(request, self._handler(run))
        except Exception as error:  # noqa: BLE001 - judged by the run, which raises what is not about it
            return run.explain(error)
        return Completed(_own(key, result), result.value)

    def _handler(self, run: Run) -> Callable[[], Any]:
        def call_task() -> Any:
            try:
                value = sync_call_function(lambda: run.begin(self._engine.current()))
            except Exception as error:
                recorded = run.fail(error)
                if recorded is error:
                    raise
                raise recorded from error
            if isinstance(value, BpmnError):
                raise run.fail(value)
            return value

        return call_task

    def _is_compensated(self, variables: Mapping[str, Any], result: Result[Any]) -> bool:
        original = stored_record_of(result)
        if original is None:
            return False
        key = self._task.identify_compensation(variables, original)
        found = self._ask(Read(key.digest, operation=key.operation))
        return _marks(found.record, found.now_us)

    def _ask(self, operation: Any) -> Any:
        return self._engine.perform(_once(operation))
