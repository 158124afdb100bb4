"""When brokers and subscribers of FastStream start and stop.

FastStream calls a middleware for messages alone, and a subscriber that loses messages has to be refused before the
first. So this puts itself around three methods of FastStream, once for each process, and does nothing where no inbox is
among the middlewares.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from semel.errors import UsageError
from semel.events.brokers.faststream.middleware import Inbox
from semel.extras import requires

with requires("semel.events.brokers.faststream", "faststream"):
    from faststream._internal.broker import BrokerUsecase
    from faststream._internal.endpoint.subscriber import SubscriberUsecase

_MARK = "_semel_hook"


def install() -> None:
    """Put hooks around starting and stopping, where they are not yet."""
    _wrap(BrokerUsecase, "start", _start_broker)
    _wrap(SubscriberUsecase, "start", _start_subscriber)
    _wrap(SubscriberUsecase, "stop", _stop_subscriber)


Method = Callable[..., Awaitable[None]]


def _wrap(owner: type[Any], name: str, around: Callable[[Method, Any], Awaitable[None]]) -> None:
    original: Method = getattr(owner, name)
    if hasattr(original, _MARK):
        return

    @wraps(original)
    async def method(self: Any) -> None:
        await around(original, self)

    setattr(method, _MARK, True)
    setattr(owner, name, method)


async def _start_broker(original: Method, broker: Any) -> None:
    """Check all subscribers before the first of them takes anything."""
    for subscriber in broker.subscribers:
        if inbox := inbox_of(subscriber):
            inbox.check(subscriber)
            inbox.join(broker, subscriber)
    await original(broker)


async def _start_subscriber(original: Method, subscriber: Any) -> None:
    inbox = inbox_of(subscriber)
    if inbox is None:
        await original(subscriber)
        return
    inbox.check(subscriber)
    await original(subscriber)
    await inbox.start(subscriber)


async def _stop_subscriber(original: Method, subscriber: Any) -> None:
    """Waits for handlers that run, whose deadlines are extended until then, or until nobody waits any more."""
    try:
        await original(subscriber)
    finally:
        if inbox := inbox_of(subscriber):
            await inbox.stop(subscriber)


def inbox_of(subscriber: Any) -> Inbox | None:
    """The inbox that messages of a subscriber go through; None: there is none.

    Raises:
        UsageError: there are several.
    """
    found = [one for one in subscriber._broker_middlewares if isinstance(one, Inbox)]  # noqa: SLF001 - FastStream tells nobody
    if len(found) > 1:
        raise UsageError(f"{found} are around one subscriber, which can be of one consumer only; nothing was taken.")
    return found[0] if found and found[0].serves(subscriber) else None
