"""An inbox in FastStream's RabbitMQ broker, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiormq
import pytest
from faststream.rabbit import RabbitBroker, RabbitQueue

from tests.events.faststream_cases import FastStreamCases, Site
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


class TestFastStreamOnRabbitmq(FastStreamCases):
    """What holds on every broker."""

    async def send_plain(self, site: Site, body: Any, headers: dict[str, str] | None = None) -> None:
        async with site.broker(site.bench.url) as broker:
            await broker.publish(body, site.bench.name, headers=headers, persist=True)  # type: ignore[attr-defined]

    async def check_passed_on(self, site: Site) -> None:
        assert await site.bench.passed_on() == ["e-1"]
