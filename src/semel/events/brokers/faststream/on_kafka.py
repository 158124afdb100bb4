"""FastStream's Kafka broker. It was not run against a server; what is checked at start is tested.

Kafka acknowledges positions, not messages. What has to wait holds up its partitions: it is waited for, and then read
again. So nothing is skipped, and nothing overtakes.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from semel.events.brokers.faststream.settling import MessageSettler, Served, demand_manual_policy, refuse, warn
from semel.events.brokers.listening import Message
from semel.events.disposition import Disposition
from semel.extras import requires

with requires("semel.events.brokers.faststream", "aiokafka"):
    from faststream.kafka.subscriber.usecase import BatchSubscriber

IS_RABBITMQ: Final = False
LONGEST_WAIT: Final = timedelta(seconds=60)
"""How long partitions are held up at a time; a member that asks for nothing for too long is put out of its group."""
_USUAL_INTERVAL_MS: Final = 300_000


def check(subscriber: Any) -> None:
    """Refuse a subscriber that would lose messages.

    Raises:
        UsageError: it would.
    """
    demand_manual_policy(subscriber)
    if isinstance(subscriber, BatchSubscriber):
        refuse(subscriber, "takes many messages as one (batch=True)", "Leave batch out")
    if not subscriber.group_id:
        refuse(subscriber, "has no group, so nobody keeps how far it has read", 'Write group_id="NAME"')


def make_settler(served: Served) -> MessageSettler:
    """What its messages are settled by."""
    return _Settler(served)


async def read_limits(subscriber: Any, broker: Any, management: str | None) -> None:
    """Kafka was not run, so it is not asked."""


class _Settler(MessageSettler):
    """Commits the position behind a message, or goes back to it after a while."""

    async def start(self) -> None:
        subscriber, longest = self._served.subscriber, self._served.consumer.policy.max_runtime
        interval = timedelta(
            milliseconds=subscriber._connection_args.get("max_poll_interval_ms", _USUAL_INTERVAL_MS)  # noqa: SLF001 - what it connects with
        )
        if longest >= interval:
            warn(
                subscriber,
                f"may run a handler for {longest} (max_runtime), and is put out of its group after {interval} "
                f"(max_poll_interval_ms); then another member takes its messages too",
            )

    async def retry(self, message: Message, after: timedelta) -> None:
        await asyncio.sleep(min(after, LONGEST_WAIT).total_seconds())
        await super().retry(message, after)

    async def dead_letter(self, message: Message, disposition: Disposition) -> None:  # noqa: ARG002 - it is stored here
        await self.acknowledge(message)
