"""What FastStream's brokers are told of a message, and which subscribers are refused because messages would be lost.

- A subscriber is checked before it takes anything, by what it was declared with.
- `MessageSettler` says no more than FastStream's own message can; it is all there is under FastStream's test brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from semel.errors import UsageError
from semel.events.brokers.listening import AnyConsumer, Message, Settler, log
from semel.events.disposition import Disposition
from semel.extras import requires

with requires("semel.events.brokers.faststream", "faststream"):
    from faststream import AckPolicy
    from faststream.message import StreamMessage


@dataclass(frozen=True, slots=True)
class Served:
    """A subscriber whose messages go through an inbox, and what its settler has to know."""

    subscriber: Any
    broker: Any
    consumer: AnyConsumer
    ack_wait: timedelta


class MessageSettler(Settler):
    """Tells a broker what FastStream's messages can tell it."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def start(self) -> None:
        """Begin what runs beside the subscriber.

        Raises:
            UsageError: settings of the broker would lose messages.
        """

    async def stop(self, asked_by: asyncio.Task[Any] | None) -> None:
        """End it. The task that asked for it may be one of a handler, and waits for it."""

    def parts_of(self, message: StreamMessage[Any]) -> tuple[Mapping[str, Any], bytes]:
        """The headers and the body of a message, as its producer sent them."""
        headers = dict(message.headers)
        if message.content_type and not any(name.lower() == "content-type" for name in headers):
            headers["content-type"] = message.content_type
        return headers, message.body

    async def acknowledge(self, message: Message) -> None:
        """The message is done with."""
        self.abandon(message)
        with self._unless_lost():
            await message.token.ack()

    async def retry(self, message: Message, after: timedelta) -> None:  # noqa: ARG002 - brokers that can wait say so
        """Have it delivered again."""
        self.abandon(message)
        with self._unless_lost():
            await message.token.nack()

    async def dead_letter(self, message: Message, disposition: Disposition) -> None:  # noqa: ARG002 - it travels as is
        """The broker is to do what it does with a message that nobody could process."""
        self.abandon(message)
        with self._unless_lost():
            await message.token.reject()

    def _unless_lost(self) -> Any:
        """Leave out what is said over a connection that is gone: the broker delivers again what it was not told of."""
        return suppress(OSError, RuntimeError)


def describe(subscriber: Any) -> str:
    """What a subscriber is called in messages: its handlers, and where it takes from."""
    context = {name: text for name, text in subscriber.get_log_context(None).items() if text and name != "message_id"}
    where = ", ".join(f"{name} {text!r}" for name, text in context.items())
    return f"the subscriber {subscriber.specification.call_name} ({where})"


def demand_manual_policy(subscriber: Any, *, is_really_first: bool = False) -> None:
    """Refuse a subscriber whose messages FastStream acknowledges by itself.

    Raises:
        UsageError: it does, says which policy, and what to write instead.
    """
    policy = AckPolicy.ACK_FIRST if is_really_first else subscriber.ack_policy
    if policy is AckPolicy.MANUAL:
        return
    losses = {
        AckPolicy.ACK_FIRST: "a message is acknowledged before its handler begins, so a crash loses it",
        AckPolicy.ACK: "a message is acknowledged even if its handler failed, so it is not delivered again",
        AckPolicy.REJECT_ON_ERROR: "a message is dropped when its handler fails, so it is not delivered again",
        AckPolicy.NACK_ON_ERROR: "a message comes again at once and for ever when its handler fails",
    }
    refuse(
        subscriber,
        f"has ack_policy=AckPolicy.{policy.name}: {losses[policy]}",
        "Write ack_policy=AckPolicy.MANUAL; the inbox acknowledges",
    )


def refuse(subscriber: Any, what: str, instead: str) -> None:
    """Refuse a subscriber.

    Raises:
        UsageError: always.
    """
    name = describe(subscriber)
    raise UsageError(f"{name[0].upper()}{name[1:]} {what}; nothing was taken. {instead}.")


def warn(subscriber: Any, what: str) -> None:
    """Say what is dangerous about a subscriber that is not refused."""
    log.warning("%s %s", describe(subscriber), what)
