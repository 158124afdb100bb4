"""Sending events to queues of SQS.

- An event is the body of its message, as JSON (`application/cloudevents+json`): a message has room for ten attributes,
  and its body for text alone.
- On a FIFO queue the group of a message is the subject of the event, and source and id are what SQS leaves repeats out
  by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

from semel.errors import UsageError
from semel.events.brokers.aws import Address, code_of, is_passing_code, translating
from semel.events.brokers.aws_batches import IN_FLIGHT, Answer, BatchPublisher, Entry
from semel.events.brokers.listening import identity_of
from semel.events.brokers.sqs.queues import MOST_BYTES, NOT_THERE, SCHEME, Queue, find_queue
from semel.events.event import Event
from semel.extras import requires
from semel.validation import Duration, to_timedelta

with requires("semel.events.brokers.sqs", "botocore"):
    from botocore.exceptions import ClientError

_LONGEST_ID: Final = 128
_PLAIN: Final = "!#$&'()*+,-./:;<=>?@[]^_`{|}~"


def publisher(
    url: str,
    *,
    queue: str | Callable[[Event], str],
    group: Callable[[Event], str] | None = None,
    confirm_within: Duration = 30.0,
    in_flight: int = IN_FLIGHT,
    **options: Any,
) -> SqsPublisher:
    """A publisher for a relay: sends events to queues and waits until SQS has them.

    Args:
        url: of the service, such as `sqs://eu-west-1`.
        queue: a name or a URL, or a callable that makes one of an event. A queue that is not there is not made.
        group: makes the message group of an event, for FIFO queues; by default its subject, and without one each event
            is a group of its own. Events of one group keep their order.
        confirm_within: how long to wait for SQS.
        in_flight: how many events are on their way side by side.
        options: of the SDK's client.
    """
    within = to_timedelta("confirm_within", confirm_within, error=UsageError)
    address = Address.of(url, SCHEME)
    return SqsPublisher(address, queue, group or _group_of, confirm_within=within, in_flight=in_flight, options=options)


def _group_of(event: Event) -> str:
    return event.subject or identity_of(event.source, event.id)


class SqsPublisher(BatchPublisher):
    """Sends events to queues, ten with each request, and says of each whether SQS has it."""

    service = "sqs"
    title = "SQS"
    most_bytes = MOST_BYTES

    def __init__(
        self,
        address: Address,
        queue: str | Callable[[Event], str],
        group: Callable[[Event], str],
        *,
        confirm_within: timedelta,
        in_flight: int,
        options: dict[str, Any],
    ) -> None:
        super().__init__(address, confirm_within, in_flight, options)
        self._queue = queue
        self._group = group
        self._found: dict[str, Queue] = {}

    async def _prepare(self, client: Any, event: Event) -> Entry:
        name = self._queue(event) if callable(self._queue) else self._queue
        body = event.to_json().decode()
        queue = await self._find(client, name)
        size = len(body.encode())
        if size > queue.most_bytes:
            raise ValueError(f"The event has {size} bytes as JSON, and {name!r} takes {queue.most_bytes}.")
        if not queue.is_fifo:
            return Entry(queue.url, {"MessageBody": body}, size)
        group = _short(quote(self._group(event), safe=_PLAIN))
        fields = {
            "MessageBody": body,
            "MessageGroupId": group,
            "MessageDeduplicationId": _short(identity_of(event.source, event.id)),
        }
        return Entry(queue.url, fields, size, group)

    async def _find(self, client: Any, name: str) -> Queue:
        """The queue of this name, which is looked for once.

        Raises:
            LookupError: there is none.
        """
        if name not in self._found:
            try:
                self._found[name] = await find_queue(client, name)
            except UsageError as error:
                if isinstance(error.__cause__, ClientError) and code_of(error.__cause__) in NOT_THERE:
                    raise LookupError(f"SQS has no queue {name!r}.") from error
                raise
        return self._found[name]

    async def _send(self, client: Any, entries: Sequence[Entry]) -> Sequence[Answer]:
        listed = [{"Id": str(place), **entry.fields} for place, entry in enumerate(entries)]
        with translating(self.title):
            try:
                reply = await client.send_message_batch(QueueUrl=entries[0].target, Entries=listed)
            except ClientError as error:
                if code_of(error) not in NOT_THERE:
                    raise
                self._found = {name: queue for name, queue in self._found.items() if queue.url != entries[0].target}
                return [LookupError("SQS has no such queue any more.")] * len(entries)
        answers: list[Answer] = [None] * len(entries)
        for failure in reply.get("Failed", ()):
            answers[int(failure["Id"])] = _error_of(failure)
        return answers


def _error_of(failure: dict[str, Any]) -> Exception:
    """What one entry of a request failed by: OSError, if it may be taken in a moment."""
    code, text = failure.get("Code", ""), failure.get("Message", "")
    if is_passing_code(code) or not failure.get("SenderFault", False):
        return OSError(f"SQS did not take the event for now ({code}).")
    return ValueError(f"SQS does not take the event ({code}): {text:.200}")


def _short(text: str) -> str:
    """A text that fits where SQS takes 128 characters: itself, or its digest."""
    return text if len(text) <= _LONGEST_ID else hashlib.sha256(text.encode()).hexdigest()
