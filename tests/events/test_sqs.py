"""The adapter of SQS on an emulator of it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest

from semel import AsyncSemel, Policy
from semel.errors import LeaseLost, UsageError
from semel.events import Backoff, Consumer, Disposition, Event
from semel.events.brokers import sqs as adapter
from semel.events.brokers.aws import Address, connect
from semel.events.brokers.listening import Message
from semel.events.brokers.sqs.listening import Groups
from semel.events.brokers.sqs.messages import Held
from semel.events.brokers.sqs.settling import Settler, extend_visibility
from semel.stores.memory import MemoryStore
from tests.events.broker_cases import (
    LONG,
    AskingBrokerCases,
    Bench,
    Ledger,
    a_consumer,
    an_event,
    is_empty,
    publish,
    until,
)
from tests.servers.sqs import Queues, service_url

QUIET = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=1), spread=0)


class SqsBench(Bench):
    """A queue, and one for dead letters."""

    def __init__(self, queues: Queues, *, is_fifo: bool = False, **attributes: Any) -> None:
        super().__init__(queues.endpoint.url)
        self.queues = queues
        self.name = queues.new_queue(is_fifo=is_fifo, **{"VisibilityTimeout": "4", **attributes})
        self.dead = queues.new_queue(is_fifo=is_fifo)

    def publisher(self, url: str | None = None) -> Any:
        def queue(event: Event) -> str:
            return self.name if event.type == "registered" else f"{self.name}-{event.type}"

        return adapter.publisher(service_url("sqs", url or self.url), queue=queue)

    def _listen(self, consumer: Any, url: str, **settings: Any) -> AbstractAsyncContextManager[None]:
        given = {"dead_letter_queue": self.dead, "poll_for": 1, **settings}
        return adapter.listen(consumer, service_url("sqs", url), queue=self.name, **given)

    async def _count_unsettled(self) -> int:
        return await asyncio.to_thread(self.queues.count, self.name)

    async def send(self, body: str, **fields: Any) -> None:
        """Send a message past the adapter."""
        url = self.queues.url_of(self.name)
        await asyncio.to_thread(self.queues.client.send_message, QueueUrl=url, MessageBody=body, **fields)

    async def receive(self, **fields: Any) -> list[dict[str, Any]]:
        """Receive messages past the adapter."""
        asked = {"QueueUrl": self.queues.url_of(self.name), "MaxNumberOfMessages": 10, **fields}
        found = await asyncio.to_thread(lambda: self.queues.client.receive_message(**asked))
        return list(found.get("Messages", []))

    async def passed_on(self) -> list[str]:
        found = await asyncio.to_thread(self.queues.peek, self.dead)
        return [Event.from_sqs(message).id for message in found]


@pytest.fixture
def bench(sqs: Queues) -> Iterator[SqsBench]:
    yield SqsBench(sqs)
    sqs.drop_all()


class TestSqs(AskingBrokerCases):
    """What holds on every broker."""

    async def send_raw(self, bench: Bench, headers: dict[str, str], body: bytes) -> None:
        assert isinstance(bench, SqsBench)
        attributes = {name: {"DataType": "String", "StringValue": value} for name, value in headers.items()}
        await bench.send(body.decode(), MessageAttributes=attributes)


@pytest.fixture
def fifo(sqs: Queues) -> Iterator[SqsBench]:
    yield SqsBench(sqs, is_fifo=True)
    sqs.drop_all()


@pytest.fixture
async def client(sqs: Queues) -> AsyncIterator[Any]:
    async with connect("sqs", Address.of(sqs.url, "sqs"), read_within=10) as opened:
        yield opened


@pytest.mark.anyio
@pytest.mark.slow
class TestOnSqsAlone:
    """What is special about it."""

    async def test_a_queue_that_is_not_there_is_named(self, bench: SqsBench) -> None:
        consumer = a_consumer(AsyncSemel(MemoryStore()), Ledger())
        with pytest.raises(UsageError, match="no queue 'nowhere'"):
            async with adapter.listen(consumer, bench.queues.url, queue="nowhere"):
                pass
        with pytest.raises(UsageError, match="no queue 'nowhere'"):
            async with bench.listen(consumer, dead_letter_queue="nowhere"):
                pass

    @pytest.mark.parametrize("by_url", [False, True])
    async def test_dead_letters_that_would_come_again_are_refused(self, bench: SqsBench, by_url: bool) -> None:
        same = bench.queues.url_of(bench.name) if by_url else bench.name
        with pytest.raises(UsageError, match="dead_letter_queue"):
            async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger()), dead_letter_queue=same):
                pass

    async def test_a_queue_that_hides_nothing_is_refused(self, sqs: Queues) -> None:
        bench = SqsBench(sqs, VisibilityTimeout="0")
        with pytest.raises(UsageError, match="visibility"):
            async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger())):
                pass

    @pytest.mark.parametrize("settings", [{"visibility": 0.5}, {"visibility": 50_000}, {"poll_for": 21}])
    async def test_times_that_sqs_cannot_count_are_refused(self, bench: SqsBench, settings: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="whole seconds"):
            async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger()), **settings):
                pass

    async def test_a_redrive_policy_that_is_too_short_is_warned_of(
        self, sqs: Queues, caplog: pytest.LogCaptureFixture
    ) -> None:
        dead = sqs.attributes(sqs.new_queue())["QueueArn"]
        bench = SqsBench(sqs, RedrivePolicy={"deadLetterTargetArn": dead, "maxReceiveCount": 3})
        with caplog.at_level(logging.WARNING):
            async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger(), max_attempts=3)):
                pass
        assert "maxReceiveCount" in caplog.text

    async def test_a_handler_that_burns_the_processor_for_three_time_outs_runs_once(self, bench: SqsBench) -> None:
        ledger, runs = Ledger(), list[str]()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing")
        burning, burned = threading.Event(), threading.Event()

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            runs.append(event.id)
            burning.set()
            until_then = time.perf_counter() + 6.4
            while time.perf_counter() < until_then:
                pass
            burned.set()
            await ledger.add(event.id)

        other = OtherListener(bench, burning, burned)
        async with bench.listen(consumer, visibility=2, concurrency=1, prefetch=1):
            await publish(bench, an_event())
            await ledger.has(1)
        assert await asyncio.to_thread(other.stop) == [], "somebody else was given the message"
        assert other.looks > 2, "nobody looked while the handler ran"
        assert runs == ["e-1"]
        assert await bench.unsettled() == 0

    async def test_who_lost_its_lease_says_nothing(self, bench: SqsBench) -> None:
        consumer = WithoutLease()
        await publish(bench, an_event())
        async with bench.listen(consumer, visibility=600):
            await asyncio.wait_for(consumer.was_called.wait(), LONG)
        assert await bench.unsettled() == 1
        assert await bench.receive(WaitTimeSeconds=2) == [], "it is hidden for whoever has it now"

    async def test_a_dead_letter_says_why(self, bench: SqsBench) -> None:
        consumer = a_consumer(AsyncSemel(MemoryStore()), Ledger(), unknown="dead_letter")
        sent = an_event()
        headers, body = an_event(type="strange").to_headers()
        attributes = {name: {"DataType": "String", "StringValue": value} for name, value in headers.items()}
        await bench.send(body.decode(), MessageAttributes=attributes)

        async def is_passed_on() -> bool:
            return await bench.passed_on() == [sent.id]

        async with bench.listen(consumer):
            await until(is_passed_on, "it is passed on")
        (copy,) = bench.queues.peek(bench.dead)
        assert copy["MessageAttributes"]["Semel-Reason"]["StringValue"] == "unknown_type"
        assert copy["MessageAttributes"]["Semel-Reference"]["StringValue"]
        assert copy["Body"] == body.decode()

    async def test_a_dead_letter_that_cannot_be_passed_on_stays(self, bench: SqsBench) -> None:
        consumer = a_consumer(AsyncSemel(MemoryStore()), Ledger())
        await bench.send("no event")

        async def is_a_letter() -> bool:
            return [letter.reason async for letter in consumer.dead_letters()] == ["invalid"]

        async with bench.listen(consumer):
            bench.queues.client.delete_queue(QueueUrl=bench.queues.url_of(bench.dead))
            await until(is_a_letter, "it is stored")
        assert await bench.unsettled() == 1, "it is passed on later"

    async def test_the_id_of_sqs_is_never_that_of_an_event(self, bench: SqsBench) -> None:
        consumer = a_consumer(AsyncSemel(MemoryStore()), Ledger())
        await bench.send('{"specversion": "1.0", "type": "registered", "source": "/x"}')

        async def is_a_letter() -> bool:
            return [letter.reason async for letter in consumer.dead_letters()] == ["invalid"]

        async with bench.listen(consumer):
            await until(is_a_letter, "it has no id")

    async def test_the_id_of_a_plain_body_is_found_by_its_path(self, bench: SqsBench) -> None:
        ledger = Ledger()
        body = '{"type": "registered", "source": "/x", "meta": {"number": 17}}'
        await bench.send(body)
        await bench.send(body)
        async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), ledger), event_id="meta.number"):
            await ledger.has(1)
            await until(lambda: is_empty(bench), "the second is a duplicate")
        assert ledger.ids == ["17"]


async def receive_held(bench: SqsBench, client: Any, *events: Event, visibility: int = 60) -> list[Held]:
    """Publish events and receive them, as the listener does."""
    await publish(bench, *events)
    url = bench.queues.url_of(bench.name)
    found: list[Held] = []
    while len(found) < len(events):
        reply = await client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=60)
        found += [Held(raw, asked=time.monotonic(), visibility=visibility) for raw in reply.get("Messages", ())]
    return found


class FailingOnce:
    """A client whose first batch is refused in part, as SQS does when one of its servers has a fault."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.asked: list[int] = []
        self.entries: list[dict[str, Any]] = []

    async def delete_message_batch(self, **asked: Any) -> Any:
        return await self._fail_once(self._client.delete_message_batch, asked)

    async def change_message_visibility_batch(self, **asked: Any) -> Any:
        return await self._fail_once(self._client.change_message_visibility_batch, asked)

    async def _fail_once(self, send: Any, asked: dict[str, Any]) -> Any:
        entries = asked["Entries"]
        self.asked.append(len(entries))
        self.entries += entries
        if len(self.asked) > 1:
            return await send(**asked)
        reply = await send(**{**asked, "Entries": entries[1:]})
        failure = {"Id": entries[0]["Id"], "Code": "InternalError", "SenderFault": False}
        return {"Successful": reply["Successful"], "Failed": [failure]}


