"""Temporal: a real server; time-outs, a killed worker and a reset of the workflow give one effect."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker

from semel import AsyncSemel
from semel.errors import KeyReused
from semel.workflow import BpmnError
from semel.workflow.engines.temporal import INCIDENT, activity, start
from tests.processes import child
from tests.workflow.ledger import Ledger
from tests.workflow.temporal_clinic import PayOnce
from tests.workflow.temporal_workflows import RevenueCycle, Undeterministic

pytestmark = pytest.mark.slow
LONGEST = timedelta(seconds=60)
VARIABLES: dict[str, Any] = {"claimId": "CLAIM-001", "paymentId": "1", "amount": "1500.00"}


def until(condition: Callable[[], bool]) -> None:
    """Look until it is so: a process tells nobody what it has done."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Clinic:
    """A worker with the delegate, on a queue of its own."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.folder = folder
        self.queue = f"semel-{uuid4().hex}"
        self.semel = AsyncSemel(f"sqlite:///{folder}/semel.db")
        self.ledger = Ledger(folder / "bank.db")
        self.pay = PayOnce(self.semel, self.ledger)

    async def begin(self, variables: dict[str, Any], workflow: Any = RevenueCycle) -> Any:
        """Start a workflow."""
        client = await Client.connect(self.address)
        return await client.start_workflow(
            workflow.run, variables, id=f"cycle-{uuid4().hex}", task_queue=self.queue, execution_timeout=LONGEST
        )

    @asynccontextmanager
    async def work(self) -> AsyncIterator[Client]:
        """Work inside."""
        client = await Client.connect(self.address)
        activities = [activity(self.pay, name="payment")]
        workflows = [RevenueCycle, Undeterministic]
        async with Worker(client, task_queue=self.queue, workflows=workflows, activities=activities):
            yield client
        await self.semel.close()

    def worker_process(self, mode: str) -> Any:
        """A worker in a process of its own."""
        command = [
            sys.executable,
            "-m",
            "tests.workflow.temporal_worker",
            self.address,
            self.queue,
            str(self.folder),
            mode,
        ]
        return child(command, stdout=subprocess.PIPE)


@pytest.fixture
def clinic(address: str, tmp_path: Path) -> Clinic:
    return Clinic(address, tmp_path)


def test_an_activity_gives_its_outputs(clinic: Clinic) -> None:
    async def scenario() -> Any:
        async with clinic.work():
            return await (await clinic.begin(VARIABLES)).result()

    paid = asyncio.run(scenario())
    assert paid["receipt"].startswith("R-")
    assert paid["idempotencyDuplicate"] is False


def test_a_second_workflow_for_the_same_claim_is_no_second_payment(clinic: Clinic) -> None:
    async def scenario() -> Any:
        async with clinic.work():
            first = await (await clinic.begin(VARIABLES)).result()
            second = await (await clinic.begin(VARIABLES)).result()
            return first, second

    first, second = asyncio.run(scenario())
    assert second["receipt"] == first["receipt"]
    assert second["idempotencyDuplicate"] is True
    assert clinic.ledger.requests() == 1


def test_a_reset_of_the_workflow_is_no_second_payment(clinic: Clinic) -> None:
    async def scenario() -> Any:
        async with clinic.work() as client:
            handle = await clinic.begin(VARIABLES)
            first = await handle.result()
            reset = await client.workflow_service.reset_workflow_execution(
                ResetWorkflowExecutionRequest(
                    namespace="default",
                    workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=handle.result_run_id),
                    workflow_task_finish_event_id=4,
                    request_id=uuid4().hex,
                )
            )
            again = await client.get_workflow_handle(handle.id, run_id=reset.run_id).result()
            return handle.result_run_id, reset.run_id, first, again

    old, new, first, again = asyncio.run(scenario())
    assert new != old
    assert again["receipt"] == first["receipt"]
    assert again["idempotencyDuplicate"] is True
    assert clinic.ledger.requests() == 1


def test_an_activity_that_timed_out_is_one_payment(clinic: Clinic) -> None:
    async def scenario() -> Any:
        began, calls = asyncio.Event(), 0

        async def hang_the_first_time() -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                began.set()
                await asyncio.Event().wait()

        clinic.pay.after = hang_the_first_time
        async with clinic.work():
            handle = await clinic.begin({**VARIABLES, "timeout": 1})
            paid = await handle.result()
            assert began.is_set()
            return paid

    paid = asyncio.run(scenario())
    assert paid["receipt"].startswith("R-")
    assert clinic.ledger.payments("CLAIM-001") == 1
    assert clinic.ledger.requests() > 1, "the time-out has to strike after the bank was asked"


def test_a_worker_that_is_killed_after_the_payment_is_one_payment(clinic: Clinic) -> None:
    async def begin() -> Any:
        return await clinic.begin({**VARIABLES, "heartbeat": 1})

    async def finish(id_: str) -> Any:
        async with clinic.work() as client:
            return await client.get_workflow_handle(id_).result()

    with clinic.worker_process("hangs") as worker:
        assert worker.stdout.readline() == "ready\n"
        handle = asyncio.run(begin())
        until((clinic.folder / "hangs").exists)
        worker.kill()
        worker.wait(30)
    paid = asyncio.run(finish(handle.id))
    assert paid["receipt"].startswith("R-")
    assert clinic.ledger.payments("CLAIM-001") == 1
    assert clinic.ledger.requests() == 2


@pytest.mark.parametrize("lease", [0.6, 30], ids=["short lease", "lease longer than the heartbeats"])
def test_an_activity_that_burns_the_processor_for_three_heartbeats_is_one_attempt(clinic: Clinic, lease: float) -> None:
    class Burning(PayOnce):
        lease_for = timedelta(seconds=lease)

    async def burn() -> None:
        ends = time.monotonic() + 3
        while time.monotonic() < ends:
            pass

    async def scenario() -> Any:
        clinic.pay = Burning(clinic.semel, clinic.ledger)
        clinic.pay.after = burn
        async with clinic.work():
            handle = await clinic.begin({**VARIABLES, "heartbeat": 1})
            await handle.result()
            events = (await handle.fetch_history()).events
            return [event.activity_task_started_event_attributes.attempt for event in events]

    assert max(asyncio.run(scenario())) == 1
    assert clinic.ledger.requests() == 1


@pytest.mark.parametrize(
    ("error", "code"), [(BpmnError("DECLINED", "no", {"by": "bank"}), "DECLINED"), (RuntimeError(), INCIDENT)]
)
def test_what_is_final_is_not_tried_again_by_temporal(clinic: Clinic, error: Exception, code: str) -> None:
    class Held(PayOnce):
        in_doubt = "hold"

    asked = []

    def refuse() -> None:
        asked.append(1)
        raise error

    async def scenario() -> Any:
        clinic.pay = Held(clinic.semel, clinic.ledger)
        clinic.pay.before = refuse
        async with clinic.work():
            with pytest.raises(WorkflowFailureError) as caught:
                await (await clinic.begin(VARIABLES)).result()
        assert isinstance(caught.value.cause, ActivityError)
        return caught.value.cause.cause

    found = asyncio.run(scenario())
    assert isinstance(found, ApplicationError)
    assert found.type == code
    assert asked == [1]


@pytest.mark.parametrize("wrong", ["a variable", "outputs"])
def test_what_has_to_be_changed_in_the_program_is_an_incident_and_not_tried_for_ever(
    clinic: Clinic, wrong: str
) -> None:
    class Mistaken(PayOnce):
        def outputs(self, value: str, v: Any) -> dict[str, Any]:
            return {"receipt": object() if wrong == "outputs" else value}

    async def scenario() -> Any:
        clinic.pay = Mistaken(clinic.semel, clinic.ledger)
        given = {"claimId": "CLAIM-001", "paymentId": "1"} if wrong == "a variable" else VARIABLES
        async with clinic.work():
            with pytest.raises(WorkflowFailureError) as caught:
                await (await clinic.begin(given)).result()
        assert isinstance(caught.value.cause, ActivityError)
        return caught.value.cause.cause

    found = asyncio.run(scenario())
    assert isinstance(found, ApplicationError)
    assert found.type == INCIDENT
    assert ("amount" if wrong == "a variable" else "JSON") in found.message
    assert clinic.ledger.requests() == (0 if wrong == "a variable" else 1)


def test_a_delegate_refuses_to_run_in_the_code_of_a_workflow(clinic: Clinic) -> None:
    async def scenario() -> Any:
        async with clinic.work():
            return await (await clinic.begin(VARIABLES, Undeterministic)).result()

    assert "activity" in asyncio.run(scenario())


def test_a_workflow_is_started_once_for_its_key(clinic: Clinic) -> None:
    async def scenario() -> Any:
        async with clinic.work() as client:
            asked: dict[str, Any] = {"key": ("CLAIM-001",), "task_queue": clinic.queue}
            ids = {await start(clinic.semel, client, "RevenueCycle", VARIABLES, **asked) for _ in range(2)}
            (id_,) = ids
            await client.get_workflow_handle(id_).result()
            other = AsyncSemel(f"sqlite:///{clinic.folder}/other.db")
            ids.add(await start(other, client, "RevenueCycle", VARIABLES, **asked))
            with pytest.raises(KeyReused):
                await start(other, client, "RevenueCycle", {**VARIABLES, "amount": "1"}, **asked)
            await other.close()
            return ids

    assert len(asyncio.run(scenario())) == 1
    assert clinic.ledger.requests() == 1
