"""What the listeners of all brokers share, over a subscription that is under the test's control."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from semel import AsyncSemel
from semel.events import Consumer, Event
from semel.events.brokers.listening import Message, Subscription, cancel_all, run_listener
from semel.events.disposition import Disposition
from semel.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class LosingCancellations(Subscription):
    """A broker whose client turns a cancellation into an error of its connection, and whose adapter goes on then."""

    def __init__(self) -> None:
        self.lost = 0
        self.is_closed = False
        self._take: Callable[[Message], None] | None = None
        self._never = asyncio.Event()

    async def start(self, take: Callable[[Message], None]) -> None:
        self._take = take

    async def run(self) -> None:
        await self._never.wait()

    async def pause(self) -> None:
        assert self._take is not None
        self._take(Message({}, b"", None))  # one that was on its way
        await asyncio.sleep(0)

    async def close(self) -> None:
        self.is_closed = True

    async def acknowledge(self, message: Message) -> None: ...

    async def retry(self, message: Message, after: timedelta) -> None: ...

    async def dead_letter(self, message: Message, disposition: Disposition) -> None: ...

    async def give_back(self, message: Message) -> None:
        try:
            await self._never.wait()
        except asyncio.CancelledError:
            self.lost += 1


async def test_a_listener_ends_although_its_client_loses_a_cancellation() -> None:
    consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing")

    @consumer.on("registered")
    async def registered(event: Event) -> None: ...

    subscription = LosingCancellations()
    async with asyncio.timeout(20):
        async with run_listener(consumer, subscription, concurrency=1, stop_within=1):
            await asyncio.sleep(0)  # a worker waits for messages
    assert subscription.lost == 1
    assert subscription.is_closed


async def test_a_task_that_survives_a_cancellation_is_cancelled_again() -> None:
    survived = 0

    async def survive() -> None:
        nonlocal survived
        while survived < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                survived += 1

    task = asyncio.create_task(survive())
    await asyncio.sleep(0)
    await cancel_all([task])
    assert survived == 3