@pytest.mark.anyio
@pytest.mark.slow
class TestSettling:
    """What SQS is told of messages."""

    async def test_a_handle_that_is_stale_fails_alone(self, bench: SqsBench, client: Any) -> None:
        held = await receive_held(bench, client, an_event(1), an_event(2), an_event(3))
        url, forgotten = bench.queues.url_of(bench.name), list[Held]()
        await client.change_message_visibility(QueueUrl=url, ReceiptHandle=held[1].handle, VisibilityTimeout=0)
        (others,) = await bench.receive(VisibilityTimeout=60)
        settler = Settler(client, url, forgotten.append)
        for one in held:
            settler.delete(one)
        await settler.finish()
        assert set(forgotten) == set(held)
        assert await bench.unsettled() == 1
        await client.delete_message(QueueUrl=url, ReceiptHandle=others["ReceiptHandle"])

    async def test_many_are_told_of_by_one_request(self, bench: SqsBench, client: Any) -> None:
        held = await receive_held(bench, client, *(an_event(number) for number in range(23)))
        counting = FailingOnce(client)
        counting.asked.append(0)  # none fails
        settler = Settler(counting, bench.queues.url_of(bench.name), lambda _: None)
        for one in held:
            settler.delete(one)
        await settler.finish()
        assert (counting.asked, await bench.unsettled()) == ([0, 10, 10, 3], 0)

    async def test_an_entry_that_failed_for_a_moment_is_told_again(self, bench: SqsBench, client: Any) -> None:
        held = await receive_held(bench, client, an_event(1), an_event(2))
        failing, forgotten = FailingOnce(client), list[Held]()
        settler = Settler(failing, bench.queues.url_of(bench.name), forgotten.append)
        for one in held:
            settler.delete(one)
        await settler.finish()
        assert failing.asked == [2, 1]
        assert (len(forgotten), await bench.unsettled()) == (2, 0)

    async def test_a_delay_that_failed_for_a_moment_is_told_again(self, bench: SqsBench, client: Any) -> None:
        held = await receive_held(bench, client, an_event(1), an_event(2))
        failing = FailingOnce(client)
        settler = Settler(failing, bench.queues.url_of(bench.name), lambda _: None)
        for one in held:
            settler.deliver_after(one, 0)
        await settler.finish()
        assert failing.asked == [2, 1]
        assert len(await bench.receive(VisibilityTimeout=0)) == 2

    async def test_a_delay_is_never_shorter_than_was_asked_for(self, bench: SqsBench, client: Any) -> None:
        held = await receive_held(bench, client, an_event(1), an_event(2))
        failing = FailingOnce(client)
        settler = Settler(failing, bench.queues.url_of(bench.name), lambda _: None)
        for one, delay in zip(held, (0.05, 60.2), strict=True):
            settler.deliver_after(one, delay)
        await settler.finish()
        assert [entry["VisibilityTimeout"] for entry in failing.entries[:2]] == [1, 61]

    async def test_the_time_out_of_a_message_that_is_not_ours_is_not_changed(
        self, bench: SqsBench, client: Any
    ) -> None:
        (held,) = await receive_held(bench, client, an_event(), visibility=0)
        settler = Settler(client, bench.queues.url_of(bench.name), lambda _: None)
        settler.deliver_after(held, 0)
        await settler.finish()
        assert await bench.receive(VisibilityTimeout=0) == [], "it is hidden for as long as somebody else has it"

    async def test_a_refusal_for_ever_is_said(self, bench: SqsBench, client: Any) -> None:
        (held,) = await receive_held(bench, client, an_event())
        settler = Settler(client, bench.queues.url_of(bench.name) + "-gone", lambda _: None)
        settler.delete(held)
        await settler.finish()
        with pytest.raises(UsageError, match="refused"):
            await settler.has_failed

    async def test_a_delay_waits_for_an_extension_that_is_on_its_way(self, bench: SqsBench, client: Any) -> None:
        (held,) = await receive_held(bench, client, an_event())
        assert held.begin_extension()
        settler = Settler(client, bench.queues.url_of(bench.name), lambda _: None)
        settler.deliver_after(held, 0)
        telling = asyncio.ensure_future(settler.finish())
        assert await bench.receive(VisibilityTimeout=0) == []
        assert not telling.done()
        held.end_extension()
        await telling
        assert len(await bench.receive(VisibilityTimeout=0)) == 1
        assert not held.begin_extension(), "it is extended no more"

    async def test_an_extension_moves_the_end(self, bench: SqsBench, client: Any) -> None:
        (held,) = await receive_held(bench, client, an_event(), visibility=0)
        await extend_visibility(client, bench.queues.url_of(bench.name), [held], 60)
        assert held.is_ours

    async def test_an_extension_of_a_stale_handle_says_that_it_is_not_ours(self, bench: SqsBench, client: Any) -> None:
        (held,) = await receive_held(bench, client, an_event())
        url = bench.queues.url_of(bench.name)
        await client.change_message_visibility(QueueUrl=url, ReceiptHandle=held.handle, VisibilityTimeout=0)
        await bench.receive(VisibilityTimeout=60)
        await extend_visibility(client, url, [held], 60)
        assert not held.is_ours


