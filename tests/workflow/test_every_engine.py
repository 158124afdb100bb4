"""One delegate, unchanged, in every engine: a payment that one of them made is found by all others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyzeebe import ZeebeWorker, create_insecure_channel
from SpiffWorkflow.bpmn.workflow import BpmnWorkflow
from SpiffWorkflow.spiff.parser.process import SpiffBpmnParser
from temporalio.client import Client
from temporalio.worker import Worker

from semel import AsyncSemel
from semel.workflow import Completed
from semel.workflow.engines import camunda7, spiff, temporal, zeebe
from tests.workflow.camunda_server import Camunda
from tests.workflow.clinic import VARIABLES, Gateway, PayClaim
from tests.workflow.temporal_workflows import RevenueCycle
from tests.workflow.zeebe_server import Zeebe

pytestmark = pytest.mark.slow
PROCESS = Path(__file__).parent / "processes" / "payment.bpmn"
Outputs = dict[str, Any]


async def by_hand(pay: PayClaim, _address: str) -> Outputs:
    end = await pay.run(VARIABLES)
    assert isinstance(end, Completed)
    return dict(end.variables)


async def in_spiff(pay: PayClaim, _address: str) -> Outputs:
    def run() -> Outputs:
        parser = SpiffBpmnParser()
        parser.add_bpmn_file(str(PROCESS))
        engine = spiff.ScriptEngine({"payments/charge": pay})
        workflow = BpmnWorkflow(parser.get_spec("revenue_cycle"), script_engine=engine)
        workflow.task_tree.data.update(VARIABLES)
        workflow.do_engine_steps()
        engine.run_coroutine(pay.semel.close())
        engine.close()
        return dict(workflow.data)

    return await asyncio.to_thread(run)


async def in_temporal(pay: PayClaim, address: str) -> Outputs:
    client, queue = await Client.connect(address), uuid4().hex
    activities = [temporal.activity(pay, name="payment")]
    async with Worker(client, task_queue=queue, workflows=[RevenueCycle], activities=activities):
        outputs: Outputs = await client.execute_workflow(RevenueCycle.run, VARIABLES, id=uuid4().hex, task_queue=queue)
    return outputs


async def in_camunda_7(pay: PayClaim, _address: str) -> Outputs:
    engine, stop = Camunda(), asyncio.Event()
    engine.add("t1", "payment", {name: value for name, value in VARIABLES.items() if isinstance(value, str)})
    asked: Any = {"stop": stop, "make_client": engine.client}
    working = asyncio.create_task(camunda7.work("http://engine", {"payment": pay}, **asked))
    task = await engine.until_ended("t1")
    stop.set()
    await working
    return camunda7.plain_variables(task.said["variables"])


async def in_zeebe(pay: PayClaim, _address: str) -> Outputs:
    engine = Zeebe()  # type: ignore[abstract]  # what no test asks for
    engine.add(1, VARIABLES)
    async with engine.serve() as address:
        channel = create_insecure_channel(address)
        worker = ZeebeWorker(channel, request_timeout=100)
        zeebe.register(worker, "payment", pay)
        working = asyncio.create_task(worker.work())
        job = await engine.until(1, lambda job: job.ended is not None)
        await worker.stop()
        await working
        await channel.close()
    outputs: Outputs = json.loads(job.said.variables)
    return outputs


ENGINES = [by_hand, in_spiff, in_temporal, in_camunda_7, in_zeebe]


@pytest.mark.parametrize("first", ENGINES, ids=lambda engine: engine.__name__)
def test_what_one_engine_did_is_found_by_all_others(first: Any, address: str, tmp_path: Path) -> None:
    gateway = Gateway()

    async def scenario() -> None:
        semel = AsyncSemel(f"sqlite:///{tmp_path}/semel.db")
        pay = PayClaim(semel, gateway)
        done = await first(pay, address)
        assert done["idempotencyDuplicate"] is False
        for engine in [engine for engine in ENGINES if engine is not first]:
            found = await engine(pay, address)
            assert found["idempotencyDuplicate"] is True, engine
            assert found["receipt"] == done["receipt"]
            assert found["idempotencyKey"] == done["idempotencyKey"]
        await semel.close()

    asyncio.run(scenario())
    assert gateway.charges == {"CLAIM-001": 1}
