"""A listener to SQS over a client that is under the test's control: what it asks for, and what it keeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from botocore import exceptions

from semel import AsyncSemel
from semel.deadlines import Deadlines
from semel.events import Consumer
from semel.events.brokers.aws import Address
from semel.events.brokers.sqs import listening
from semel.events.brokers.sqs.listening import _Subscription
from semel.events.brokers.sqs.messages import Held, MessageReader
from semel.events.brokers.sqs.queues import Queue
from semel.events.brokers.sqs.settling import Settler
from semel.events.disposition import Disposition
from semel.stores.memory import MemoryStore

LONG = 10


class EmptyQueue:
    """Answers each request, when the test says so, that there is no message."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[asyncio.Future[dict[str, Any]]] = asyncio.Queue()

    async def receive_message(self, **_: Any) -> dict[str, Any]:
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.requests.put_nowait(answer)
        return await answer


def a_subscription(**settings: Any) -> _Subscription:
    return _Subscription(
        Address(),
        {},
        "billing.fifo",
        MessageReader(None, None),
        visibility=30,
        poll_for=1,
        consumer=Consumer(AsyncSemel(MemoryStore()), "billing"),
        dead_letter_queue=None,
        **settings,
    )


@pytest.mark.anyio
async def test_a_listener_asks_on_when_what_others_asked_for_did_not_come() -> None:
    queue = EmptyQueue()
    subscription = a_subscription(prefetch=12, concurrency=7)
    subscription._client = queue
    beside = subscription._start_poll(subscription._poll_while_there_are())
    first = await asyncio.wait_for(queue.requests.get(), LONG)  # for ten of the twelve that there is room for
    going_on = asyncio.create_task(subscription._poll_for_ever())
    await asyncio.sleep(0)
    assert queue.requests.empty(), "there is room for two, which is not worth a request"
    first.set_result({})
    await beside
    again = await asyncio.wait_for(queue.requests.get(), LONG)
    await subscription.pause()
    again.set_result({})
    await asyncio.wait_for(going_on, LONG)


class RefusingClient:
    """Notes which messages are to be visible again."""

    def __init__(self) -> None:
        self.visible: list[str] = []

    async def change_message_visibility_batch(self, *, Entries: list[dict[str, Any]], **_: Any) -> dict[str, Any]:  # noqa: N803 - the name in SQS
        self.visible += [entry["ReceiptHandle"] for entry in Entries]
        return {}


@asynccontextmanager
async def extending_nothing() -> AsyncIterator[Any]:
    yield None


@pytest.mark.anyio
async def test_deliveries_that_wait_in_vain_behind_a_wedged_handler_take_no_room() -> None:
    subscription, client = a_subscription(prefetch=12, concurrency=7), RefusingClient()
    subscription._queue = Queue("billing.fifo", "https://queue/billing.fifo", {})
    subscription._deadlines = Deadlines(extending_nothing, every=10, longest=60)
    subscription._settler = Settler(client, subscription._queue.url, subscription._forget)

    def deliver(handle: str) -> Held:
        raw = {"ReceiptHandle": handle, "Body": "{}", "Attributes": {"MessageGroupId": "pump-1"}}
        held = Held(raw, asked=time.monotonic(), visibility=30)
        subscription._add(held)
        return held

    wedged = deliver("wedged")
    for number in range(3):
        wedged.visible_at = deliver(f"in vain {number}").visible_at = time.monotonic()
    deliver("one")
    lost = deliver("two")
    deliver("three")
    lost.visible_at = time.monotonic()
    last = deliver("again")
    await subscription._settler.finish()
    assert [held.handle for held in subscription._held if held not in (wedged, last)] == ["one"]
    assert client.visible == ["three"], "it would overtake the second, which is not ours any more"


class SilentClient:
    """Answers nothing."""

    async def change_message_visibility_batch(self, **_: Any) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("it was answered")


@pytest.mark.anyio
async def test_an_end_waits_for_a_silent_service_no_longer_than_for_one_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "_ANSWER_WITHIN", 0.01)
    subscription = a_subscription(prefetch=12, concurrency=7)
    subscription._settler = Settler(SilentClient(), "https://queue/billing.fifo", subscription._forget)
    raw = {"ReceiptHandle": "one", "Body": "{}"}
    subscription._settler.deliver_after(Held(raw, asked=time.monotonic(), visibility=30), 0)
    await asyncio.wait_for(subscription.close(), LONG)
    assert "SQS was not told of all messages" in caplog.text


@pytest.mark.parametrize(
    ("spare", "added"), [(10, []), (40, ["Semel-Reason"]), (80, ["Semel-Reason", "Semel-Reference"])]
)
def test_a_dead_letter_says_why_where_the_queue_has_room_for_it(spare: int, added: list[str]) -> None:
    attributes = {"ce-id": {"DataType": "String", "StringValue": "e-1"}}
    raw = {"Body": "é" * 100, "MessageAttributes": attributes, "MessageId": "m"}
    queue = Queue("dead", "https://queue/dead", {"MaximumMessageSize": str(200 + len("ce-idStringe-1") + spare)})
    disposition = Disposition("dead_letter", "exhausted", reference="event:billing a0de434a97f6")
    copy = listening._copy_for(queue, Held(raw, asked=0, visibility=30), disposition)
    assert list(copy["MessageAttributes"]) == ["ce-id", *added]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "silence",
    [
        exceptions.CredentialRetrievalError(provider="iam-role", error_msg="nobody answered"),
        exceptions.MetadataRetrievalError(error_msg="nobody answered"),
    ],
)
async def test_credentials_that_could_not_be_fetched_for_a_moment_do_not_end_a_listener(silence: Exception) -> None:
    class Service(EmptyQueue):
        is_silent = True

        async def receive_message(self, **asked: Any) -> dict[str, Any]:
            if self.is_silent:
                self.is_silent = False
                raise silence
            return await super().receive_message(**asked)

    subscription, queue = a_subscription(prefetch=12, concurrency=7), Service()
    subscription._client = queue
    going_on = asyncio.create_task(subscription._poll_for_ever())
    again = await asyncio.wait_for(queue.requests.get(), LONG)
    await subscription.pause()
    again.set_result({})
    await asyncio.wait_for(going_on, LONG)
