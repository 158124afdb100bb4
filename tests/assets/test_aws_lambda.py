"""The asset service as a function of AWS Lambda on DynamoDB: with marks and assets in one table, and in two."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from examples.assets.dynamodb import DynamoPlant
from examples.assets.sample import EVENTS, deliveries
from examples.assets.service import make_consumer
from semel import AsyncSemel
from semel.engine.engine import engine_of
from semel.events import Consumer, Event
from semel.events.brokers import aws_lambda
from tests.assets.test_assets import END
from tests.effort import FULL
from tests.events.invocations import Context, batch, failures, sqs_record
from tests.servers.ministack import REGION, Tables

pytestmark = pytest.mark.slow
PERMUTED = 4 if FULL else 3


@dataclass
class Function:
    """The function in one process, and its tables."""

    marks: str
    tables: Tables
    plant: DynamoPlant
    consumer: Consumer[AsyncSemel]
    handler: aws_lambda.LambdaHandler

    @property
    def runner(self) -> asyncio.Runner:
        """The loop of its process."""
        runner = self.handler._runner
        assert runner is not None
        return runner

    def invoke(self, *events: Event) -> list[str]:
        """Deliver events as one batch; the numbers of those that have to come again."""
        records = [sqs_record(event, number) for number, event in enumerate(events)]
        return failures(self.handler(batch(*records), Context()))

    def end_state(self) -> list[tuple[object, ...]]:
        return self.runner.run(self.plant.read())

    def close(self) -> None:
        async def close_all() -> None:
            await self.plant.close()
            await self.consumer.semel.close()

        self.runner.run(close_all())
        self.handler.close()


@pytest.fixture(params=["one table", "two tables"])
def function(request: pytest.FixtureRequest, dynamodb: Tables, monkeypatch: pytest.MonkeyPatch) -> Iterator[Function]:
    if dynamodb.endpoint.url:
        for service in ("DYNAMODB", "SQS"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", dynamodb.endpoint.url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("TABLE_NAME", urlsplit(dynamodb.shared_url).netloc)
    marks = dynamodb.shared_url if request.param == "one table" else dynamodb.url
    for url in {dynamodb.shared_url, marks}:
        dynamodb.empty(url)
    plant = DynamoPlant(urlsplit(dynamodb.shared_url).netloc)
    consumer = make_consumer(AsyncSemel(marks), plant, plant.transaction)
    made = Function(marks, dynamodb, plant, consumer, aws_lambda.handler(consumer))
    assert made.invoke() == []
    made.handler._open_consumer()
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(5 if FULL else 1))
def test_repeats_in_any_order_give_one_end(function: Function, seed: int) -> None:
    delivered = deliveries(random.Random(seed), times=4)
    assert len(delivered) > len(EVENTS), "some come several times"
    for number in range(0, len(delivered), 10):
        assert function.invoke(*delivered[number : number + 10]) == []
    assert function.end_state() == END


def test_all_orders_of_a_few_events_give_one_end(function: Function) -> None:
    """Each order has its own pump, so that one table serves all of them."""
    some = (EVENTS[0], EVENTS[3], EVENTS[4], EVENTS[2])[:PERMUTED]
    orders = list(itertools.permutations(range(len(some))))
    for number, order in enumerate(orders):
        own = [of_pump(some[place], number) for place in order]
        assert function.invoke(*own, own[0]) == []
    ends = {row[1:4] + row[6:] for row in function.end_state()}
    assert ends == {("south", "pump", 50.0, 12.5)}
    assert len(function.end_state()) == len(orders)


def of_pump(event: Event, number: int) -> Event:
    subject = f"pump-{number:03}"
    return Event(id=f"{event.id}-{number}", type=event.type, source=event.source, subject=subject, data=event.data)


def test_marks_lie_where_they_are_said_to(function: Function) -> None:
    function.invoke(EVENTS[0])
    assets = function.tables.items(function.tables.shared_url)
    own = [item for item in assets if item["pk"]["S"].startswith("semel#")]
    assert bool(own) is (function.marks == function.tables.shared_url)
    assert {item["sk"]["S"] for item in assets if item not in own} == {"asset"}


def test_a_change_that_comes_before_its_registration_is_made_when_it_comes_again(function: Function) -> None:
    data = {"capacity_kw": 60.0, "expected": 1}
    change = Event(id="c-1", type="asset.capacity_changed", source="/s", subject="pump-1", data=data)
    assert function.invoke(change) == ["m-0"]
    assert function.invoke(EVENTS[0], change, change) == []
    assert function.end_state()[0][:4] == ("pump-1", "north", "pump", 60.0)


def test_a_newer_version_that_comes_between_look_and_write_wins(
    function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another function writes the newer registration after this one has looked, and before it writes."""
    looked: list[dict[str, str]] = []
    look = DynamoPlant._version

    async def look_and_be_overtaken(plant: DynamoPlant, key: dict[str, str]) -> int:
        found = await look(plant, key)
        looked.append(key)
        if len(looked) == 1:
            await function.consumer.handle(EVENTS[3])
        return found

    monkeypatch.setattr(DynamoPlant, "_version", look_and_be_overtaken)
    assert function.invoke(EVENTS[0]) == ["m-0"], "the condition of its write refused it"
    assert function.invoke(EVENTS[0]) == []
    assert function.end_state()[0][:4] == ("pump-1", "south", "pump", 50.0)


def test_an_event_that_fails_for_good_is_acknowledged_and_a_letter(function: Function) -> None:
    lost = Event(id="x-1", type="asset.energy_metered", source="/s", data={"kwh": 1.0})
    assert function.invoke(lost) == []

    async def letters() -> list[Any]:
        return [letter async for letter in function.consumer.dead_letters()]

    (letter,) = function.runner.run(letters())
    assert (letter.reason, letter.event) == ("rejected", lost)
    assert function.end_state() == []


def test_the_function_of_the_example_takes_its_table_from_the_environment(function: Function) -> None:
    from examples.assets import aws_lambda as example

    made = example.consumer()
    table = urlsplit(function.tables.shared_url).netloc
    assert engine_of(made.semel).store.name == f"dynamodb://{table}?pk=pk&sk=sk"
