"""An inbox in FastStream's RabbitMQ broker, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiormq
import pytest
from faststream import Context
from faststream.rabbit import Channel, QueueType, RabbitBroker, RabbitQueue

from semel import AsyncSemel
from semel.events import Event
from semel.stores.memory import MemoryStore
from tests.events.broker_cases import Ledger, an_event, publish, until
from tests.events.faststream_cases import FastStreamCases, Site, an_inbox
from tests.events.test_rabbitmq import RabbitBench
from tests.servers.broker import Broker


class RabbitSite(Site):
    """The queue of a bench."""

    bench: RabbitBench

    def broker(self, url: str, **settings: Any) -> Any:
        return RabbitBroker(url, graceful_timeout=10.0, **settings)

    def subscriber(self, broker: Any, **settings: Any) -> Any:
        return broker.subscriber(RabbitQueue(self.bench.name, declare=False), **settings)


@pytest.fixture
async def site(rabbitmq: Broker) -> AsyncIterator[RabbitSite]:
    connection = await aiormq.connect(rabbitmq.url)
    bench = RabbitBench(rabbitmq, await connection.channel())
    await bench.make()
    yield RabbitSite(bench)
    await connection.close()


class StreamSite(RabbitSite):
    """A stream, which has no places of its readers."""

    def broker(self, url: str, **settings: Any) -> Any:
        return super().broker(url, default_channel=Channel(prefetch_count=8), **settings)

    def subscriber(self, broker: Any, **settings: Any) -> Any:
        stream = RabbitQueue(f"{self.bench.name}.stream", queue_type=QueueType.STREAM, durable=True)
        return broker.subscriber(stream, consume_args={"x-stream-offset": "first"}, **settings)


class TestFastStreamOnRabbitmq(FastStreamCases):
    """What holds on every broker."""

    async def send_plain(self, site: Site, body: Any, headers: dict[str, str] | None = None) -> None:
        async with site.broker(site.bench.url) as broker:
            await broker.publish(body, site.bench.name, headers=headers, persist=True)  # type: ignore[attr-defined]

    async def check_passed_on(self, site: Site) -> None:
        async def is_passed_on() -> bool:
            return await site.bench.passed_on() == ["e-1"]

        await until(is_passed_on, "the broker has the dead letter")  # it moves them by and by


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_stream_that_is_read_again_runs_nothing_twice_and_what_failed_again(site: RabbitSite) -> None:
    stream, store, ledger = StreamSite(site.bench), MemoryStore(), Ledger()
    arguments, channel = {"x-queue-type": "stream"}, site.bench.channel
    await channel.queue_declare(f"{site.bench.name}.stream", durable=True, arguments=arguments)
    await channel.queue_bind(f"{site.bench.name}.stream", site.bench.name, routing_key="registered")

    async def registered(event: Event = Context("semel_event"), attempt: Any = Context("semel_attempt")) -> None:
        if event.id == "e-1" and attempt.number == 1:
            raise LookupError("not yet")
        await ledger.add(event.id)

    for number in (1, 2):
        await publish(site.bench, an_event(number))  # while nobody reads
        async with stream.running(an_inbox(AsyncSemel(store), in_doubt="rerun"), registered):
            await ledger.has(number)
    assert ledger.ids == ["e-1", "e-2"]
    await channel.queue_delete(f"{site.bench.name}.stream")
