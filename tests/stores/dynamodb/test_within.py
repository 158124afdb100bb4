"""The caller's writes and the record: committed together or not at all."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ConnectionClosedError

from semel import AsyncSemel, Policy, Semel
from semel.core.record import Status
from semel.engine.engine import engine_of
from semel.errors import (
    ConcurrentModification,
    FailedBefore,
    LeaseLost,
    StoreUnavailable,
    TransactionAborted,
    UsageError,
)
from semel.stores.dynamodb import Writes
from semel.stores.dynamodb.driver import make_async_client
from semel.stores.dynamodb.settings import Settings
from tests.servers.ministack import Tables

pytestmark = pytest.mark.slow

FINAL = Policy(final_errors=(ValueError,))


class Ledger:
    """A table of the caller's own."""

    def __init__(self, tables: Tables) -> None:
        self.url = tables.new_table()
        self.name = urlsplit(self.url).netloc
        self.client = tables.client
        self._tables = tables

    def line(self, number: int = 1, **rest: Any) -> dict[str, Any]:
        """A write of one line."""
        item = {"digest": {"B": number.to_bytes(32, "big")}, "amount": {"N": "10"}}
        return {"Put": {"TableName": self.name, "Item": item, **rest}}

    def paying(self, writes: Writes, *numbers: int) -> Callable[[], str]:
        """A handler, or a step, that adds these lines."""

        def handler() -> str:
            for number in numbers:
                writes.add(self.line(number))
            return "paid"

        return handler

    def lines(self) -> list[int]:
        """Which lines there are."""
        return sorted(int.from_bytes(item["digest"]["B"], "big") for item in self._tables.items(self.url))


@pytest.fixture
def ledger(dynamodb: Tables) -> Ledger:
    return Ledger(dynamodb)


@pytest.fixture
def semel(url: str) -> Iterator[Semel]:
    with Semel(url) as semel:
        yield semel


@pytest.fixture
def writes(dynamodb: Tables) -> Writes:
    return Writes(dynamodb.client)


class Losing:
    """A client that loses the reply to the transaction, or the transaction itself."""

    def __init__(self, client: Any, *, applied: bool) -> None:
        self._client = client
        self._applied = applied
        self.tokens: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def transact_write_items(self, **parameters: Any) -> Any:
        self.tokens.append(parameters["ClientRequestToken"])
        if self._applied:
            self._client.transact_write_items(**parameters)
        raise ConnectionClosedError(endpoint_url="http://lost")


def test_the_writes_and_the_record_are_there_together(semel: Semel, writes: Writes, ledger: Ledger) -> None:
    with semel.within(writes):
        result = semel.run("o-1", ledger.paying(writes, 1), operation="charge", fingerprint=None)
    record = semel.read("o-1", operation="charge")
    assert (result.value, ledger.lines()) == ("paid", [1])
    assert record is not None
    assert record.status is Status.COMPLETED


def test_a_duplicate_replays_and_writes_nothing(semel: Semel, writes: Writes, ledger: Ledger) -> None:
    results = [
        semel.within(writes).run("o-1", ledger.paying(writes, number), operation="charge", fingerprint=None).replayed
        for number in (1, 2)
    ]
    assert (results, ledger.lines()) == ([False, True], [1])


def test_writes_without_a_client_open_one(semel: Semel, ledger: Ledger) -> None:
    writes = Writes()
    semel.within(writes).run("o-1", ledger.paying(writes, 1), operation="charge", fingerprint=None)
    assert ledger.lines() == [1]


def test_a_handler_that_raises_writes_nothing_and_may_run_again(semel: Semel, writes: Writes, ledger: Ledger) -> None:
    def fails() -> None:
        writes.add(ledger.line())
        raise OSError

    with pytest.raises(OSError), semel.within(writes):  # noqa: PT011 - it is the handler's very own
        semel.run("o-1", fails, operation="charge", fingerprint=None)
    assert (ledger.lines(), len(writes), semel.read("o-1", operation="charge")) == ([], 0, None)
    with semel.within(writes):
        assert not semel.run("o-1", ledger.paying(writes, 2), operation="charge", fingerprint=None).replayed
    assert ledger.lines() == [2]


