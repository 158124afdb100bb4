"""Camunda 8: jobs by pyzeebe against a small gateway of the protocol. The engine itself is in no registry."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from pyzeebe import ZeebeClient, ZeebeWorker, create_insecure_channel
from pyzeebe.errors import PyZeebeError

from semel import AsyncSemel
from semel.errors import UsageError
from semel.stores.memory import MemoryStore
from semel.workflow.engines import zeebe
from tests.workflow.clinic import VARIABLES, CardDeclined, Gateway, LineDown, PayClaim, fail
from tests.workflow.silent_store import silent
from tests.workflow.test_camunda7 import Burning, Slow
from tests.workflow.zeebe_server import Zeebe


class Office:
    """A gateway, workers, and what they do."""

    def __init__(self, address: str, engine: Zeebe) -> None:
        self.address = address
        self.engine = engine
        self.gateway = Gateway()
        self.store = MemoryStore()
        self.semel = AsyncSemel(self.store)
        self.pay: Any = PayClaim(self.semel, self.gateway)

    @asynccontextmanager
    async def work(self, **options: Any) -> AsyncIterator[None]:
        """Work inside."""
        channel = create_insecure_channel(self.address)
        worker = ZeebeWorker(channel, request_timeout=100)
        worker.poll_retry_delay = 0.02  # type: ignore[assignment]  # of whole seconds outside of tests
        zeebe.register(worker, "payment", self.pay, **options)
        working = asyncio.create_task(worker.work())
        yield
        await worker.stop()
        await working
        await channel.close()

    async def ended(self, key: int) -> Any:
        """The job, once it has ended."""
        return await self.engine.until(key, lambda job: job.ended is not None)


def play(scenario: Callable[[Office], Awaitable[None]]) -> None:
    """Run a scenario."""

    async def played() -> None:
        engine = Zeebe()  # type: ignore[abstract]  # what no test asks for
        async with asyncio.timeout(60), engine.serve() as address:
            office = Office(address, engine)
            await scenario(office)
            await office.semel.close()

    asyncio.run(played())


def test_a_job_is_completed_with_its_outputs() -> None:
    async def scenario(office: Office) -> None:
        office.engine.add(1, VARIABLES)
        async with office.work():
            job = await office.ended(1)
        assert job.ended == "complete"
        outputs = json.loads(job.said.variables)
        assert outputs["receipt"] == "R-CLAIM-001-1"
        assert outputs["idempotencyDuplicate"] is False
        record = await office.semel.read(office.pay.identify(VARIABLES))
        assert record is not None
        assert (record.about.process_instance, record.about.tags) == ("7", {"activity": "SUB_08"})

    play(scenario)


def test_a_job_whose_completion_was_lost_is_no_second_payment() -> None:
    async def scenario(office: Office) -> None:
        office.engine.lose["complete"] = 1
        office.engine.add(1, VARIABLES)
        async with office.work():
            await office.ended(1)
            office.engine.add(2, VARIABLES)
            job = await office.ended(2)
        assert json.loads(job.said.variables)["idempotencyDuplicate"] is True
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)


def test_an_activation_whose_answer_was_lost_leaves_the_job_to_the_next_one() -> None:
    async def scenario(office: Office) -> None:
        office.engine.lose["activate"] = 1
        job = office.engine.add(1, VARIABLES)
        async with office.work():
            await office.engine.until(1, lambda job: job.activated == 1)
            job.until = 0.0  # as if its time was over
            await office.ended(1)
        assert job.activated == 2
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)


def test_a_job_that_is_activated_twice_is_done_once_and_never_an_incident() -> None:
    async def scenario(office: Office) -> None:
        slow = office.pay = Slow(office.semel, office.gateway)
        job = office.engine.add(1, VARIABLES)
        async with office.work():
            await slow.began.wait()
            job.until = 0.0
            await office.engine.until(1, lambda job: "fail" in job.tells)
            assert job.retries == 3, "waiting for the first one costs no retry"
            slow.go.set()
            await office.ended(1)
        assert job.ended == "complete"
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)


def test_a_completion_that_comes_too_late_is_success(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(office: Office) -> None:
        slow = office.pay = Slow(office.semel, office.gateway)
        job = office.engine.add(1, VARIABLES)
        async with office.work():
            await slow.began.wait()
            job.ended = "complete"  # as another worker of the same record would have
            slow.go.set()
        assert office.engine.not_found > 0
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)
    assert [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_the_time_of_a_job_is_extended_while_the_delegate_runs() -> None:
    async def scenario(office: Office) -> None:
        slow = office.pay = Slow(office.semel, office.gateway)
        job = office.engine.add(1, VARIABLES)
        async with office.work():
            await office.engine.until(1, lambda job: job.extended >= 2)
            slow.go.set()
            await office.ended(1)
        assert job.activated == 1

    play(scenario)


def test_a_delegate_that_burns_the_processor_for_three_time_outs_keeps_its_job() -> None:
    async def burn(address: str, engine: Zeebe, burning: threading.Event, ended: threading.Event) -> None:
        office = Office(address, engine)
        office.pay = Burning(office.semel, office.gateway)
        office.gateway.before = burning.set
        async with office.work(connect=lambda: create_insecure_channel(address)):
            await asyncio.to_thread(ended.wait, 60)
        await office.semel.close()

    async def scenario(office: Office) -> None:
        burning, ended = threading.Event(), threading.Event()
        job = office.engine.add(1, VARIABLES)
        # The gateway is served here, so the loop that is blocked is that of a thread.
        elsewhere = asyncio.create_task(
            asyncio.to_thread(asyncio.run, burn(office.address, office.engine, burning, ended))
        )
        assert await asyncio.to_thread(burning.wait, 60)
        async with office.work():
            await office.ended(1)
        ended.set()
        await elsewhere
        assert job.extended >= 3
        assert job.activated == 1
        assert office.gateway.charges == {}, "another worker got it meanwhile"

    play(scenario)


def test_no_jobs_are_activated_while_the_store_does_not_answer() -> None:
    async def scenario(office: Office) -> None:
        async with silent(office.store) as silence:
            first = office.engine.add(1, VARIABLES)
            working = office.work(max_jobs=1)
            await working.__aenter__()
            await office.engine.until(1, lambda job: "fail" in job.tells)
            assert first.retries == 3, "a store that does not answer costs no retry"
            second = office.engine.add(2, {**VARIABLES, "paymentId": "2"})
            await silence.until_asked(3)
            assert (first.activated, second.activated) == (1, 0)
        await office.ended(1)
        await office.ended(2)
        await working.__aexit__(None, None, None)
        assert office.gateway.charges == {"CLAIM-001": 2}

    play(scenario)


def test_a_business_error_is_thrown_with_its_code() -> None:
    async def scenario(office: Office) -> None:
        office.gateway.before = fail(CardDeclined("no money"))
        office.engine.add(1, VARIABLES)
        async with office.work():
            job = await office.ended(1)
        assert (job.ended, job.said.errorCode, job.said.errorMessage) == ("error", "PAYMENT_DECLINED", "no money")

    play(scenario)


@pytest.mark.parametrize(("error", "retries"), [(LineDown(), 2), (RuntimeError(), 0)])
def test_a_failure_counts_and_a_doubt_is_an_incident(error: Exception, retries: int) -> None:
    class Held(PayClaim):
        in_doubt = "hold"

    async def scenario(office: Office) -> None:
        office.pay = Held(office.semel, office.gateway)
        office.gateway.before = fail(error)
        office.engine.add(1, VARIABLES)
        async with office.work():
            job = await office.engine.until(1, lambda job: "fail" in job.tells)
        assert job.said.retries == retries

    play(scenario)


def test_outputs_that_are_no_json_data_are_an_incident_and_the_task_is_not_run_again() -> None:
    class Opaque(PayClaim):
        def outputs(self, value: Any, v: Any) -> dict[str, Any]:
            return {"receipt": object()}

    async def scenario(office: Office) -> None:
        office.pay = Opaque(office.semel, office.gateway)
        job = office.engine.add(1, VARIABLES)
        async with office.work():
            await office.engine.until(1, lambda job: "fail" in job.tells)
        assert job.retries == 0
        assert "JSON" in job.said.errorMessage
        assert office.gateway.charges == {"CLAIM-001": 1}

    play(scenario)


def test_a_timeout_shorter_than_two_leases_is_refused() -> None:
    async def scenario(office: Office) -> None:
        worker = ZeebeWorker(create_insecure_channel(office.address))
        with pytest.raises(UsageError, match="two leases"):
            zeebe.register(worker, "payment", office.pay, timeout=timedelta(seconds=10))

    play(scenario)


def test_a_process_is_started_by_one_message_although_an_answer_was_lost() -> None:
    async def scenario(office: Office) -> None:
        office.engine.lose["publish"] = 1
        channel = create_insecure_channel(office.address)
        client = ZeebeClient(channel)
        with pytest.raises(PyZeebeError):
            await zeebe.start(office.semel, client, "claim-opened", VARIABLES, key=("CLAIM-001",))
        ids = {await zeebe.start(office.semel, client, "claim-opened", VARIABLES, key=("CLAIM-001",)) for _ in range(2)}
        assert office.engine.published == list(ids)
        await channel.close()

    play(scenario)


@pytest.mark.parametrize(("asked", "lives"), [({}, timedelta(days=7)), ({"keep_for": 3600}, timedelta(hours=1))])
def test_the_engine_knows_a_start_for_as_long_as_its_record_is_kept(asked: Any, lives: timedelta) -> None:
    async def scenario(office: Office) -> None:
        channel = create_insecure_channel(office.address)
        await zeebe.start(office.semel, ZeebeClient(channel), "claim-opened", VARIABLES, key=("CLAIM-001",), **asked)
        assert office.engine.messages_live_for == lives
        await channel.close()

    play(scenario)


def test_an_engine_that_forgot_a_message_does_not_start_its_process_again() -> None:
    async def scenario(office: Office) -> None:
        channel = create_insecure_channel(office.address)
        asked = office.semel, ZeebeClient(channel), "claim-opened", VARIABLES
        first = await zeebe.start(*asked, key=("CLAIM-001",))
        office.engine.published.clear()
        assert await zeebe.start(*asked, key=("CLAIM-001",)) == first
        assert office.engine.published == []
        await channel.close()

    play(scenario)
