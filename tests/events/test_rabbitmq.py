"""The adapter of RabbitMQ on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiormq
import pytest
from aiormq.abc import ChannelFrame
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from semel import AsyncSemel
from semel.errors import UsageError
from semel.events import Consumer, Event
from semel.events.brokers import rabbitmq as adapter
from semel.stores.memory import MemoryStore
from tests.events.broker_cases import SOON, Bench, BrokerCases, Ledger, a_consumer, an_event, publish
from tests.servers.broker import Broker
from tests.servers.rabbitmq import MAX_MESSAGE_SIZE


class RabbitBench(Bench):
    """An exchange, a queue, and a queue for its dead letters."""

    counts_held = False
    """A queue tells how many messages are ready. Those of a channel are ready again when its end is confirmed."""

    def __init__(self, broker: Broker, channel: Any) -> None:
        super().__init__(broker.url)
        self.name = broker.new_name()
        self.dead = f"{self.name}.dead"
        self.channel = channel

    async def make(self, **arguments: Any) -> None:
        await self.channel.exchange_declare(self.name, exchange_type="topic", durable=True)
        await self.channel.queue_declare(self.dead, durable=True)
        given = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead, **arguments}
        await self.channel.queue_declare(self.name, durable=True, arguments=given)
        await self.channel.queue_bind(self.name, self.name, routing_key="registered")

    def publisher(self, url: str | None = None) -> Any:
        return adapter.publisher(url or self.url, exchange=self.name, routing_key=lambda event: event.type)

    def _listen(self, consumer: Any, url: str, **settings: Any) -> AbstractAsyncContextManager[None]:
        return adapter.listen(consumer, url, queue=self.name, **settings)

    async def _count_unsettled(self) -> int:
        # Those that wait are in queues beside it.
        found = await self._count(self.name)
        for power in range(6, 28):
            found += await self._count(f"{self.name}.semel-retry.{2**power}")
        return found

    async def _count(self, queue: str) -> int:
        connection = await aiormq.connect(self.url)
        try:
            channel = await connection.channel()
            return int((await channel.queue_declare(queue, passive=True)).message_count or 0)
        except aiormq.exceptions.ChannelNotFoundEntity:
            return 0
        finally:
            await connection.close()

    async def passed_on(self) -> list[str]:
        ids = []
        while (got := await self.channel.basic_get(self.dead, no_ack=True)).header.properties.headers:
            ids.append(got.header.properties.headers["cloudEvents_id"])
        return ids


def write_down_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """The tags of all acknowledgements from now on, and whether each is for those before it, too."""
    sent: list[tuple[int, bool]] = []
    real = aiormq.Channel.basic_ack

    async def write_down(channel: Any, delivery_tag: int, multiple: bool = False, wait: bool = True) -> None:
        sent.append((delivery_tag, multiple))
        await real(channel, delivery_tag, multiple, wait)

    monkeypatch.setattr(aiormq.Channel, "basic_ack", write_down)
    return sent


def a_consumer_that_fails_once(ledger: Ledger) -> Consumer[AsyncSemel]:
    consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing", backoff=SOON, in_doubt="rerun")
    has_failed = False

    @consumer.on("registered")
    async def registered(event: Event) -> None:
        nonlocal has_failed
        if not has_failed:
            has_failed = True
            raise LookupError("not yet")
        await ledger.add(event.id)

    return consumer


@pytest.fixture
async def bench(rabbitmq: Broker) -> AsyncIterator[RabbitBench]:
    connection = await aiormq.connect(rabbitmq.url)
    made = RabbitBench(rabbitmq, await connection.channel())
    await made.make()
    yield made
    await connection.close()


class TestRabbitmq(BrokerCases):
    """What holds on every broker."""

    async def send_raw(self, bench: Bench, headers: dict[str, str], body: bytes) -> None:
        assert isinstance(bench, RabbitBench)
        properties = commands.Basic.Properties(headers=dict(headers))
        await bench.channel.basic_publish(body, routing_key=bench.name, properties=properties)


@pytest.mark.anyio
@pytest.mark.slow
class TestOnRabbitmqAlone:
    """What is special about it."""

    async def test_without_acknowledgements_it_does_not_listen(self, bench: RabbitBench) -> None:
        with pytest.raises(UsageError, match="no_ack"):
            async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger()), no_ack=True):
                pass

    async def test_a_queue_that_is_not_there_is_named(self, rabbitmq: Broker) -> None:
        with pytest.raises(UsageError, match="no queue 'nowhere'"):
            async with adapter.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger()), rabbitmq.url, queue="nowhere"):
                pass

    async def test_a_virtual_host_that_is_not_there_is_named(self, rabbitmq: Broker) -> None:
        url = f"{rabbitmq.url.rstrip('/')}/no%2Fwhere"
        with pytest.raises(UsageError, match="virtual host 'no/where'"):
            async with adapter.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger()), url, queue="q"):
                pass

    async def test_a_queue_that_belongs_to_another_connection_is_refused(self, bench: RabbitBench) -> None:
        connection = await aiormq.connect(bench.url)
        try:
            channel = await connection.channel()
            declared = f"{bench.name}.other"
            await channel.queue_declare(declared, exclusive=True)
            with pytest.raises(UsageError, match=r"refuses the queue .*RESOURCE_LOCKED"):
                async with adapter.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger()), bench.url, queue=declared):
                    pass
        finally:
            await connection.close()

    async def test_handlers_that_may_outlast_the_broker_are_refused(self, bench: RabbitBench) -> None:
        consumer = a_consumer(AsyncSemel(MemoryStore()), Ledger(), max_runtime=timedelta(minutes=5))
        with pytest.raises(UsageError, match="consumer_timeout"):
            async with bench.listen(consumer, consumer_timeout=timedelta(minutes=5)):
                pass

    async def test_handlers_that_may_outlast_what_is_usual_are_warned_of(
        self, bench: RabbitBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        consumer = a_consumer(AsyncSemel(MemoryStore()), Ledger(), max_runtime=timedelta(minutes=30))
        async with bench.listen(consumer):
            assert "consumer_timeout" in caplog.text

    async def test_a_quorum_queue_is_listened_to(self, rabbitmq: Broker) -> None:
        connection = await aiormq.connect(rabbitmq.url)
        bench, ledger = RabbitBench(rabbitmq, await connection.channel()), Ledger()
        await bench.make(**{"x-queue-type": "quorum"})
        await publish(bench, an_event())
        async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), ledger)):
            await ledger.has(1)
        await connection.close()

    async def test_acknowledgements_without_a_gap_are_one(
        self, bench: RabbitBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sent = write_down_acknowledgements(monkeypatch)
        ledger, entered, may_end = Ledger(), Ledger(), asyncio.Event()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing")

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            await entered.add(event.id)
            await may_end.wait()
            await ledger.add(event.id)

        await publish(bench, *(an_event(number) for number in range(64)))
        async with bench.listen(consumer, concurrency=64):
            await entered.has(64)
            assert sent == [], "what still runs was acknowledged"
            may_end.set()
            await ledger.has(64)
        assert sent[-1] == (64, True)
        assert [tag for tag, _ in sent] == sorted(tag for tag, _ in sent)
        assert all(multiple for _, multiple in sent), "one was acknowledged by itself, although all before it were done"
        assert len(sent) <= 8, f"64 that ended together took {len(sent)} acknowledgements"
        assert await bench.unsettled() == 0

    async def test_one_that_still_runs_is_not_acknowledged_with_others(
        self, bench: RabbitBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sent = write_down_acknowledgements(monkeypatch)
        ledger, may_end = Ledger(), asyncio.Event()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing")

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            if event.id == "e-0":
                await may_end.wait()
            await ledger.add(event.id)

        await publish(bench, *(an_event(number) for number in range(100)))
        async with bench.listen(consumer, concurrency=64):
            await ledger.has(99)
            assert (1, False) not in sent, "what still runs was acknowledged"
            assert all(tag > 1 and not multiple for tag, multiple in sent), (
                "one that still runs was acknowledged with others"
            )
            may_end.set()
            await ledger.has(100)
        assert any(tag == 1 or multiple for tag, multiple in sent), "the last one to end was not acknowledged"
        assert await bench.unsettled() == 0

    async def test_the_client_publishes_where_frames_cannot_be_written(
        self, bench: RabbitBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(adapter, "can_write_frames", lambda channel: False)
        async with bench.publisher() as publisher:
            given = await publisher.publish([an_event(1), an_event(2, type="nowhere"), an_event(3)])
        assert [type(error) for error in given] == [type(None), LookupError, type(None)]
        assert await bench.unsettled() == 2

    @pytest.mark.parametrize("writes_frames", [True, False])
    async def test_an_event_for_which_the_broker_closes_the_channel_is_an_error_of_that_event_alone(
        self, bench: RabbitBench, monkeypatch: pytest.MonkeyPatch, writes_frames: bool
    ) -> None:
        monkeypatch.setattr(adapter, "can_write_frames", lambda _: writes_frames)
        too_large = an_event(3, data="x" * (MAX_MESSAGE_SIZE + 1))
        async with bench.publisher() as publisher:
            given = await publisher.publish([an_event(1), an_event(2), too_large, an_event(4)])
            assert [type(error) for error in given] == [type(None), type(None), ValueError, type(None)]
            assert await publisher.publish([an_event(5)]) == [None]

    async def test_an_event_that_cannot_be_written_is_an_error_of_that_event_alone(
        self, bench: RabbitBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(adapter, "_FIRST_TIMESTAMP", datetime(1, 1, 1, tzinfo=UTC))
        unwritable = an_event(2, time=datetime(1960, 1, 1, tzinfo=UTC))
        async with bench.publisher() as publisher:
            given = await publisher.publish([an_event(1), unwritable, an_event(3)])
            assert [type(error) for error in given] == [type(None), ValueError, type(None)]
            assert await publisher.publish([an_event(4)]) == [None], "the numbers of confirmations are still right"
        assert await bench.unsettled() == 3

    @pytest.mark.parametrize(
        "attributes",
        [
            {"time": datetime(1960, 1, 1, tzinfo=UTC), "datacontenttype": "application/json"},
            {"time": datetime(1, 1, 1, tzinfo=UTC), "datacontenttype": "application/json"},
            {"data": b"x", "datacontenttype": f"text/{'x' * 300}"},
        ],
        ids=["before 1970", "year 1", "long content type"],
    )
    async def test_what_has_no_room_in_a_property_arrives_nevertheless(
        self, bench: RabbitBench, attributes: dict[str, Any]
    ) -> None:
        event = an_event(1, **attributes)
        arrived: list[Event] = []
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing")
        has_come = asyncio.Event()

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            arrived.append(event)
            has_come.set()

        await publish(bench, event)
        async with bench.listen(consumer):
            await has_come.wait()
        assert arrived == [event]

    async def test_the_installed_client_can_write_frames(self, bench: RabbitBench) -> None:
        assert adapter.can_write_frames(bench.channel)

    async def test_a_message_that_waits_is_in_a_replicated_queue(self, bench: RabbitBench) -> None:
        ledger = Ledger()
        consumer = a_consumer_that_fails_once(ledger)
        await publish(bench, an_event())
        async with bench.listen(consumer):
            await ledger.has(1)
        arguments = {**adapter._delay_arguments(bench.name, 64), "x-queue-type": "classic"}
        with pytest.raises(aiormq.exceptions.ChannelPreconditionFailed, match="x-queue-type"):
            await bench.channel.queue_declare(f"{bench.name}.semel-retry.64", durable=True, arguments=arguments)

    async def test_a_message_that_waits_is_not_sent_to_others_once_more(self, bench: RabbitBench) -> None:
        other = f"{bench.name}.other"
        await bench.channel.queue_declare(other, durable=True)
        headers, body = an_event().to_headers()
        properties = commands.Basic.Properties(
            headers={**headers, "CC": [other]}, user_id="guest", expiration="3600000"
        )
        await bench.channel.basic_publish(body, routing_key=bench.name, properties=properties)
        ledger = Ledger()
        async with bench.listen(a_consumer_that_fails_once(ledger)):
            await ledger.has(1)
        assert await bench._count(other) == 1

    async def test_what_cannot_be_delayed_comes_again_all_the_same(self, bench: RabbitBench) -> None:
        ledger = Ledger()
        consumer = a_consumer_that_fails_once(ledger)
        # A queue of that name with other settings: the broker refuses to have messages wait there.
        await bench.channel.queue_declare(f"{bench.name}.semel-retry.64", durable=True)
        await publish(bench, an_event())
        async with bench.listen(consumer):
            await ledger.has(1)
        assert await bench.unsettled() == 0

    async def test_what_waits_in_a_queue_that_somebody_has_deleted_comes_again_all_the_same(
        self, bench: RabbitBench
    ) -> None:
        ledger, failed = Ledger(), set[str]()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing", backoff=SOON, in_doubt="rerun")

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            if event.id not in failed:
                failed.add(event.id)
                raise LookupError("not yet")
            await ledger.add(event.id)

        async with bench.listen(consumer):
            await publish(bench, an_event(1))
            await ledger.has(1)
            await bench.channel.queue_delete(f"{bench.name}.semel-retry.64")
            await publish(bench, an_event(2))
            await ledger.has(2)
        assert ledger.ids == ["e-1", "e-2"]

    async def test_a_message_whose_headers_the_client_cannot_write_comes_again_all_the_same(
        self, bench: RabbitBench
    ) -> None:
        headers, body = an_event().to_headers()
        # Text of another producer that is not UTF-8: the client reads it, and cannot write it.
        properties = commands.Basic.Properties(headers={**headers, "x-origin": "~~"})
        frames: list[Any] = [
            commands.Basic.Publish(routing_key=bench.name),
            ContentHeader(properties=properties, body_size=len(body)),
        ]
        channel = bench.channel
        sent = ChannelFrame.marshall(channel.number, [*frames, ContentBody(body)])
        payload = sent.payload.replace(b"~~", b"\xff\xfe")
        channel.delivery_tag += 1
        await channel.write_queue.put(ChannelFrame(payload=payload, should_close=False))
        ledger = Ledger()
        async with bench.listen(a_consumer_that_fails_once(ledger)):
            await ledger.has(1)
        assert await bench.unsettled() == 0

    async def test_what_is_not_confirmed_to_be_delayed_comes_again_all_the_same(
        self, bench: RabbitBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ledger = Ledger()
        consumer = a_consumer_that_fails_once(ledger)

        async def never_confirm(*_: Any, **__: Any) -> None:
            await asyncio.Event().wait()

        await publish(bench, an_event())
        monkeypatch.setattr(aiormq.Channel, "basic_publish", never_confirm)
        monkeypatch.setattr(adapter, "DELAY_WITHIN", timedelta(milliseconds=50))
        async with bench.listen(consumer):
            await ledger.has(1)
        assert await bench.unsettled() == 0

    async def test_a_queue_that_is_deleted_and_made_again_is_listened_to_again(self, bench: RabbitBench) -> None:
        ledger = Ledger()
        async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), ledger)):
            await publish(bench, an_event(1))
            await ledger.has(1)
            await bench.channel.queue_delete(bench.name)
            await bench.make()
            await publish(bench, an_event(2))
            await ledger.has(2)
        assert ledger.ids == ["e-1", "e-2"]


def test_a_message_that_waits_is_that_of_nobody_and_does_not_end() -> None:
    came = commands.Basic.Properties(
        headers={"ce-id": "1", "CC": ["a"], "BCC": ["b"]}, user_id="somebody", expiration="5", correlation_id="c"
    )
    waits = adapter._waiting(came)
    assert (waits.headers, waits.user_id, waits.expiration) == ({"ce-id": "1"}, None, None)
    assert (waits.correlation_id, waits.delivery_mode) == ("c", 2)
    assert (came.user_id, came.expiration) == ("somebody", "5"), "the message that came is left as it is"


def test_an_exchange_that_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="No exchange is named"):
        adapter.publisher("amqp://nowhere", exchange="x" * 128)


@pytest.mark.parametrize(
    ("seconds", "milliseconds"),
    [(0, 64), (0.05, 64), (0.064, 64), (0.065, 128), (1, 1024), (30, 32_768), (10**9, 2**27)],
)
def test_delays_are_round_up_so_that_few_queues_serve_all(seconds: float, milliseconds: int) -> None:
    assert adapter._round_up(timedelta(seconds=seconds)) == milliseconds
