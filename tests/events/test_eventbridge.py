"""Events on EventBridge, and from there through a rule to a queue, on an emulator of both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from semel import AsyncSemel
from semel.events import Consumer, Event
from semel.events.brokers import eventbridge, sqs
from semel.stores.memory import MemoryStore
from tests.events.broker_cases import LONG, Ledger, a_consumer, an_event, until
from tests.servers.sqs import Queues, service_url

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@dataclass
class Bus:
    """A bus, and a queue that a rule sends everything to."""

    queues: Queues
    name: str
    queue: str

    def publisher(self, **settings: Any) -> eventbridge.EventBridgePublisher:
        return eventbridge.publisher(self.queues.eventbridge_url, **{"bus": self.name, **settings})

    def listen(self, consumer: Any, **settings: Any) -> Any:
        return sqs.listen(consumer, self.queues.url, queue=self.queue, poll_for=1, **settings)

    def put(self, *details: dict[str, Any]) -> None:
        """Put entries as a producer does who knows nothing of us."""
        common = {"EventBusName": self.name, "Source": "shop", "DetailType": "registered"}
        answer = self.queues.events.put_events(Entries=[{**common, "Detail": json.dumps(one)} for one in details])
        assert not answer["FailedEntryCount"]

    async def is_empty(self) -> bool:
        return await asyncio.to_thread(self.queues.count, self.queue) == 0


@pytest.fixture
def bus(sqs: Queues) -> Iterator[Bus]:
    name, queue = sqs.new_name(), sqs.new_queue(VisibilityTimeout="4")
    sqs.events.create_event_bus(Name=name)
    sqs.events.put_rule(Name=name, EventBusName=name, EventPattern='{"detail-type": ["registered"]}')
    arn = sqs.attributes(queue)["QueueArn"]
    sqs.events.put_targets(Rule=name, EventBusName=name, Targets=[{"Id": "queue", "Arn": arn}])
    yield Bus(sqs, name, queue)
    sqs.events.remove_targets(Rule=name, EventBusName=name, Ids=["queue"])
    sqs.events.delete_rule(Name=name, EventBusName=name)
    sqs.events.delete_event_bus(Name=name)
    sqs.drop_all()


async def test_an_event_arrives_as_it_was_sent(bus: Bus) -> None:
    seen: asyncio.Queue[Event] = asyncio.Queue()
    consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing")

    @consumer.on("registered")
    async def registered(event: Event) -> None:
        await seen.put(event)

    sent = an_event(1, subject="Zürich", data={"n": [1, 2]}, extensions={"tenant": "a"})
    async with bus.publisher() as publisher:
        assert await publisher.publish([sent]) == [None]
    async with bus.listen(consumer), asyncio.timeout(LONG):
        assert await seen.get() == sent


async def test_an_event_that_is_put_twice_is_processed_once(bus: Bus) -> None:
    ledger = Ledger()
    async with bus.publisher() as publisher:
        for _ in range(2):
            assert await publisher.publish([an_event(number) for number in range(25)]) == [None] * 25
    async with bus.listen(a_consumer(AsyncSemel(MemoryStore()), ledger)):
        await ledger.has(25)
        await until(bus.is_empty, "the others are duplicates")
    assert sorted(ledger.ids) == sorted(f"e-{number}" for number in range(25))


async def test_the_id_of_the_producer_is_found_by_its_path(bus: Bus) -> None:
    ledger, subjects = Ledger(), list[str | None]()
    consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing")

    @consumer.on("registered")
    async def registered(event: Event) -> None:
        subjects.append(event.subject)
        await ledger.add(event.id)

    detail = {"order": {"number": "o-7"}, "asset": "a-1"}
    bus.put(detail)
    bus.put(detail)
    async with bus.listen(consumer, event_id="detail.order.number", event_subject="detail.asset"):
        await ledger.has(1)
        await until(bus.is_empty, "the second is a duplicate")
    assert (ledger.ids, subjects) == (["o-7"], ["a-1"])


async def test_the_id_of_an_envelope_is_not_taken_unless_somebody_says_so(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger()
    consumer = a_consumer(AsyncSemel(MemoryStore()), ledger)
    bus.put({"n": 1})

    async def is_a_letter() -> bool:
        return [letter.reason async for letter in consumer.dead_letters()] == ["invalid"]

    async with bus.listen(consumer):
        await until(is_a_letter, "it is a dead letter")
    assert "event_id='detail.…'" in caplog.text
    bus.put({"n": 1})
    async with bus.listen(consumer, event_id="id"):
        await ledger.has(1)


async def test_what_cannot_be_put_is_an_error_of_that_event_alone(bus: Bus) -> None:
    events = [an_event(1), an_event(2, type="t" * 129), an_event(3, data="x" * 1_100_000), an_event(4)]
    async with bus.publisher() as publisher:
        answers = await publisher.publish(events)
    assert [type(answer) for answer in answers] == [type(None), ValueError, ValueError, type(None)]


async def test_an_entry_that_failed_is_an_error_of_that_event_alone(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = eventbridge.EventBridgePublisher._connect

    async def connect_to_failing(self: Any) -> Any:
        return Failing(await connect(self), {1: "ThrottlingException", 2: "NotAuthorizedForSourceException"})

    monkeypatch.setattr(eventbridge.EventBridgePublisher, "_connect", connect_to_failing)
    async with bus.publisher() as publisher:
        answers = await publisher.publish([an_event(number) for number in range(4)])
    assert [type(answer) for answer in answers] == [type(None), OSError, ValueError, type(None)]


async def test_a_service_that_is_not_there_is_an_error_of_the_connection() -> None:
    url = service_url("eventbridge", "http://127.0.0.1:1")
    options: Any = {"aws_access_key_id": "semel", "aws_secret_access_key": "semel"}
    async with eventbridge.publisher(url, **options) as publisher:
        with pytest.raises(ConnectionError, match="published again"):
            await publisher.publish([an_event()])


class Failing:
    """A client that fails some of the entries it is given, as EventBridge does when it has too much to do."""

    def __init__(self, client: Any, codes: dict[int, str]) -> None:
        self._client, self._codes = client, codes

    async def put_events(self, Entries: list[Any]) -> Any:  # noqa: N803 - the SDK's name
        sent = [entry for place, entry in enumerate(Entries) if place not in self._codes]
        answers = iter((await self._client.put_events(Entries=sent))["Entries"])
        failed = {place: {"ErrorCode": code, "ErrorMessage": "no"} for place, code in self._codes.items()}
        return {"Entries": [failed.get(place) or next(answers) for place in range(len(Entries))]}