def test_a_message_is_hidden_for_twelve_hours_at_most() -> None:
    hour = 3600
    fresh = Held({}, asked=time.monotonic(), visibility=30)
    assert fresh.hidden_for(hour) == hour
    assert 12 * hour - 60 < fresh.hidden_for(24 * hour) < 12 * hour
    old = Held({}, asked=time.monotonic() - 11.5 * hour, visibility=30)
    assert hour / 2 - 60 < old.hidden_for(hour) < hour / 2
    assert Held({}, asked=time.monotonic() - 13 * hour, visibility=30).hidden_for(hour) == 0


def test_each_of_a_group_waits_for_the_one_that_came_before_it() -> None:
    groups = Groups()
    first, second, third = (
        Held({"Attributes": {"MessageGroupId": "s-1"}}, asked=time.monotonic(), visibility=30) for _ in range(3)
    )
    assert [groups.admit(Message({}, b"", held)) for held in (first, second, third)] == [None, first, second]
    following = groups.next_after(first)
    assert following is not None
    assert following.token is second
    assert [message.token for message in groups.stop(second)] == [third]


@pytest.mark.anyio
@pytest.mark.slow
class TestFifo:
    """Queues that keep the order of their groups."""

    async def test_of_a_group_one_runs_at_a_time_and_in_order(self, fifo: SqsBench) -> None:
        ledger, running, most = Ledger(), dict[str, int](), dict[str, int]()
        both = asyncio.Barrier(2)
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing")

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            group = str(event.subject)
            running[group] = running.get(group, 0) + 1
            most[group] = max(most.get(group, 0), running[group])
            if event.id in ("e-0", "e-1"):
                async with asyncio.timeout(LONG):
                    await both.wait()  # different groups run side by side
            await asyncio.sleep(0)
            running[group] -= 1
            await ledger.add(event.id)

        await publish(fifo, *(an_event(number, subject=f"s-{number % 2}") for number in range(12)))
        async with fifo.listen(consumer):
            await ledger.has(12)
        assert most == {"s-0": 1, "s-1": 1}
        for group in (0, 1):
            mine = [int(id_[2:]) for id_ in ledger.ids if int(id_[2:]) % 2 == group]
            assert mine == sorted(mine)
        assert await fifo.unsettled() == 0

    async def test_a_group_is_stopped_and_the_others_go_on(self, fifo: SqsBench) -> None:
        ledger, failures = Ledger(), list[str]()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing", backoff=QUIET, in_doubt="rerun")

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            if event.id == "e-0" and len(failures) < 2:
                failures.append(event.id)
                raise LookupError("not yet")
            await ledger.add(event.id)

        await publish(fifo, *(an_event(number, subject="stopped" if number < 3 else "other") for number in range(6)))
        async with fifo.listen(consumer, visibility=60):
            await ledger.has(6)
        assert ledger.ids == ["e-3", "e-4", "e-5", "e-0", "e-1", "e-2"], "a later one of the group went first"
        assert await fifo.unsettled() == 0

    async def test_the_rest_of_a_group_is_given_back_at_the_end(self, fifo: SqsBench) -> None:
        entered, may_end = asyncio.Event(), asyncio.Event()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing")

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            entered.set()
            await may_end.wait()

        await publish(fifo, *(an_event(number, subject="s") for number in range(4)))
        listening = fifo.listen(consumer, visibility=600)
        await listening.__aenter__()
        await asyncio.wait_for(entered.wait(), LONG)
        ending = asyncio.ensure_future(listening.__aexit__(None, None, None))
        await asyncio.sleep(0)
        may_end.set()
        await ending
        found = await fifo.receive(VisibilityTimeout=0)
        assert [Event.from_sqs(raw).id for raw in found] == ["e-1", "e-2", "e-3"]

    async def test_a_dead_letter_lets_its_group_go_on(self, fifo: SqsBench) -> None:
        ledger = Ledger()
        consumer = a_consumer(AsyncSemel(MemoryStore()), ledger, unknown="dead_letter")
        async with adapter.publisher(fifo.queues.url, queue=fifo.name) as publisher:
            events = [an_event(1, type="strange", subject="s"), an_event(2, subject="s")]
            assert await publisher.publish(events) == [None, None]
        async with fifo.listen(consumer):
            await ledger.has(1)
        assert await fifo.passed_on() == ["e-1"]
        assert await fifo.unsettled() == 0


