"""Queues of SQS by their names, and what they are configured with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from semel.errors import UsageError
from semel.events.brokers.aws import Address, code_of, connect, translating
from semel.events.brokers.limits import BrokerLimits
from semel.extras import requires

with requires("semel.events.brokers.sqs", "botocore"):
    from botocore.exceptions import ClientError

SCHEME: Final = "sqs"
LONGEST_VISIBILITY: Final = timedelta(hours=12)
"""From the moment in which a message is received, all extensions together."""
MOST_BYTES: Final = 1_048_576
"""Of one message, and of all messages of one request."""
IN_ONE_REQUEST: Final = 10
"""How many messages SQS takes, gives, or is told of by one request."""
USUAL_VISIBILITY: Final = 30
_DUPLICATE_WINDOW: Final = timedelta(minutes=5)
_READ_WITHIN: Final = 10.0
NOT_THERE: Final = ("NonExistentQueue", "QueueDoesNotExist", "InvalidAddress")
_DENIED: Final = ("AccessDenied", "AccessDeniedException")


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue that is there.

    Attributes:
        name: as it was asked for.
        url: what SQS knows it by.
        attributes: its settings; empty where we may not read them.
    """

    name: str
    url: str
    attributes: dict[str, str]

    @property
    def is_fifo(self) -> bool:
        """Whether it keeps the order of messages in their groups."""
        return self.url.endswith(".fifo")

    @property
    def visibility(self) -> int:
        """For how many seconds a message is hidden from others when somebody receives it."""
        return int(self.attributes.get("VisibilityTimeout", USUAL_VISIBILITY))

    @property
    def most_bytes(self) -> int:
        """How large a message may be."""
        return int(self.attributes.get("MaximumMessageSize", MOST_BYTES))

    @property
    def most_receives(self) -> int | None:
        """After how many deliveries SQS moves a message to a queue for dead letters by itself."""
        policy = self.attributes.get("RedrivePolicy")
        return int(json.loads(policy)["maxReceiveCount"]) if policy else None


async def find_queue(client: Any, name: str) -> Queue:
    """The queue of this name, or at this URL.

    Raises:
        UsageError: there is none.
        ConnectionError: SQS cannot be reached.
    """
    with translating("SQS"):
        try:
            url = name if "://" in name else (await client.get_queue_url(QueueName=name))["QueueUrl"]
            return Queue(name, url, await _read_attributes(client, url))
        except ClientError as error:
            if code_of(error) not in NOT_THERE:
                raise
            raise UsageError(f"There is no queue {name!r} in this account and region; nothing was done.") from error


async def _read_attributes(client: Any, url: str) -> dict[str, str]:
    try:
        reply = await client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    except ClientError as error:
        if code_of(error) not in _DENIED:
            raise
        return {}  # the right to receive and send does not include the right to look
    attributes: dict[str, str] = reply.get("Attributes", {})
    return attributes


async def read_queue(url: str, queue: str, **options: Any) -> BrokerLimits:
    """How long a queue may deliver a message again, and after how many deliveries SQS gives it up.

    Raises:
        UsageError: there is no such queue, or its settings may not be read.
        ConnectionError: SQS cannot be reached.
    """
    async with connect("sqs", Address.of(url, SCHEME), read_within=_READ_WITHIN, **options) as client:
        found = await find_queue(client, queue)
    if not found.attributes:
        raise UsageError(f"We may not look at the settings of {queue!r} (sqs:GetQueueAttributes); nothing was done.")
    return BrokerLimits(
        place=f"queue {queue}",
        longest=timedelta(seconds=int(found.attributes["MessageRetentionPeriod"])),
        limited_by="MessageRetentionPeriod",
        drops_expired=True,
        delivery_limit=found.most_receives,
        delivery_limited_by="maxReceiveCount",
        duplicate_window=_DUPLICATE_WINDOW if found.is_fifo else None,
        visibility=timedelta(seconds=found.visibility),
        longest_visibility=LONGEST_VISIBILITY,
    )
