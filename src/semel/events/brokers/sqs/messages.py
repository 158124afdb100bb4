"""One delivery of a message, for how long it is ours, and the event that it is.

- A message is ours until its visibility time-out ends. Each extension moves that, up to 12 hours after the delivery.
- While an extension is on its way, nobody else changes the time-out: one that arrived later would win over a delay.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import msgspec

from semel.errors import EventInvalid
from semel.events.brokers.listening import log
from semel.events.brokers.sqs.queues import IN_ONE_REQUEST, LONGEST_VISIBILITY
from semel.events.event import JSON_EVENT, Event

_MARGIN: Final = 5.0
"""Seconds that are left of the 12 hours: SQS refuses what is longer than its own clock allows."""
_OF_EVENTS: Final = ("ce-", "ce_", "cloudevents:", "cloudevents_")
_ENVELOPE: Final = '"detail-type"'
_NO_EVENT: Final = {"content-type": "application/octet-stream"}
One = TypeVar("One")


class Held:
    """A message that was delivered to us.

    Attributes:
        raw: the message as SQS gave it.
        visible_at: when others may be given it, by our clock.
    """

    def __init__(self, raw: Mapping[str, Any], *, asked: float, visibility: float) -> None:
        self.raw = raw
        self.visible_at = time.monotonic() + visibility
        self._last = asked + LONGEST_VISIBILITY.total_seconds() - _MARGIN
        self._lock = threading.Lock()
        self._is_settled = False
        self._extension: Future[None] | None = None

    @property
    def handle(self) -> str:
        """What SQS knows this delivery by."""
        return str(self.raw["ReceiptHandle"])

    @property
    def group(self) -> str | None:
        """The group that it keeps its order in, on a FIFO queue."""
        found: str | None = self.raw.get("Attributes", {}).get("MessageGroupId")
        return found

    @property
    def is_ours(self) -> bool:
        """Whether nobody else can have been given it."""
        return time.monotonic() < self.visible_at

    def hidden_for(self, seconds: float) -> int:
        """For how many seconds it can be hidden from now on, of those that are asked for."""
        return max(0, int(min(seconds, self._last - time.monotonic())))

    def begin_extension(self) -> bool:
        """Whether it may be extended; then nobody else changes its time-out until `end_extension`."""
        with self._lock:
            if not self._is_settled:
                self._extension = Future()
            return not self._is_settled

    def end_extension(self) -> None:
        """The extension has arrived, or failed."""
        assert self._extension is not None  # noqa: S101 - it was begun
        self._extension.set_result(None)

    async def stop_extensions(self) -> None:
        """Have it extended no more, and wait for one that is on its way."""
        with self._lock:
            self._is_settled = True
        if self._extension is not None:
            await asyncio.shield(asyncio.wrap_future(self._extension))


def in_tens(things: Sequence[One]) -> Iterator[Sequence[One]]:
    """As many at a time as one request takes."""
    for start in range(0, len(things), IN_ONE_REQUEST):
        yield things[start : start + IN_ONE_REQUEST]


class MessageReader:
    """Makes headers and a body of a message, as consumers take them.

    Args:
        event_id: where the id of the producer is in a body that is no CloudEvent, as a path of names with dots.
        event_subject: where the subject is, in an envelope of EventBridge.
    """

    def __init__(self, event_id: str | None, event_subject: str | None) -> None:
        self._id = event_id
        self._subject = event_subject

    def read(self, raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], bytes]:
        """The headers and the body; of what is no event, such that the consumer says so."""
        body = str(raw.get("Body", ""))
        texts = {
            name: attribute["StringValue"]
            for name, attribute in raw.get("MessageAttributes", {}).items()
            if "StringValue" in attribute
        }
        if any(name.lower().startswith(_OF_EVENTS) for name in texts):
            return texts, body.encode()
        if self._id is None and _ENVELOPE not in body:
            return {"content-type": JSON_EVENT}, body.encode()
        try:
            return {"content-type": JSON_EVENT}, self._read_event(raw, body).to_json()
        except EventInvalid as error:
            log.warning("a message of SQS is no event: %s", error)
            return _NO_EVENT, body.encode()

    def _read_event(self, raw: Mapping[str, Any], body: str) -> Event:
        envelope = _decode(body)
        if "detail-type" not in envelope:
            return Event.from_sqs(raw, id=self._id)
        detail = envelope.get("detail")
        if self._id is not None or (isinstance(detail, dict) and "specversion" in detail):
            return Event.from_eventbridge(envelope, id=self._id or "id", subject=self._subject)
        raise EventInvalid(
            "It is an envelope of EventBridge, whose id is another one for each put; nothing ran. Say where the id of "
            "the producer is: listen(event_id='detail.…'), or event_id='id' if each event is put once."
        )


def _decode(body: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
