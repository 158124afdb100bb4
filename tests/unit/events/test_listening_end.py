"""What a listener says where handlers outlast its end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from semel import Semel
from semel.events import Consumer
from semel.events.brokers.listening import Message, Subscription, run_listener
from semel.events.disposition import Disposition
from semel.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio
HEADERS = {"ce-id": "e-1", "ce-source": "/s", "ce-type": "registered"}


class OneMessage(Subscription):
    """A broker that has one message."""

    async def start(self, take: Callable[[Message], None]) -> None:
        take(Message(HEADERS, b"", None))

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def pause(self) -> None: ...

    async def close(self) -> None: ...

    async def acknowledge(self, message: Message) -> None: ...

    async def retry(self, message: Message, after: timedelta) -> None: ...

    async def dead_letter(self, message: Message, disposition: Disposition) -> None: ...

    async def give_back(self, message: Message) -> None: ...


async def test_nobody_is_told_that_a_handler_in_a_thread_is_interrupted(caplog: pytest.LogCaptureFixture) -> None:
    consumer: Consumer[Semel] = Consumer(Semel(MemoryStore()), "billing")
    began, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @consumer.on("registered")
    def registered() -> None:
        loop.call_soon_threadsafe(began.set)
        may_end.wait(60)

    try:
        with caplog.at_level(logging.WARNING, logger="semel.events.brokers"):
            async with run_listener(consumer, OneMessage(), concurrency=1, stop_within=0.01):
                await began.wait()
    finally:
        may_end.set()
    assert "1 handlers still ran" in caplog.text
    assert "no longer waited for" in caplog.text
    assert "interrupted" not in caplog.text
