"""What FastStream's subscribers and their brokers are configured with, for `semel doctor`.

Nothing is started and nothing is taken: subscribers are checked as at their start, and brokers are asked for settings.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from semel.errors import UsageError
from semel.events.brokers.faststream.hooks import inbox_of
from semel.events.brokers.faststream.middleware import module_of
from semel.events.brokers.faststream.on_subscriber import SubscriberConsumer
from semel.events.brokers.faststream.settling import describe
from semel.events.brokers.limits import BrokerLimits
from semel.extras import requires

with requires("semel.events.brokers.faststream", "faststream"):
    from faststream._internal.application import Application
    from faststream._internal.broker import BrokerUsecase


@dataclass(frozen=True, slots=True)
class SubscriberSettings:
    """A subscriber, and what was found.

    Attributes:
        name: what it is called in messages.
        consumer: whose marks its inbox makes; None: it has no inbox.
        refusal: why it does not start; None: it does.
        limits: what its broker is configured with; None: it tells nothing of the kind.
        silence: why the broker did not tell: it was not reached, or has no such queue or stream; None: it did.
        is_rabbitmq: whether the broker is RabbitMQ.
    """

    name: str
    consumer: SubscriberConsumer | None
    refusal: str | None = None
    limits: BrokerLimits | None = None
    silence: ConnectionError | UsageError | None = None
    is_rabbitmq: bool = False


def read_subscribers(found: Any, management: str | None) -> list[SubscriberSettings]:
    """What the subscribers of a broker, or of an application, are configured with.

    Args:
        found: the broker or the application.
        management: RabbitMQ: where its management plugin answers.

    Raises:
        UsageError: it is neither.
    """
    broker = found.broker if isinstance(found, Application) else found
    if not isinstance(broker, BrokerUsecase):
        raise UsageError(f"A {type(found).__qualname__} is no broker of FastStream; nothing was done.")
    return asyncio.run(_read_all(broker, management))


async def _read_all(broker: Any, management: str | None) -> list[SubscriberSettings]:
    return [await _read(broker, subscriber, management) for subscriber in broker.subscribers]


async def _read(broker: Any, subscriber: Any, management: str | None) -> SubscriberSettings:
    name = describe(subscriber)
    try:
        inbox = inbox_of(subscriber)
        if inbox is None:
            return SubscriberSettings(name, None)
        inbox.check(subscriber)
    except UsageError as error:
        return SubscriberSettings(name, None, refusal=error.message)
    module, consumer = module_of(subscriber), inbox.consumer_of(subscriber)
    limits: BrokerLimits | None = None
    silence: ConnectionError | UsageError | None = None
    try:
        limits = await module.read_limits(subscriber, broker, management)
    except (ConnectionError, UsageError) as error:
        silence = error
    return SubscriberSettings(name, consumer, None, limits, silence, module.IS_RABBITMQ)
