"""Camunda 7: external tasks against a small server of the protocol. The engine itself is in no registry."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from semel import AsyncSemel, Semel
from semel.errors import UsageError
from semel.stores.memory import MemoryStore
from semel.workflow.engines import camunda7
from semel.workflow.engines.running import MOST_OUTPUTS
from tests.workflow.camunda_server import Camunda
from tests.workflow.clinic import VARIABLES, CardDeclined, Gateway, LineDown, PayClaim, SyncPayClaim, fail
from tests.workflow.silent_store import silent

URL = "http://engine/engine-rest"
ASKED = {name: value for name, value in VARIABLES.items() if isinstance(value, str) and name != "businessKey"}


class Slow(PayClaim):
    """Waits in the middle until it is let go."""

    lease_for = timedelta(seconds=0.3)

    def __init__(self, semel: AsyncSemel, gateway: Gateway) -> None:
        super().__init__(semel, gateway)
        self.began, self.go = asyncio.Event(), asyncio.Event()

    async def execute(self, claimId: str, paymentId: str, amount: str) -> str:  # type: ignore[override]  # noqa: N803
        self.began.set()
        await self.go.wait()
        return self.gateway.charge(claimId, amount).receipt  # type: ignore[arg-type]  # is only handed on

    def outputs(self, value: Any, v: Any) -> dict[str, Any]:
        return {"receipt": value}


class Burning(PayClaim):
    """Burns the processor, and so blocks its event loop, for three locks."""

    lease_for = timedelta(seconds=0.5)

    async def execute(self, claimId: str, paymentId: str, amount: str) -> str:  # type: ignore[override]  # noqa: N803
        receipt = self.gateway.charge(claimId, amount).receipt  # type: ignore[arg-type]  # is only handed on
        ends = time.monotonic() + 3 * 2 * self.lease_for.total_seconds()
        while time.monotonic() < ends:
            pass
        return receipt

    def outputs(self, value: Any, v: Any) -> dict[str, Any]:
        return {"receipt": value}


class Office:
    """An engine, workers, and what they do."""

    def __init__(self) -> None:
        self.camunda = Camunda()
        self.gateway = Gateway()
        self.store = MemoryStore()
        self.semel = AsyncSemel(self.store)
        self.pay: Any = PayClaim(self.semel, self.gateway)

    @asynccontextmanager
    async def work(self, **options: Any) -> AsyncIterator[None]:
        """Work inside, and end without leaving anything half done."""
        stop = asyncio.Event()
        asked: dict[str, Any] = {"stop": stop, "make_client": self.camunda.client, **options}
        working = asyncio.create_task(camunda7.work(URL, {"payment": self.pay}, **asked))
        yield
        stop.set()
        await working


def play(scenario: Callable[[Office], Awaitable[None]]) -> None:
    """Run a scenario."""

    async def played() -> None:
        office = Office()
        async with asyncio.timeout(60):
            await scenario(office)
        await office.semel.close()

    asyncio.run(played())


def test_a_task_is_completed_with_typed_outputs() -> None:
    async def scenario(office: Office) -> None:
        office.camunda.add("t1", "payment", ASKED)
        async with office.work():
            task = await office.camunda.until_ended("t1")
        assert task.ended == "complete"
        assert task.said["variables"]["paymentProcessed"] == {"value": True, "type": "Boolean"}
        assert task.said["variables"]["receipt"] == {"value": "R-CLAIM-001-1", "type": "String"}
        record = await office.semel.read(office.pay.identify(VARIABLES))
        assert record is not None
        assert record.about.process_instance == "proc-1"
        assert record.about.business_key == "cycle-1"

    play(scenario)


def test_a_delegate_of_threads_runs_in_one() -> None:
    async def scenario(office: Office) -> None:
        office.pay = SyncPayClaim(Semel(MemoryStore()), office.gateway)
        office.camunda.add("t1", "payment", ASKED)
        async with office.work():
            await office.camunda.until_ended("t1")
        office.pay.semel.close()
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)


def test_a_lost_answer_to_a_completion_is_no_second_payment() -> None:
    async def scenario(office: Office) -> None:
        office.camunda.lose["complete"] = 1
        office.camunda.add("t1", "payment", ASKED)
        office.camunda.add("t2", "payment", ASKED)
        async with office.work(max_tasks=1):
            await office.camunda.until_ended("t1")
            await office.camunda.until_ended("t2")
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)


def test_a_completion_that_never_arrives_is_told_again_from_the_record() -> None:
    async def scenario(office: Office) -> None:
        office.camunda.drop["complete"] = 1
        office.camunda.add("t1", "payment", ASKED)
        async with office.work():
            await office.camunda.until("t1", lambda _: office.camunda.drop["complete"] == 0)
            office.camunda.end_lock("t1")
            task = await office.camunda.until_ended("t1")
        assert office.camunda.handed_out == {"t1": 2}
        assert task.said["variables"]["idempotencyDuplicate"]["value"] is True
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)


@pytest.mark.parametrize(("status", "retries"), [(400, 0), (500, camunda7.RETRIES - 1)])
def test_a_completion_that_the_engine_refuses_is_a_failure_that_people_see(status: int, retries: int) -> None:
    async def scenario(office: Office) -> None:
        office.camunda.answer_instead["complete"] = httpx.Response(status, json={"message": "Cannot convert value"})
        office.camunda.add("t1", "payment", ASKED)
        async with office.work():
            task = await office.camunda.until("t1", lambda task: task.retries is not None)
        assert task.retries == retries
        assert "Cannot convert value" in task.said["errorMessage"]
        assert task.said["errorDetails"] == office.pay.identify(VARIABLES).reference
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)


@pytest.mark.parametrize("value", [2**70, "x" * 5000, -(2**63), ["x" * 5000]])
def test_an_output_that_no_plain_type_takes_arrives_as_json(value: Any) -> None:
    class Large(PayClaim):
        def outputs(self, _value: Any, v: Any) -> dict[str, Any]:
            return {"large": value}

    async def scenario(office: Office) -> None:
        office.pay = Large(office.semel, office.gateway)
        office.camunda.add("t1", "payment", ASKED)
        async with office.work():
            task = await office.camunda.until("t1", lambda task: task.ended or task.retries is not None)
        assert task.ended == "complete"
        assert camunda7.plain_variables(task.said["variables"])["large"] == value

    play(scenario)


def test_a_variable_that_is_no_json_although_it_says_so_ends_no_worker() -> None:
    async def scenario(office: Office) -> None:
        task = office.camunda.add("t1", "payment", ASKED)
        task.variables["form"] = {
            "type": "Object",
            "value": "{no json",
            "valueInfo": {"serializationDataFormat": "application/json"},
        }
        async with office.work():
            await office.camunda.until_ended("t1")
        assert task.ended == "complete"

    play(scenario)


@pytest.mark.parametrize("answered", ["<html>", '{"error": "login"}', "[1]"])
def test_an_answer_that_is_no_list_of_tasks_ends_no_worker(answered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(camunda7, "_PAUSE", 0.0)

    async def scenario(office: Office) -> None:
        office.camunda.answer_instead["fetchAndLock"] = httpx.Response(200, text=answered)
        office.camunda.add("t1", "payment", ASKED)
        async with office.work():
            await office.camunda.until_ended("t1")

    play(scenario)


def test_an_instant_of_the_engine_is_an_input() -> None:
    class At(PayClaim):
        async def execute(self, claimId: str, paymentId: str, at: datetime) -> str:  # type: ignore[override]  # noqa: N803
            return at.astimezone(UTC).isoformat()

        def outputs(self, value: str, v: Any) -> dict[str, Any]:  # type: ignore[override]  # of another value
            return {"paidAt": value}

    async def scenario(office: Office) -> None:
        office.pay = At(office.semel, office.gateway)
        task = office.camunda.add("t1", "payment", ASKED)
        task.variables["at"] = {"type": "Date", "value": "2024-12-09T08:30:00.000-0300"}
        async with office.work():
            await office.camunda.until_ended("t1")
        assert task.said["variables"]["paidAt"]["value"] == "2024-12-09T11:30:00+00:00"

    play(scenario)


def test_a_lost_answer_to_a_fetch_leaves_the_task_to_the_next_one() -> None:
    async def scenario(office: Office) -> None:
        office.camunda.lose["fetchAndLock"] = 1
        office.camunda.add("t1", "payment", ASKED)
        async with office.work():
            await office.camunda.until("t1", lambda task: task.worker is not None)
            office.camunda.end_lock("t1")
            await office.camunda.until_ended("t1")
        assert office.camunda.handed_out == {"t1": 2}
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)


def test_a_task_that_two_workers_have_is_done_once_and_never_an_incident() -> None:
    async def scenario(office: Office) -> None:
        slow = office.pay = Slow(office.semel, office.gateway)
        task = office.camunda.add("t1", "payment", ASKED)
        async with office.work(worker="first"):
            await slow.began.wait()
            office.camunda.end_lock("t1")
            async with office.work(worker="second"):
                await office.camunda.until("t1", lambda task: task.said.get("workerId") == "second")
                assert task.retries == camunda7.RETRIES, "waiting for the first one costs no retry"
                slow.go.set()
                await office.camunda.until_ended("t1")
        assert task.ended == "complete"
        assert task.retries != 0
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)


def test_a_completion_that_comes_too_late_is_success(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(office: Office) -> None:
        slow = office.pay = Slow(office.semel, office.gateway)
        task = office.camunda.add("t1", "payment", ASKED)
        async with office.work(worker="first"):
            await slow.began.wait()
            task.ended = "complete"  # as another worker of the same record would have
            slow.go.set()
        assert ("complete", 404) in office.camunda.refused
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)
    assert [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_a_lock_is_extended_while_the_delegate_runs() -> None:
    async def scenario(office: Office) -> None:
        slow = office.pay = Slow(office.semel, office.gateway)
        office.camunda.add("t1", "payment", ASKED)
        async with office.work():
            await office.camunda.until("t1", lambda task: task.extended >= 2)
            slow.go.set()
            await office.camunda.until_ended("t1")
        assert office.camunda.handed_out == {"t1": 1}

    play(scenario)


def test_a_delegate_that_burns_the_processor_for_three_locks_keeps_its_task() -> None:
    async def scenario(office: Office) -> None:
        office.pay = Burning(office.semel, office.gateway)
        burning, stop = threading.Event(), threading.Event()
        office.gateway.before = burning.set
        task = office.camunda.add("t1", "payment", ASKED)
        other = threading.Thread(target=fetch_in_vain, args=(office.camunda, burning, stop))
        other.start()
        try:
            async with office.work():
                await office.camunda.until("t1", lambda task: task.ended or office.camunda.handed_out["t1"] > 1)
        finally:
            burning.set()
            stop.set()
            await asyncio.to_thread(other.join)
        assert task.extended >= 3
        assert office.camunda.handed_out == {"t1": 1}
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)


def fetch_in_vain(camunda: Camunda, burning: threading.Event, stop: threading.Event) -> None:
    """Be another worker, in a thread that the first one does not block, and ask for its task."""

    async def fetch() -> None:
        asked = {"workerId": "other", "maxTasks": 1, "topics": [{"topicName": "payment", "lockDuration": 60_000}]}
        async with camunda.client() as client:
            while not stop.is_set():
                await client.post(f"{URL}/external-task/fetchAndLock", json=asked)

    assert burning.wait(60)
    asyncio.run(fetch())


def test_no_tasks_are_fetched_while_the_store_does_not_answer() -> None:
    async def scenario(office: Office) -> None:
        async with silent(office.store) as silence:
            task = office.camunda.add("t1", "payment", ASKED)
            working = office.work(max_tasks=1)
            await working.__aenter__()
            await office.camunda.until("t1", lambda task: task.retries is not None)
            assert task.retries == camunda7.RETRIES, "a store that does not answer costs no retry"
            office.camunda.add("t2", "payment", {**ASKED, "paymentId": "2"})
            await silence.until_asked(3)
            assert office.camunda.handed_out == {"t1": 1}
        await office.camunda.until_ended("t1")
        await office.camunda.until_ended("t2")
        await working.__aexit__(None, None, None)
        assert office.gateway.charges == {"CLAIM-001": 2}

    play(scenario)


def test_work_stops_although_the_store_does_not_answer() -> None:
    async def scenario(office: Office) -> None:
        async with silent(office.store) as silence:
            office.camunda.add("t1", "payment", ASKED)
            async with office.work(max_tasks=1):
                await office.camunda.until("t1", lambda task: task.retries is not None)
                await silence.until_asked(1)
        assert office.camunda.handed_out == {"t1": 1}

    play(scenario)


def test_a_business_error_is_told_with_its_code() -> None:
    async def scenario(office: Office) -> None:
        office.gateway.before = fail(CardDeclined("no money"))
        office.camunda.add("t1", "payment", ASKED)
        async with office.work():
            task = await office.camunda.until_ended("t1")
        assert task.ended == "bpmnError"
        assert (task.said["errorCode"], task.said["errorMessage"]) == ("PAYMENT_DECLINED", "no money")

    play(scenario)


@pytest.mark.parametrize(("error", "retries"), [(LineDown(), camunda7.RETRIES - 1), (RuntimeError(), 0)])
def test_a_failure_counts_and_a_doubt_is_an_incident(error: Exception, retries: int) -> None:
    class Held(PayClaim):
        in_doubt = "hold"

    async def scenario(office: Office) -> None:
        office.pay = Held(office.semel, office.gateway)
        office.gateway.before = fail(error)
        office.camunda.add("t1", "payment", ASKED)
        async with office.work():
            task = await office.camunda.until("t1", lambda task: task.retries is not None)
        assert task.said["retries"] == retries

    play(scenario)


def test_a_task_that_lacks_a_variable_is_an_incident() -> None:
    async def scenario(office: Office) -> None:
        office.camunda.add("t1", "payment", {"claimId": "CLAIM-001", "paymentId": "1"})
        async with office.work():
            task = await office.camunda.until("t1", lambda task: task.retries == 0)
        assert "amount" in task.said["errorMessage"]

    play(scenario)


def test_outputs_larger_than_an_engine_takes_are_an_incident_and_the_task_is_not_run_again() -> None:
    class Talkative(PayClaim):
        length = MOST_OUTPUTS

        def outputs(self, value: Any, v: Any) -> dict[str, Any]:
            return {"receipt": "x" * self.length}

    async def scenario(office: Office) -> None:
        talkative = office.pay = Talkative(office.semel, office.gateway)
        office.camunda.add("t1", "payment", ASKED)
        async with office.work():
            task = await office.camunda.until("t1", lambda task: task.retries == 0)
            assert "identifier" in task.said["errorMessage"]
            assert task.said["errorDetails"] == office.pay.identify(VARIABLES).reference
            talkative.length = 10
            task.retries = 1  # as an operator says after a correction
            await office.camunda.until_ended("t1")
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)


def test_locks_shorter_than_two_leases_are_refused() -> None:
    async def scenario(office: Office) -> None:
        with pytest.raises(UsageError, match="two leases"):
            await camunda7.work(URL, {"payment": office.pay}, lock_for=timedelta(seconds=40))

    play(scenario)


def test_a_process_is_started_once_although_the_answer_was_lost() -> None:
    async def scenario(office: Office) -> None:
        office.camunda.lose["start"] = 1
        async with office.camunda.client() as client:
            asked: dict[str, Any] = {"key": ("CLAIM-001",), "client": client}
            with pytest.raises(Exception, match="closed"):
                await camunda7.start(office.semel, URL, "revenue", ASKED, **asked)
            ids = {await camunda7.start(office.semel, URL, "revenue", ASKED, **asked) for _ in range(2)}
        assert ids == {"proc-1"}
        assert [id_ for _, id_ in office.camunda.instances] == ["proc-1"]

    play(scenario)


def test_an_engine_that_forgot_an_instance_does_not_start_it_again() -> None:
    async def scenario(office: Office) -> None:
        async with office.camunda.client() as client:
            asked: dict[str, Any] = {"key": ("CLAIM-001",), "client": client}
            first = await camunda7.start(office.semel, URL, "revenue", ASKED, **asked)
            office.camunda.instances.clear()
            assert await camunda7.start(office.semel, URL, "revenue", ASKED, **asked) == first
        assert office.camunda.instances == []

    play(scenario)


def test_variables_keep_their_types_on_the_way() -> None:
    given = {"a": None, "b": True, "c": 1, "d": 2**40, "e": 1.5, "f": "x", "g": {"h": [1]}}
    typed = camunda7.typed_variables(given)
    assert [typed[name]["type"] for name in "abcdefg"] == [
        "Null",
        "Boolean",
        "Integer",
        "Long",
        "Double",
        "String",
        "Json",
    ]
    assert camunda7.plain_variables(typed) == given