@pytest.mark.anyio
@pytest.mark.slow
class TestPublisher:
    """Sending to queues."""

    async def test_what_is_too_large_is_an_error_of_that_event_alone(self, sqs: Queues) -> None:
        bench = SqsBench(sqs, MaximumMessageSize="1024")
        async with bench.publisher() as publisher:
            answers = await publisher.publish([an_event(1), an_event(2, data="x" * 1024), an_event(3)])
        assert [type(answer) for answer in answers] == [type(None), ValueError, type(None)]
        assert "takes 1024" in str(answers[1]), "it was sent"
        assert await bench.unsettled() == 2

    async def test_no_request_is_larger_than_sqs_takes(self, bench: SqsBench) -> None:
        await publish(bench, *(an_event(number, data="x" * 300_000) for number in range(8)))
        assert await bench.unsettled() == 8

    async def test_what_sqs_does_not_take_is_an_error_of_that_event_alone(self, bench: SqsBench) -> None:
        async with bench.publisher() as publisher:
            answers = await publisher.publish([an_event(1), an_event(2, data="\ufffe"), an_event(3)])
        assert [type(answer) for answer in answers] == [type(None), ValueError, type(None)]
        assert "InvalidMessageContents" in str(answers[1])

    async def test_64_are_on_their_way_side_by_side(self, bench: SqsBench, monkeypatch: pytest.MonkeyPatch) -> None:
        send, all_of_them = adapter.SqsPublisher._send, asyncio.Barrier(7)

        async def send_together(self: Any, client: Any, entries: Any) -> Any:
            async with asyncio.timeout(LONG):
                await all_of_them.wait()
            return await send(self, client, entries)

        monkeypatch.setattr(adapter.SqsPublisher, "_send", send_together)
        await publish(bench, *(an_event(number) for number in range(64)))

    async def test_a_repeat_is_left_out_by_a_fifo_queue(self, fifo: SqsBench) -> None:
        for _ in range(2):
            await publish(fifo, an_event(1, subject="s"), an_event(2, source="/" + "long" * 100))
        assert await fifo.unsettled() == 2

    async def test_a_group_keeps_its_order(self, fifo: SqsBench) -> None:
        subject = "Zürich " + "x" * 200
        await publish(fifo, *(an_event(number, subject=subject) for number in range(9)))
        found = await fifo.receive(VisibilityTimeout=0)
        assert [Event.from_sqs(raw).id for raw in found] == [f"e-{number}" for number in range(9)]

    async def test_none_of_a_group_is_sent_after_one_that_has_to_be_sent_again(
        self, fifo: SqsBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        send = adapter.SqsPublisher._send

        async def refuse_the_first(self: Any, client: Any, entries: Any) -> Any:
            answers = list(await send(self, client, entries))
            return [OSError("not now") if "e-1" in entry.fields["MessageBody"] else answer
                    for entry, answer in zip(entries, answers, strict=True)]  # fmt: skip

        monkeypatch.setattr(adapter.SqsPublisher, "_send", refuse_the_first)
        async with fifo.publisher() as publisher:
            answers = await publisher.publish([an_event(number, subject=f"s-{number % 2}") for number in range(5)])
        assert [answer is None for answer in answers] == [True, False, True, False, True]

    @pytest.mark.parametrize(
        "url", ["https://x", "sqs://u:p@eu-west-1", "sqs://eu-west-1?endpoint=http://u:p@x", "sqs://x?pool=1"]
    )
    def test_an_address_that_is_none_is_refused(self, url: str) -> None:
        with pytest.raises(UsageError, match="sqs://REGION"):
            adapter.publisher(url, queue="q")


class WithoutLease:
    """A consumer whose handlers lose their lease."""

    name, is_async = "billing", True

    def __init__(self) -> None:
        self.policy = Policy()
        self.was_called = asyncio.Event()

    async def receive(self, headers: Any, body: bytes) -> Disposition:
        self.was_called.set()
        return Disposition("retry", "unavailable", error=LeaseLost("somebody else has it"))


class OtherListener:
    """Another process that listens to the queue while a handler runs, in a thread: sees what is visible."""

    def __init__(self, bench: SqsBench, begins: threading.Event, ends: threading.Event) -> None:
        self._bench, self._begins, self._ends = bench, begins, ends
        self._taken: list[Any] = []
        self.looks = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> list[Any]:
        self._thread.join(LONG)
        return self._taken

    def _run(self) -> None:
        self._begins.wait(LONG)
        while not self._ends.wait(0.1):
            self._taken += self._bench.queues.peek(self._bench.name)
            self.looks += 1
