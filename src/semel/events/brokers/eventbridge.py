"""Amazon EventBridge: `publisher` puts events on a bus. What rules send on to a queue is listened to with `sqs.listen`.

- The detail of an entry is the whole event as JSON (`application/cloudevents+json`), so that its id arrives: the one of
  the envelope is another one for each put, and a relay may put an event twice.
- Rules match `source`, `detail-type` (the type), and what is in the event: `detail.data`, `detail.subject`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from semel.errors import UsageError
from semel.events.brokers.aws import Address, is_passing_code, translating
from semel.events.brokers.aws_batches import IN_FLIGHT, Answer, BatchPublisher, Entry
from semel.events.event import Event
from semel.extras import requires
from semel.validation import Duration, to_timedelta

with requires("semel.events.brokers.eventbridge", "botocore"):
    from botocore.exceptions import ClientError

SCHEME: Final = "eventbridge"
MOST_BYTES: Final = 1_000_000
"""Of all entries of one request; the service says "less than 1 MB" and does not say of which kind."""
_LONGEST_TYPE: Final = 128
_LONGEST_SOURCE: Final = 256
_OF_TIME: Final = 14
_NO_BUS: Final = "ResourceNotFoundException"


def publisher(
    url: str,
    *,
    bus: str | Callable[[Event], str] = "default",
    confirm_within: Duration = 30.0,
    in_flight: int = IN_FLIGHT,
    **options: Any,
) -> EventBridgePublisher:
    """A publisher for a relay: puts events on a bus and waits until EventBridge has them.

    Args:
        url: of the service, such as `eventbridge://eu-west-1`.
        bus: a name or an ARN, or a callable that makes one of an event.
        confirm_within: how long to wait for EventBridge.
        in_flight: how many events are on their way side by side.
        options: of the SDK's client.
    """
    within = to_timedelta("confirm_within", confirm_within, error=UsageError)
    return EventBridgePublisher(Address.of(url, SCHEME), bus, within, in_flight, options)


class EventBridgePublisher(BatchPublisher):
    """Puts events, ten with each request, and says of each whether EventBridge has it."""

    service = "events"
    title = "EventBridge"
    most_bytes = MOST_BYTES

    def __init__(
        self,
        address: Address,
        bus: str | Callable[[Event], str],
        confirm_within: timedelta,
        in_flight: int,
        options: dict[str, Any],
    ) -> None:
        super().__init__(address, confirm_within, in_flight, options)
        self._bus = bus

    async def _prepare(self, client: Any, event: Event) -> Entry:
        del client
        bus = self._bus(event) if callable(self._bus) else self._bus
        if len(event.type) > _LONGEST_TYPE or len(event.source) > _LONGEST_SOURCE:
            raise ValueError(f"EventBridge takes types of {_LONGEST_TYPE} and sources of {_LONGEST_SOURCE} characters.")
        detail = event.to_json().decode()
        size = sum(len(text.encode()) for text in (event.source, event.type, detail)) + _OF_TIME
        if size > MOST_BYTES:
            raise ValueError(f"The event has {size} bytes, and EventBridge takes {MOST_BYTES}.")
        fields: dict[str, Any] = {
            "EventBusName": bus,
            "Source": event.source,
            "DetailType": event.type,
            "Detail": detail,
        }
        if event.time is not None:
            fields["Time"] = event.time
        return Entry(bus, fields, size)

    async def _send(self, client: Any, entries: Sequence[Entry]) -> Sequence[Answer]:
        with translating(self.title):
            try:
                reply = await client.put_events(Entries=[entry.fields for entry in entries])
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") != _NO_BUS:
                    raise
                return [LookupError(f"EventBridge has no bus {entries[0].target!r}.")] * len(entries)
        return [_error_of(answer, entries[0].target) for answer in reply["Entries"]]


def _error_of(answer: dict[str, Any], bus: str) -> Answer:
    """What came of one entry: OSError, if it may be taken in a moment."""
    code = answer.get("ErrorCode")
    if not code:
        return None
    if code == _NO_BUS:
        return LookupError(f"EventBridge has no bus {bus!r}.")
    if is_passing_code(code):
        return OSError(f"EventBridge did not take the event for now ({code}).")
    return ValueError(f"EventBridge does not take the event ({code}): {answer.get('ErrorMessage', ''):.200}")