def test_a_final_failure_is_recorded_without_the_writes(semel: Semel, writes: Writes, ledger: Ledger) -> None:
    def declined() -> None:
        writes.add(ledger.line())
        raise ValueError("declined")

    with pytest.raises(ValueError, match="declined"):
        semel.within(writes).run("o-1", declined, operation="charge", fingerprint=None, policy=FINAL)
    with pytest.raises(FailedBefore):
        semel.within(writes).run("o-1", declined, operation="charge", fingerprint=None, policy=FINAL)
    assert ledger.lines() == []


def test_of_two_that_run_at_the_same_time_one_writes(url: str, dynamodb: Tables, ledger: Ledger) -> None:
    both = threading.Barrier(2)

    def call(number: int) -> Any:
        writes = Writes(dynamodb.client)

        def handler() -> int:
            both.wait(60)
            writes.add(ledger.line(number))
            return number

        with Semel(url) as semel:
            return semel.within(writes).run("o-1", handler, operation="charge", fingerprint=None).value

    with ThreadPoolExecutor(2) as pool:
        values = list(pool.map(call, [1, 2]))
    assert values[0] == values[1]
    assert ledger.lines() == [values[0]]


def test_a_condition_of_the_callers_refuses_everything(semel: Semel, writes: Writes, ledger: Ledger) -> None:
    ledger.client.put_item(**ledger.line()["Put"])

    def handler() -> None:
        writes.add(ledger.line(2))
        writes.add(ledger.line(1, ConditionExpression="attribute_not_exists(digest)"))

    with pytest.raises(ConcurrentModification, match="write 2: ConditionalCheckFailed"):
        semel.within(writes).run("o-1", handler, operation="charge", fingerprint=None)
    assert (ledger.lines(), semel.read("o-1", operation="charge")) == ([1], None)


def test_a_commit_whose_reply_was_lost_is_recognised(semel: Semel, dynamodb: Tables, ledger: Ledger) -> None:
    writes = Writes(Losing(dynamodb.client, applied=True))
    result = semel.within(writes).run("o-1", ledger.paying(writes, 1), operation="charge", fingerprint=None)
    assert (result.value, result.replayed, ledger.lines()) == ("paid", False, [1])


def test_a_commit_that_did_not_arrive_can_be_run_again(semel: Semel, dynamodb: Tables, ledger: Ledger) -> None:
    writes = Writes(Losing(dynamodb.client, applied=False))
    with pytest.raises(TransactionAborted) as caught:
        semel.within(writes).run("o-1", ledger.paying(writes, 1), operation="charge", fingerprint=None)
    assert isinstance(caught.value.__cause__, StoreUnavailable)
    writes = Writes(dynamodb.client)
    semel.within(writes).run("o-1", ledger.paying(writes, 1), operation="charge", fingerprint=None)
    assert ledger.lines() == [1]


def test_an_ordinary_run_that_holds_the_key_is_respected(semel: Semel, writes: Writes, ledger: Ledger) -> None:
    with pytest.raises(LeaseLost), semel.within(writes):
        semel.run("o-1", lambda: _run_elsewhere(semel, writes, ledger), operation="charge", fingerprint=None)
    assert ledger.lines() == []


def _run_elsewhere(semel: Semel, writes: Writes, ledger: Ledger) -> None:
    writes.add(ledger.line())

    def elsewhere() -> None:
        with Semel(engine_of(semel).store.name) as other, pytest.raises(OSError):  # noqa: PT011 - the handler's very own
            other.run("o-1", _breaks, operation="charge", fingerprint=None)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()


def _breaks() -> None:
    raise OSError


def test_a_step_and_its_writes_are_there_together(semel: Semel, writes: Writes, ledger: Ledger) -> None:
    def handler() -> str:
        attempt = semel.current()
        return attempt.step("reserve", ledger.paying(writes, 1), within=writes)

    assert semel.run("o-1", handler, operation="charge", fingerprint=None).value == "paid"
    record = semel.read("o-1", operation="charge")
    assert record is not None
    assert ([step.name for step in record.steps], ledger.lines()) == (["reserve"], [1])


