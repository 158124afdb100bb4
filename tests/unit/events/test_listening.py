"""What the listeners of all brokers share, over a subscription that is under the test's control."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from semel import AsyncSemel, Policy
from semel.events import Consumer, Event
from semel.events.brokers.listening import Message, Subscription, cancel_all, run_listener
from semel.events.disposition import Disposition
from semel.stores.memory import MemoryStore
from tests.virtual_loop import VirtualLoop

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


class Wedged:
    """A consumer whose handlers run until they are let go."""

    name = "billing"
    is_async = True
    policy = Policy(max_runtime=timedelta(seconds=60))

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.may_end = asyncio.Event()

    async def receive(self, _headers: Mapping[str, Any], body: bytes) -> Disposition:
        self.begun.append(body)
        await self.may_end.wait()
        return Disposition("ack", "processed")


class Asked(Subscription):
    """A broker that notes what it is told, and when it is asked for no messages."""

    can_hold_off = True

    def __init__(self) -> None:
        self.back: list[bytes] = []
        self.is_held_off = False
        self._is_silent = False
        self.take: Callable[[Message], None] = lambda _: None

    async def start(self, take: Callable[[Message], None]) -> None:
        self.take = take

    def send(self, *bodies: bytes) -> None:
        for body in bodies:
            self.take(Message({}, body, None))

    def fall_silent(self) -> None:
        self._is_silent = True

    async def run(self) -> None: ...

    async def pause(self) -> None: ...

    async def close(self) -> None: ...

    async def acknowledge(self, message: Message) -> None: ...

    async def retry(self, message: Message, after: timedelta) -> None: ...

    async def dead_letter(self, message: Message, disposition: Disposition) -> None: ...

    async def give_back(self, message: Message) -> None:
        self.back.append(message.body)
        if self._is_silent:
            await asyncio.sleep(5)

    def hold_off(self) -> None:
        self.is_held_off = True

    def go_on(self) -> None:
        self.is_held_off = False


def on_virtual_time(case: Callable[[Wedged, Asked], Awaitable[None]], *, stop_within: float = 30) -> float:
    """Run a case while two handlers at a time may run, and give how long the end took."""

    async def main() -> float:
        consumer, broker = Wedged(), Asked()
        loop = asyncio.get_running_loop()
        async with run_listener(consumer, broker, concurrency=2, stop_within=stop_within):
            await case(consumer, broker)
            ends_at = loop.time()
        return loop.time() - ends_at

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


class TestStandstill:
    """All handlers run for longer than they may."""

    def test_what_waits_is_given_back_when_no_handler_ended_for_so_long(self) -> None:
        async def case(_: Wedged, broker: Asked) -> None:
            broker.send(b"1", b"2", b"3", b"4")
            await asyncio.sleep(59)
            assert broker.back == []
            await asyncio.sleep(2)
            assert broker.back == [b"3", b"4"]

        on_virtual_time(case)

    def test_nothing_more_is_asked_for_and_what_comes_all_the_same_is_given_back(self) -> None:
        async def case(_: Wedged, broker: Asked) -> None:
            broker.send(b"1", b"2")
            await asyncio.sleep(61)
            assert broker.is_held_off
            broker.send(b"3")
            await asyncio.sleep(0.1)
            assert broker.back == [b"3"]

        on_virtual_time(case)

    def test_a_handler_that_ends_at_last_lets_it_go_on(self) -> None:
        async def case(consumer: Wedged, broker: Asked) -> None:
            broker.send(b"1", b"2")
            await asyncio.sleep(61)
            consumer.may_end.set()
            await asyncio.sleep(0.1)
            assert not broker.is_held_off
            broker.send(b"3")
            await asyncio.sleep(0.1)
            assert consumer.begun == [b"1", b"2", b"3"]

        on_virtual_time(case)

    def test_with_room_for_another_handler_nothing_is_held_off(self) -> None:
        async def case(_: Wedged, broker: Asked) -> None:
            broker.send(b"1")
            await asyncio.sleep(1000)
            assert not broker.is_held_off

        on_virtual_time(case)


def test_a_broker_that_does_not_answer_delays_the_end_by_no_more_than_was_allowed() -> None:
    async def case(_: Wedged, broker: Asked) -> None:
        broker.send(*(b"%d" % number for number in range(100)))
        await asyncio.sleep(0.1)
        broker.fall_silent()

    assert on_virtual_time(case, stop_within=30) <= 31
