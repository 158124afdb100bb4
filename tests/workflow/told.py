"""One task in each engine, and what the engine was told about it, in words that all of them share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from pyzeebe import ZeebeWorker, create_insecure_channel
from SpiffWorkflow.bpmn.workflow import BpmnWorkflow
from SpiffWorkflow.spiff.parser.process import SpiffBpmnParser
from SpiffWorkflow.task import TaskState
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker

from semel.errors import UsageError
from semel.workflow import BpmnError, Completed, Incident, Retry
from semel.workflow.engines import camunda7, spiff, temporal, zeebe
from tests.workflow.camunda_server import Camunda
from tests.workflow.temporal_workflows import RevenueCycle
from tests.workflow.zeebe_server import EngineJob, Zeebe

PROCESS = Path(__file__).parent / "processes" / "payment.bpmn"
_RETRIES = 3


@dataclass(frozen=True)
class Told:
    """What an engine heard.

    Attributes:
        how: the task is done, ended with a business error, is to be tried again at the price of an attempt or for
            nothing, or needs a person.
        code: of the business error.
        why: for people, where the engine was told.
        variables: what the process gets.
    """

    how: Literal["completed", "error", "retry", "waits", "incident"]
    code: str | None = None
    why: str = field(default="", compare=False)
    variables: Mapping[str, Any] = field(default_factory=dict, compare=False)


def _in_words(end: Any) -> Told:
    match end:
        case Completed():
            return Told("completed", variables=end.variables)
        case BpmnError():
            return Told("error", end.code, end.message)
        case Retry():
            return Told("retry" if end.counts else "waits", why=end.reason)
        case Incident():
            return Told("incident", why=end.reason)
    raise AssertionError(end)


async def by_hand(task: Any, variables: dict[str, Any], _address: str) -> Told:
    """Without any engine."""
    try:
        return _in_words(await task.run(variables))
    except UsageError as error:
        return Told("incident", why=error.message)


async def in_spiff(task: Any, variables: dict[str, Any], _address: str) -> Told:
    """SpiffWorkflow, in a thread: it cannot await."""
    return await asyncio.to_thread(_run_in_spiff, task, variables)


def _run_in_spiff(task: Any, variables: dict[str, Any]) -> Told:
    parser = SpiffBpmnParser()
    parser.add_bpmn_file(str(PROCESS))
    engine = spiff.ScriptEngine({"payments/charge": task})
    workflow = BpmnWorkflow(parser.get_spec("revenue_cycle"), script_engine=engine)
    workflow.task_tree.data.update(variables)
    try:
        workflow.do_engine_steps()
    except spiff.TaskNotDone as not_done:
        return _in_words(not_done.end)
    except UsageError as error:
        return Told("incident", why=error.message)
    finally:
        engine.run_coroutine(task.semel.close())
        engine.close()
    if any(found.has_state(TaskState.COMPLETED) for found in workflow.get_tasks(spec_name="not_paid")):
        return Told("error", "PAYMENT_DECLINED")
    return Told("completed", variables=dict(workflow.data))


async def in_temporal(task: Any, variables: dict[str, Any], address: str) -> Told:
    """An activity on a real server, which is tried once."""
    client, queue = await Client.connect(address), uuid4().hex
    activities = [temporal.activity(task, name="payment")]
    async with Worker(client, task_queue=queue, workflows=[RevenueCycle], activities=activities):
        asked = {**variables, "attempts": 1}
        try:
            outputs = await client.execute_workflow(RevenueCycle.run, asked, id=uuid4().hex, task_queue=queue)
        except WorkflowFailureError as failure:
            return _explain(failure)
    return Told("completed", variables=outputs)


def _explain(failure: WorkflowFailureError) -> Told:
    assert isinstance(failure.cause, ActivityError)
    error = failure.cause.cause
    assert isinstance(error, ApplicationError)
    match error.type:
        case temporal.INCIDENT:
            return Told("incident", why=error.message)
        case temporal.RETRY:
            return Told("retry", why=error.message)
        case code:
            return Told("error", code, error.message)


async def in_camunda_7(task: Any, variables: dict[str, Any], _address: str) -> Told:
    """An external task of the small server of the protocol."""
    engine, stop = Camunda(), asyncio.Event()
    engine.add("t1", "payment", {name: value for name, value in variables.items() if isinstance(value, str)})
    asked: Any = {"stop": stop, "make_client": engine.client}
    working = asyncio.create_task(camunda7.work("http://engine", {"payment": task}, **asked))
    heard = await engine.until("t1", lambda task: task.ended or task.retries is not None)
    said, ended = heard.said, heard.ended
    stop.set()
    await working
    if ended == "complete":
        return Told("completed", variables=camunda7.plain_variables(said["variables"]))
    if ended == "bpmnError":
        return Told("error", said["errorCode"], said["errorMessage"])
    return _after_failure(said["retries"], said["errorMessage"])


async def in_zeebe(task: Any, variables: dict[str, Any], _address: str) -> Told:
    """A job of the small gateway of the protocol."""
    engine = Zeebe()  # type: ignore[abstract]  # what no test asks for
    engine.add(1, variables)
    async with engine.serve() as address:
        channel = create_insecure_channel(address)
        worker = ZeebeWorker(channel, request_timeout=100)
        zeebe.register(worker, "payment", task)
        working = asyncio.create_task(worker.work())
        job: EngineJob = await engine.until(1, lambda job: job.ended is not None or "fail" in job.tells)
        said, ended = job.said, job.ended
        await worker.stop()
        await working
        await channel.close()
    if ended == "complete":
        return Told("completed", variables=json.loads(said.variables))
    if ended == "error":
        return Told("error", said.errorCode, said.errorMessage)
    return _after_failure(said.retries, said.errorMessage)


def _after_failure(retries: int, why: str) -> Told:
    if retries == 0:
        return Told("incident", why=why)
    return Told("waits" if retries == _RETRIES else "retry", why=why)


ENGINES = [by_hand, in_spiff, in_temporal, in_camunda_7, in_zeebe]
