"""The adapter of NATS on a real server."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import nats as client
import pytest
from nats.js.api import AckPolicy, ConsumerConfig
from nats.protocol.command import hpub_cmd

from semel import AsyncSemel
from semel.errors import UsageError
from semel.events import Consumer, Event
from semel.events.brokers import nats as adapter
from semel.events.brokers.listening import RetryDelay, identity_of
from semel.stores.memory import MemoryStore
from tests.events.broker_cases import LONG, AskingBrokerCases, Bench, Ledger, a_consumer, an_event, publish, until
from tests.servers.broker import Broker
from tests.servers.nats import running


class NatsBench(Bench):
    """A stream, and one for dead letters."""

    def __init__(self, broker: Broker, context: Any) -> None:
        super().__init__(broker.url)
        self.name = broker.new_name()
        self.dead = f"{self.name}-dead"
        self.context = context

    async def make(self) -> None:
        await self.context.add_stream(name=self.name, subjects=[f"{self.name}.registered"])
        await self.context.add_stream(name=self.dead, subjects=[self.dead])

    def publisher(self, url: str | None = None) -> Any:
        return adapter.publisher(url or self.url, subject=lambda event: f"{self.name}.{event.type}")

    def _listen(self, consumer: Any, url: str, **settings: Any) -> AbstractAsyncContextManager[None]:
        given = {"dead_letter_subject": self.dead, **settings}
        return adapter.listen(consumer, url, stream=self.name, **given)

    async def _count_unsettled(self) -> int:
        try:
            info = await self.context.consumer_info(self.name, "billing")
        except client.js.errors.NotFoundError:
            return int((await self.context.stream_info(self.name)).state.messages)
        return int(info.num_pending + info.num_ack_pending)

    async def passed_on(self) -> list[str]:
        state = (await self.context.stream_info(self.dead)).state
        messages = [await self.context.get_msg(self.dead, number + 1) for number in range(state.last_seq)]
        return [message.headers["ce-id"] for message in messages]


async def make_durable(bench: NatsBench, **limits: int) -> None:
    """Make a durable consumer, or change one, with settings that the client does not know."""
    config = {"durable_name": "billing", "ack_policy": "explicit", **limits}
    request = json.dumps({"stream_name": bench.name, "config": config}).encode()
    told = await bench.context._nc.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{bench.name}.billing", request)
    assert "error" not in json.loads(told.data), told.data


@pytest.fixture
async def bench(nats: Broker) -> AsyncIterator[NatsBench]:
    connection = await client.connect(nats.url)
    made = NatsBench(nats, connection.jetstream())
    await made.make()
    yield made
    await connection.close()


class TestNats(AskingBrokerCases):
    """What holds on every broker."""

    async def send_raw(self, bench: Bench, headers: dict[str, str], body: bytes) -> None:
        assert isinstance(bench, NatsBench)
        await bench.context.publish(f"{bench.name}.registered", body, headers=headers)


@pytest.mark.anyio
@pytest.mark.slow
class TestOnNatsAlone:
    """What is special about it."""

    @pytest.mark.parametrize("policy", [AckPolicy.NONE, AckPolicy.ALL])
    async def test_a_durable_consumer_that_loses_messages_is_refused(self, bench: NatsBench, policy: AckPolicy) -> None:
        await bench.context.add_consumer(bench.name, ConsumerConfig(durable_name="billing", ack_policy=policy))
        with pytest.raises(UsageError, match="ack_policy explicit"):
            async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger())):
                pass

    async def test_a_durable_consumer_that_pushes_is_refused(self, bench: NatsBench) -> None:
        await bench.context.add_consumer(bench.name, ConsumerConfig(durable_name="billing", deliver_subject="there"))
        with pytest.raises(UsageError, match="pushes"):
            async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger())):
                pass

    async def test_a_limit_of_deliveries_is_warned_of(self, bench: NatsBench, caplog: pytest.LogCaptureFixture) -> None:
        await bench.context.add_consumer(bench.name, ConsumerConfig(durable_name="billing", max_deliver=3))
        async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger())):
            assert "max_deliver" in caplog.text

    async def test_a_stream_that_is_not_there_is_named(self, nats: Broker) -> None:
        with pytest.raises(UsageError, match="no stream 'nowhere'"):
            async with adapter.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger()), nats.url, stream="nowhere"):
                pass

    @pytest.mark.parametrize("name", ["shop.billing", "shop billing", "shop>", "*", "a/b"])
    async def test_a_consumer_whose_name_is_none_for_the_broker_needs_another_one_there(
        self, bench: NatsBench, name: str
    ) -> None:
        consumer = Consumer(AsyncSemel(MemoryStore()), name)
        with pytest.raises(UsageError, match="by durable="):
            async with adapter.listen(consumer, bench.url, stream=bench.name):
                pass
        async with adapter.listen(consumer, bench.url, stream=bench.name, durable="billing"):
            assert (await bench.context.consumer_info(bench.name, "billing")).name == "billing"

    @pytest.mark.parametrize("names", [("a.b", None), ("a", "shop.billing")])
    async def test_a_doctor_is_told_of_a_name_that_is_none(self, names: tuple[str, str | None]) -> None:
        with pytest.raises(UsageError, match="NATS has no"):
            await adapter.read_stream("nats://127.0.0.1:1", *names)

    async def test_a_greeting_that_is_cut_short_leaves_no_socket_open(self) -> None:
        is_closed = asyncio.Event()

        async def end_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write_eof()
            await reader.read()
            is_closed.set()
            writer.close()

        async with await asyncio.start_server(end_at_once, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with adapter.publisher(f"nats://127.0.0.1:{port}") as publisher:
                with pytest.raises(ConnectionError) as caught:
                    await publisher.publish([an_event()])
                await asyncio.wait_for(is_closed.wait(), LONG)
        assert caught.value.__traceback__, "kept, so that no garbage collection closes what it refers to"

    async def test_a_handler_that_is_free_gets_a_message_although_nothing_is_taken_ahead(
        self, bench: NatsBench
    ) -> None:
        ledger, may_end = Ledger(), asyncio.Event()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing")

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            if event.id == "e-0":
                await may_end.wait()
            await ledger.add(event.id)

        await publish(bench, *(an_event(number) for number in range(10)))
        async with bench.listen(consumer, concurrency=2, prefetch=2):
            await ledger.has(9)
            may_end.set()
            await ledger.has(10)

    async def test_many_messages_are_asked_for_with_one_request(
        self, bench: NatsBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []
        real = adapter._Subscription._ask

        async def count(subscription: Any, number: int) -> None:
            asked.append(number)
            await real(subscription, number)

        monkeypatch.setattr(adapter._Subscription, "_ask", count)
        ledger = Ledger()
        await publish(bench, *(an_event(number) for number in range(400)))
        async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), ledger), concurrency=4, prefetch=64):
            await ledger.has(400)
        assert min(asked) >= 16, asked

    @pytest.mark.parametrize(
        "limits", [{"max_batch": 3}, {"max_expires": 1_000_000_000}, {"max_waiting": 1, "max_batch": 3}], ids=str
    )
    async def test_no_more_is_asked_for_than_the_durable_consumer_gives(
        self, bench: NatsBench, limits: dict[str, int], caplog: pytest.LogCaptureFixture
    ) -> None:
        await make_durable(bench, **limits)
        ledger = Ledger()
        await publish(bench, *(an_event(number) for number in range(40)))
        async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), ledger)):
            await ledger.has(40)
        assert "MaxRequest" not in caplog.text

    async def test_a_request_that_the_broker_refuses_is_told_of_and_made_again_after_a_pause(
        self, bench: NatsBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []
        paused: list[tuple[int, str]] = []
        ask = adapter._Subscription._ask

        async def write_down(self: Any, number: int) -> None:
            asked.append(number)
            await ask(self, number)

        async def pause(_: Any, reason: str) -> None:
            paused.append((len(asked), reason))

        monkeypatch.setattr(adapter._Subscription, "_ask", write_down)
        monkeypatch.setattr(RetryDelay, "wait", pause)
        monkeypatch.setattr(adapter, "_PULL_FOR", 0.2)
        ledger = Ledger()
        await make_durable(bench)
        async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), ledger)):
            await make_durable(bench, max_batch=3)  # what was read of it does not hold any more
            await until(lambda: asyncio.sleep(0, bool(paused)), "a pause")
            await publish(bench, *(an_event(number) for number in range(10)))
            await ledger.has(10)
        assert [reason for _, reason in paused if "Exceeded MaxRequestBatch of 3" in reason]
        refused = next(number for number, _ in paused)
        assert {256} == set(asked[:refused]), "what was refused was asked for again before the pause"
        assert asked[refused] == 3

    async def test_a_durable_consumer_that_is_deleted_is_made_again(self, bench: NatsBench) -> None:
        ledger = Ledger()
        async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), ledger)):
            await publish(bench, an_event(1))
            await ledger.has(1)
            await bench.context.delete_consumer(bench.name, "billing")
            await publish(bench, an_event(2))
            await ledger.has(2)
        assert ledger.ids == ["e-1", "e-2"], "the first one is delivered once more, and is a duplicate"

    async def test_a_stream_that_is_deleted_ends_the_listener(self, bench: NatsBench) -> None:
        async def run() -> None:
            async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger())), asyncio.timeout(LONG):
                await bench.context.delete_stream(bench.name)
                await asyncio.Event().wait()

        with pytest.raises(UsageError, match="There is no stream"):
            await run()

    async def test_a_subject_that_cannot_be_is_refused(self, bench: NatsBench) -> None:
        with pytest.raises(UsageError, match=r"refuses the durable consumer 'billing': .*subject"):
            async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger()), subject="a..b"):
                pass

    async def test_a_server_without_jetstream_is_named(self) -> None:
        with running(settings={"jetstream": "disabled"}) as server:
            consumer = a_consumer(AsyncSemel(MemoryStore()), Ledger())
            with pytest.raises(ConnectionError, match="JetStream is not available there"):
                async with adapter.listen(consumer, server.broker().url, stream="EVENTS"):
                    pass

    async def test_a_repeat_is_left_out_by_the_stream(self, bench: NatsBench) -> None:
        await publish(bench, an_event(1), an_event(1), an_event(1, source="/other"))
        await publish(bench, an_event(1))
        assert (await bench.context.stream_info(bench.name)).state.messages == 2, "one of each source"

    async def test_an_event_that_is_too_large_is_an_error_of_that_event_alone(self, bench: NatsBench) -> None:
        async with bench.publisher() as publisher:
            given = await publisher.publish([an_event(1), an_event(2, data="x" * 2_000_000), an_event(3)])
        assert [type(error) for error in given] == [type(None), ValueError, type(None)]

    async def test_an_event_that_is_too_large_with_its_headers_is_an_error_of_that_event_alone(
        self, bench: NatsBench
    ) -> None:
        most = 1_048_576
        headers = an_event(2).to_headers()[0]
        headers["Nats-Msg-Id"] = identity_of(an_event(2).source, an_event(2).id)
        room = most - adapter.size_of(headers) - len('""')
        async with bench.publisher() as publisher:
            given = await publisher.publish([an_event(1), an_event(2, data="x" * (room + 1)), an_event(3)])
            assert [type(error) for error in given] == [type(None), ValueError, type(None)]
            assert await publisher.publish([an_event(2, data="x" * room)]) == [None]

    async def test_a_dead_letter_as_large_as_the_broker_takes_is_passed_on_without_its_reason(
        self, bench: NatsBench
    ) -> None:
        headers, _ = an_event().to_headers()
        room = 1_048_576 - adapter.size_of(headers) - len('""')
        await bench.context.publish(f"{bench.name}.registered", b'"%s"' % (b"x" * room), headers=headers)
        await pass_on(bench)
        assert "Semel-Reason" not in (await bench.context.get_msg(bench.dead, 1)).headers

    async def test_what_a_message_told_its_stream_is_not_told_the_one_for_dead_letters(self, bench: NatsBench) -> None:
        headers, body = an_event().to_headers()
        told = {"Nats-Expected-Stream": bench.name, "Nats-Msg-Id": "m-1", "not/a/token": "x", "x-origin": "plant"}
        lines = "".join(f"{name}: {text}\r\n" for name, text in {**headers, **told}.items())
        connection = bench.context._nc
        written = f"NATS/1.0\r\n{lines}\r\n".encode()  # the client would not write all of these
        await connection._send_command(hpub_cmd(f"{bench.name}.registered", "", written, body))
        await connection.flush()
        await pass_on(bench)
        passed_on = (await bench.context.get_msg(bench.dead, 1)).headers
        assert passed_on["x-origin"] == "plant"
        assert not {"Nats-Expected-Stream", "Nats-Msg-Id", "not/a/token"} & set(passed_on)

    async def test_an_event_that_its_stream_does_not_take_is_an_error_of_that_event_alone(
        self, bench: NatsBench
    ) -> None:
        await bench.context.update_stream(name=bench.name, subjects=[f"{bench.name}.registered"], max_msg_size=2000)
        async with bench.publisher() as publisher:
            given = await publisher.publish([an_event(1), an_event(2, data="x" * 5000), an_event(3)])
        assert [type(error) for error in given] == [type(None), ValueError, type(None)]

    async def test_a_handler_that_burns_the_processor_for_three_deadlines_runs_once(self, bench: NatsBench) -> None:
        ledger = Ledger()
        store = MemoryStore()
        burning, burned = threading.Event(), threading.Event()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(store), "billing")
        runs: list[str] = []

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            runs.append(event.id)
            burning.set()
            until_then = time.perf_counter() + 3.2
            while time.perf_counter() < until_then:
                pass
            burned.set()
            await ledger.add(event.id)

        others = ElsewhereListener(bench, store)
        async with bench.listen(consumer, ack_wait=timedelta(seconds=1), concurrency=1):
            await publish(bench, an_event())
            await asyncio.to_thread(others.start, burning)
            await ledger.has(1)
            assert burned.is_set()
        await asyncio.to_thread(others.stop)
        info = await bench.context.consumer_info(bench.name, "billing")
        assert (runs, others.seen) == (["e-1"], []), "it was delivered to somebody else while it ran"
        assert info.delivered.consumer_seq == 1, "it was delivered a second time"

    async def test_a_message_is_held_no_longer_than_its_handler_may_run(self, bench: NatsBench) -> None:
        entered, may_end = asyncio.Event(), asyncio.Event()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing", max_runtime=1.0, lease_for=1.0)

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            entered.set()
            await may_end.wait()

        async def came_again() -> bool:
            return int((await bench.context.consumer_info(bench.name, "billing")).delivered.consumer_seq) > 1

        await publish(bench, an_event())
        async with bench.listen(consumer, ack_wait=timedelta(seconds=1)):
            await asyncio.wait_for(entered.wait(), LONG)
            await until(came_again, "it is delivered again once its handler ran for too long")
            may_end.set()

    async def test_a_holder_that_lost_its_lease_tells_the_broker_nothing(self, bench: NatsBench) -> None:
        store = MemoryStore()
        entered, may_end, taken_over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        first: Consumer[AsyncSemel] = Consumer(
            AsyncSemel(store), "billing", max_runtime=1.0, lease_for=1.0, in_doubt="rerun"
        )
        second: Consumer[AsyncSemel] = Consumer(AsyncSemel(store), "billing", in_doubt="rerun")
        second_may_end = asyncio.Event()

        @first.on("registered")
        async def slow(event: Event) -> None:
            entered.set()
            await may_end.wait()

        @second.on("registered")
        async def quick(event: Event) -> None:
            taken_over.set()
            await second_may_end.wait()

        await publish(bench, an_event())
        async with listen_in(bench) as told, AsyncExitStack() as stack:
            listening = bench.listen(first, ack_wait=timedelta(seconds=1), concurrency=1, prefetch=1)
            await stack.enter_async_context(listening)
            await asyncio.wait_for(entered.wait(), LONG)
            async with bench.listen(second, concurrency=1):
                await asyncio.wait_for(taken_over.wait(), LONG)
                may_end.set()
                await stack.aclose()  # it waits for the handler, and until what was said has arrived
                assert await bench.unsettled() == 1, "the copy of the one that runs was settled by the other"
                second_may_end.set()
            await until(lambda: _is_settled(bench), "the one that ended has acknowledged it")
        assert any(data.startswith(b"+ACK") for number, data in told if number > 1), "nobody was heard"
        of_the_first = {data for number, data in told if number == 1}
        assert of_the_first <= {b"+WPI"}, "of its own delivery it says that it is in progress, and then nothing"


@asynccontextmanager
async def listen_in(bench: NatsBench) -> AsyncIterator[list[tuple[int, bytes]]]:
    """All that consumers tell the broker of a message, each with the number of its delivery."""
    told: list[tuple[int, bytes]] = []
    connection = await client.connect(bench.url)

    async def write_down(message: Any) -> None:
        told.append((int(message.subject.split(".")[4]), message.data))

    await connection.subscribe(f"$JS.ACK.{bench.name}.billing.>", cb=write_down)
    await connection.flush()
    try:
        yield told
    finally:
        await connection.drain()


async def pass_on(bench: NatsBench) -> None:
    """Listen until the one message that is there has become a dead letter of the broker."""

    async def is_passed_on() -> bool:
        return await bench.passed_on() == ["e-1"]

    async with AsyncSemel(MemoryStore()) as semel, bench.listen(Consumer(semel, "billing", unknown="dead_letter")):
        await until(is_passed_on, "the broker has the dead letter")


async def _is_settled(bench: NatsBench) -> bool:
    return await bench.unsettled() == 0


class ElsewhereListener:
    """Another process, as far as the broker knows: a thread with an event loop, which takes what is delivered again."""

    def __init__(self, bench: NatsBench, store: MemoryStore) -> None:
        self._bench = bench
        self.seen: list[str] = []
        self._store = store
        self._listening = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self, after: threading.Event) -> None:
        assert after.wait(LONG)
        self._thread.start()
        assert self._listening.wait(LONG)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(LONG)

    def _run(self) -> None:
        self._loop.run_until_complete(self._listen())
        self._loop.close()

    async def _listen(self) -> None:
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(self._store), "billing")

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            self.seen.append(event.id)

        async with self._bench.listen(consumer):
            self._listening.set()
            await self._end.wait()
