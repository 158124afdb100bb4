"""The adapter of SQS on an emulator of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from semel.events import Event
from semel.events.brokers import sqs as adapter
from tests.events.broker_cases import Bench, BrokerCases
from tests.servers.sqs import Queues, service_url


class SqsBench(Bench):
    """A queue, and one for dead letters."""

    def __init__(self, queues: Queues, **attributes: Any) -> None:
        super().__init__(queues.endpoint.url)
        self.queues = queues
        self.name = queues.new_queue(VisibilityTimeout="4", **attributes)
        self.dead = queues.new_queue()

    def publisher(self, url: str | None = None) -> Any:
        def queue(event: Event) -> str:
            return self.name if event.type == "registered" else f"{self.name}-{event.type}"

        return adapter.publisher(service_url("sqs", url or self.url), queue=queue)

    def _listen(self, consumer: Any, url: str, **settings: Any) -> AbstractAsyncContextManager[None]:
        given = {"dead_letter_queue": self.dead, "poll_for": 1, **settings}
        return adapter.listen(consumer, service_url("sqs", url), queue=self.name, **given)

    async def _count_unsettled(self) -> int:
        return await asyncio.to_thread(self.queues.count, self.name)

    async def passed_on(self) -> list[str]:
        found = await asyncio.to_thread(self.queues.peek, self.dead)
        return [Event.from_sqs(message).id for message in found]


@pytest.fixture
def bench(sqs: Queues) -> Iterator[SqsBench]:
    yield SqsBench(sqs)
    sqs.drop_all()


class TestSqs(BrokerCases):
    """What holds on every broker."""

    async def send_raw(self, bench: Bench, headers: dict[str, str], body: bytes) -> None:
        assert isinstance(bench, SqsBench)
        attributes = {name: {"DataType": "String", "StringValue": value} for name, value in headers.items()}
        url = bench.queues.url_of(bench.name)
        bench.queues.client.send_message(QueueUrl=url, MessageBody=body.decode(), MessageAttributes=attributes)
