"""What the adapter of RabbitMQ says on a channel whose frames have to wait to be written."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from semel.events.brokers import rabbitmq as adapter
from semel.events.brokers.listening import Message, RetryDelay, cancel_all

pytestmark = pytest.mark.anyio


class FullChannel:
    """A channel with room for one frame, which is taken."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[tuple[str, int, bool]] = asyncio.Queue(maxsize=1)
        self.frames.put_nowait(("something else", 0, False))

    async def basic_ack(self, tag: int, *, multiple: bool = False, wait: bool) -> None:
        assert not wait
        await self.frames.put(("ack", tag, multiple))

    async def basic_reject(self, tag: int, *, requeue: bool, wait: bool) -> None:
        assert not wait
        await self.frames.put(("reject", tag, requeue))

    async def written(self) -> list[tuple[str, int, bool]]:
        """The frames behind the one that took the room, as the broker gets them."""
        got = []
        for _ in range(50):
            if not self.frames.empty():
                got.append(self.frames.get_nowait())
            await asyncio.sleep(0)
        return got[1:]


async def waits_for_room(channel: FullChannel) -> None:
    """All that can go on has gone on, and waits to be written."""
    for _ in range(10):
        await asyncio.sleep(0)
    assert channel.frames.full()


def open_link(*tags: int) -> Any:
    channel: Any = FullChannel()
    acks = adapter._Acknowledgements(channel)
    for tag in tags:
        acks.expect(tag)
    return SimpleNamespace(channel=channel, acks=acks)


@pytest.mark.parametrize("requeue", [False, True], ids=["dead letter", "give back"])
async def test_no_acknowledgement_of_several_overtakes_a_rejection_that_waits_to_be_written(requeue: bool) -> None:
    link = open_link(1, 2, 3)
    subscription = adapter._Subscription("amqp://nowhere", "queue", prefetch=3)
    rejecting = asyncio.create_task(subscription._reject(Message({}, b"", (link, 1, None)), requeue=requeue))
    await waits_for_room(link.channel)
    for tag in (2, 3):
        await subscription.acknowledge(Message({}, b"", (link, tag, None)))
    await waits_for_room(link.channel)
    assert await link.channel.written() == [("reject", 1, requeue), ("ack", 2, False), ("ack", 3, False)]
    await rejecting


async def test_what_follows_a_written_rejection_is_acknowledged_together() -> None:
    link = open_link(1, 2, 3)
    subscription = adapter._Subscription("amqp://nowhere", "queue", prefetch=3)
    rejecting = asyncio.create_task(subscription._reject(Message({}, b"", (link, 1, None)), requeue=False))
    await waits_for_room(link.channel)
    assert await link.channel.written() == [("reject", 1, False)]
    await rejecting
    link.channel.frames.put_nowait(("something else", 0, False))
    for tag in (2, 3):
        await subscription.acknowledge(Message({}, b"", (link, tag, None)))
    await waits_for_room(link.channel)
    assert await link.channel.written() == [("ack", 3, True)]


class Link:
    """A connection that is lost at once, or not at all."""

    def __init__(self, *, stays: bool) -> None:
        self._stays = stays
        self.is_watched = asyncio.Event()

    async def wait_until_lost(self) -> str:
        self.is_watched.set()
        if self._stays:
            await asyncio.Event().wait()
        return "closed"

    async def close(self) -> None: ...


async def test_a_connection_that_is_cancelled_while_it_opens_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    last = Link(stays=True)
    opened: list[Link | BaseException] = [Link(stays=False), asyncio.CancelledError(), last]

    async def open_next(*_: object) -> Link:
        found = opened.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    async def wait(*_: object) -> None: ...

    monkeypatch.setattr(adapter._Link, "open", open_next)
    monkeypatch.setattr(RetryDelay, "wait", wait)
    subscription = adapter._Subscription("amqp://nowhere", "queue", prefetch=3)
    await subscription.start(lambda _: None)
    running = asyncio.create_task(subscription.run())
    watching = asyncio.create_task(last.is_watched.wait())
    await asyncio.wait({running, watching}, return_when=asyncio.FIRST_COMPLETED)
    assert last.is_watched.is_set()
    await cancel_all([running])
