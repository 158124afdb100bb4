"""Who of a listener's requests for messages goes on when there is room again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from semel import AsyncSemel
from semel.events import Consumer
from semel.events.brokers.aws import Address
from semel.events.brokers.sqs.listening import _Subscription
from semel.events.brokers.sqs.messages import MessageReader
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


@pytest.mark.anyio
async def test_a_listener_asks_on_when_what_others_asked_for_did_not_come() -> None:
    queue = EmptyQueue()
    subscription = _Subscription(
        Address(),
        {},
        "billing",
        MessageReader(None, None),
        prefetch=12,
        concurrency=7,
        visibility=30,
        poll_for=1,
        consumer=Consumer(AsyncSemel(MemoryStore()), "billing"),
        dead_letter_queue=None,
    )
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
