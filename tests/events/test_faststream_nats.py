"""An inbox in FastStream's NATS broker, with JetStream, on a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import nats as client
import pytest
from faststream import AckPolicy
from faststream.nats import JStream, NatsBroker, PullSub
from nats.js.api import AckPolicy as NatsAckPolicy
from nats.js.api import ConsumerConfig

from semel.deadlines import Deadlines
from semel.errors import UsageError
from semel.events.brokers.faststream import on_nats
from semel.stores.memory import MemoryStore
from tests.events.broker_cases import Ledger
from tests.events.faststream_cases import (
    ACK_WAIT,
    FastStreamCases,
    Site,
    an_inbox,
    burn_for_three_deadlines,
    writing_to,
)
from tests.events.test_nats import ElsewhereListener, NatsBench
from tests.servers.broker import Broker


class NatsSite(Site):
    """The stream of a bench, and a durable consumer of it."""

    bench: NatsBench

    def broker(self, url: str, **settings: Any) -> Any:
        return NatsBroker(url, graceful_timeout=10.0, max_reconnect_attempts=2, **settings)

    def subscriber(self, broker: Any, **settings: Any) -> Any:
        given = {
            "stream": JStream(self.bench.name, declare=False),
            "durable": "billing",
            "pull_sub": PullSub(batch_size=8, timeout=0.5),
            "config": ConsumerConfig(ack_wait=ACK_WAIT),
        }
        return broker.subscriber(f"{self.bench.name}.registered", **{**given, **settings})

    async def make_queue(self, name: str, **settings: Any) -> None:
        """Make a durable consumer that pushes to the members of a queue."""
        config = ConsumerConfig(durable_name=name, deliver_group=name, deliver_subject=f"to.{self.bench.name}")
        await self.bench.context.add_consumer(self.bench.name, config, **settings)


@pytest.fixture
async def site(nats: Broker) -> AsyncIterator[NatsSite]:
    connection = await client.connect(nats.url)
    bench = NatsBench(nats, connection.jetstream())
    await bench.make()
    yield NatsSite(bench)
    await connection.close()


@pytest.fixture
def every(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many seconds are between two extensions, of each subscriber that starts."""
    seconds: list[float] = []

    def make(*given: Any, **settings: Any) -> Deadlines:
        seconds.append(settings["every"])
        return Deadlines(*given, **settings)

    monkeypatch.setattr(on_nats, "Deadlines", make)
    return seconds


class TestFastStreamOnNats(FastStreamCases):
    """What holds on every broker."""

    async def send_plain(self, site: Site, body: Any, headers: dict[str, str] | None = None) -> None:
        assert isinstance(site, NatsSite)
        async with site.broker(site.bench.url) as broker:
            await broker.publish(body, f"{site.bench.name}.registered", stream=site.bench.name, headers=headers)