def test_a_step_whose_reply_was_lost_is_finished_once(semel: Semel, dynamodb: Tables, ledger: Ledger) -> None:
    writes = Writes(Losing(dynamodb.client, applied=True))
    step = ledger.paying(writes, 1)
    semel.run("o-1", lambda: semel.current().step("reserve", step, within=writes), operation="charge", fingerprint=None)
    assert ledger.lines() == [1]


def test_a_step_of_an_attempt_that_lost_its_lease_writes_nothing(semel: Semel, writes: Writes, ledger: Ledger) -> None:
    def step() -> None:
        writes.add(ledger.line())
        record = semel.read("o-1", operation="charge")
        assert record is not None
        ledger.client.delete_item(TableName=_table(semel), Key={"digest": {"B": record.key.digest}})

    def handler() -> None:
        semel.current().step("reserve", step, within=writes)

    with pytest.raises(LeaseLost):
        semel.run("o-1", handler, operation="charge", fingerprint=None)
    assert ledger.lines() == []


def _table(semel: Semel) -> str:
    return urlsplit(engine_of(semel).store.name).netloc


def test_writes_outside_of_a_handler_are_not_taken(writes: Writes, ledger: Ledger) -> None:
    with pytest.raises(UsageError, match="not taken"):
        writes.add(ledger.line())


@pytest.mark.parametrize("write", [{}, {"Get": {}}, {"Put": {}, "Delete": {}}, "Put"])
def test_what_is_no_write_is_not_taken(semel: Semel, writes: Writes, write: Any) -> None:
    with pytest.raises(UsageError, match="not taken"):
        semel.within(writes).run("o-1", lambda: writes.add(write), operation="charge", fingerprint=None)


def test_there_is_room_for_ninety_nine_writes(semel: Semel, writes: Writes, ledger: Ledger) -> None:
    semel.within(writes).run("o-1", ledger.paying(writes, *range(99)), operation="charge", fingerprint=None)
    assert len(ledger.lines()) == 99
    with pytest.raises(UsageError, match="hundred"):
        semel.within(writes).run("o-2", ledger.paying(writes, *range(100)), operation="charge", fingerprint=None)


def test_an_operation_inside_another_needs_writes_of_its_own(semel: Semel, writes: Writes, ledger: Ledger) -> None:
    def outer() -> str:
        writes.add(ledger.line())
        with pytest.raises(UsageError, match="still open"):
            semel.run("o-2", lambda: None, operation="charge", fingerprint=None)
        return "outer"

    with semel.within(writes):
        assert semel.run("o-1", outer, operation="charge", fingerprint=None).value == "outer"
    assert ledger.lines() == [1]


def test_something_else_is_refused(semel: Semel) -> None:
    with pytest.raises(UsageError, match="Writes"):
        semel.within(object())


def test_a_client_of_the_other_colour_is_refused(url: str, dynamodb: Tables) -> None:
    async def scenario() -> None:
        async with AsyncSemel(url) as semel:
            with pytest.raises(UsageError, match="aiobotocore"):
                semel.within(Writes(dynamodb.client))

    asyncio.run(scenario())


@pytest.mark.parametrize("own", [True, False], ids=["own-client", "opened"])
def test_the_same_on_an_event_loop(url: str, ledger: Ledger, own: bool) -> None:
    async def calls(client: Any) -> list[bool]:
        async with AsyncSemel(url) as semel:
            writes = Writes(client)

            async def handler() -> str:
                writes.add(ledger.line())
                return "paid"

            found = []
            for _ in range(2):
                async with semel.within(writes):
                    found.append((await semel.run("o-1", handler, operation="charge", fingerprint=None)).replayed)
            return found

    async def scenario() -> list[bool]:
        if not own:
            return await calls(None)
        async with make_async_client(Settings.of(url)) as client:
            return await calls(client)

    assert asyncio.run(scenario()) == [False, True]
    assert ledger.lines() == [1]