@pytest.mark.anyio
@pytest.mark.slow
class TestOnNatsAlone:
    """What is special about it."""

    async def test_a_handler_that_burns_the_processor_for_three_deadlines_runs_once(self, site: NatsSite) -> None:
        burning, other = threading.Event(), ElsewhereListener(site.bench, MemoryStore())
        starting = asyncio.create_task(asyncio.to_thread(other.start, burning))
        runs = await burn_for_three_deadlines(site, burning)
        await starting
        await asyncio.to_thread(other.stop)
        assert (runs, other.seen) == (["e-1"], []), "it was delivered to somebody else while it ran"
        info = await site.bench.context.consumer_info(site.bench.name, "billing")
        assert info.delivered.consumer_seq == 1, "it was delivered a second time"

    async def test_a_consumer_that_is_pushed_to_and_acknowledged_by_the_client_is_refused(self, site: NatsSite) -> None:
        with pytest.raises(UsageError, match=r"AckPolicy\.ACK_FIRST"), pytest.warns(RuntimeWarning):
            async with site.running(an_inbox(), writing_to(Ledger()), pull_sub=None, ack_policy=AckPolicy.ACK_FIRST):
                pass

    async def test_a_subscriber_without_a_stream_is_refused(self, site: NatsSite) -> None:
        broker = site.broker(site.bench.url, middlewares=[an_inbox()])
        broker.subscriber("assets", ack_policy=AckPolicy.MANUAL)(writing_to(Ledger()))
        with pytest.raises(UsageError, match="has no stream"):
            await broker.start()
        await broker.stop()

    async def test_a_subscriber_that_takes_many_as_one_is_refused(self, site: NatsSite) -> None:
        with pytest.raises(UsageError, match="batch"):
            async with site.running(an_inbox(), writing_to(Ledger()), pull_sub=PullSub(batch=True)):
                pass

    async def test_a_consumer_in_order_is_refused(self, site: NatsSite) -> None:
        with pytest.raises(UsageError, match=r"ordered_consumer=True.*nothing was taken"):
            async with site.running(
                an_inbox(), writing_to(Ledger()), pull_sub=None, durable=None, ordered_consumer=True
            ):
                pass

    async def test_a_queue_that_loses_messages_is_refused(self, site: NatsSite) -> None:
        await site.make_queue("workers", ack_policy=NatsAckPolicy.NONE)
        with pytest.raises(UsageError, match=r"'workers'.*ack_policy explicit"):
            async with site.running(an_inbox(), writing_to(Ledger()), pull_sub=None, durable=None, queue="workers"):
                pass

    async def test_the_deadline_of_a_queue_is_that_of_the_broker(self, site: NatsSite, every: list[float]) -> None:
        await site.make_queue("workers", ack_wait=6.0)
        given: dict[str, Any] = {"pull_sub": None, "durable": None, "queue": "workers", "config": None}
        async with site.running(an_inbox(), writing_to(Ledger()), **given):
            assert every == [2.0]

    @pytest.mark.parametrize("durable", ["billing", None])
    async def test_the_deadline_of_a_consumer_that_is_not_there_yet_is_the_first_that_it_is_made_with(
        self, site: NatsSite, every: list[float], durable: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        config = ConsumerConfig(backoff=[6.0, 60.0], max_deliver=5)
        async with site.running(an_inbox(), writing_to(Ledger()), config=config, durable=durable):
            assert every == [2.0]
        assert "gives a message up after 5 deliveries" in caplog.text

    @pytest.mark.parametrize(
        ("given", "is_named"),
        [
            ({"durable": None, "pull_sub": None}, True),
            ({"durable": None, "pull_sub": None, "queue": "workers"}, False),
            ({}, False),
        ],
        ids=["neither", "queue", "durable"],
    )
    async def test_a_subscriber_whose_place_the_broker_forgets_is_named(
        self, site: NatsSite, given: dict[str, Any], is_named: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with site.running(an_inbox(), writing_to(Ledger()), **given):
            assert ("has no durable=" in caplog.text) == is_named

    @pytest.mark.parametrize("policy", [NatsAckPolicy.NONE, NatsAckPolicy.ALL])
    async def test_a_durable_consumer_that_loses_messages_is_refused(
        self, site: NatsSite, policy: NatsAckPolicy
    ) -> None:
        await site.bench.context.add_consumer(
            site.bench.name, ConsumerConfig(durable_name="billing", ack_policy=policy)
        )
        with pytest.raises(UsageError, match="ack_policy explicit"):
            async with site.running(an_inbox(), writing_to(Ledger())):
                pass

    async def test_settings_of_a_consumer_that_lose_messages_are_refused(self, site: NatsSite) -> None:
        config = ConsumerConfig(ack_policy=NatsAckPolicy.NONE)
        with pytest.raises(UsageError, match=r"ConsumerConfig\(ack_policy='none'\)"):
            async with site.running(an_inbox(), writing_to(Ledger()), config=config):
                pass
