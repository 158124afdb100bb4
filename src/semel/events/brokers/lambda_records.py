"""What AWS Lambda is invoked with, as messages: records of SQS and Kinesis, and events of EventBridge.

- The id of an event is that of its producer: of the CloudEvent in the body, or else at a path that is named.
  `messageId` and `eventID` are never taken: what is sent twice has two of them.
- An event that EventBridge delivers by itself has the `id` that EventBridge gave to its put, unless its detail is a
  CloudEvent or a path is named. In a queue or a stream that id is not taken, as `sqs.listen` does not take it: a
  message means the same to everybody who reads it.
- `order` names what has to stay in order: records that share it are not begun after one of them has failed.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from semel.errors import EventInvalid, UsageError
from semel.events.event import Event, is_attribute


@dataclass(frozen=True, slots=True)
class Message:
    """One record of an invocation.

    Attributes:
        raw: the record as Lambda gave it.
        identifier: what Lambda is told where it failed.
        headers: its attributes that are text.
        body: what its producer sent.
        read: gives the event that it is; raises `EventInvalid`.
        order: what it has to stay in order with; None: with nothing.
        shard: of Kinesis; None elsewhere.
    """

    raw: Mapping[str, Any]
    identifier: str
    headers: Mapping[str, str]
    body: bytes
    read: Callable[[], Event]
    order: tuple[str, str] | None = None
    shard: str | None = None


@dataclass(frozen=True, slots=True)
class Paths:
    """Where in a message the producer's id and the subject are, as paths of names with dots; None: the usual place.

    The subject is that of a message of EventBridge, which has no place for one.
    """

    id: str | None = None
    subject: str | None = None


def is_eventbridge(invocation: Any) -> bool:
    """Whether Lambda was invoked with one event of EventBridge."""
    return isinstance(invocation, Mapping) and "detail-type" in invocation and "Records" not in invocation


def read_messages(invocation: Any, paths: Paths) -> list[Message]:
    """The records that Lambda was invoked with.

    Raises:
        UsageError: it is of another source.
    """
    records = invocation.get("Records") if isinstance(invocation, Mapping) else None
    if not isinstance(records, list):
        raise _unknown_source_error(type(invocation).__name__)
    return [_read_record(record, paths) for record in records]


def eventbridge_message(invocation: Mapping[str, Any], paths: Paths) -> Message:
    """The event of EventBridge that Lambda was invoked with."""
    body, path = _bytes_of(invocation), paths.id or "id"
    identifier = str(invocation.get("id", ""))
    return Message(invocation, identifier, {}, body, lambda: _read_eventbridge(invocation, paths, path))


def _read_record(record: Any, paths: Paths) -> Message:
    source = record.get("eventSource") if isinstance(record, Mapping) else None
    if source == "aws:sqs":
        return _sqs_message(record, paths)
    if source == "aws:kinesis":
        return _kinesis_message(record, paths)
    raise _unknown_source_error(str(source))


def _unknown_source_error(source: str) -> UsageError:
    return UsageError(
        f"This handler takes records of SQS and Kinesis and events of EventBridge, not of {source[:80]!r}; nothing "
        f"ran, and nothing was acknowledged. Look at what the function is triggered by."
    )


def _sqs_message(record: Mapping[str, Any], paths: Paths) -> Message:
    queue = str(record.get("eventSourceARN", ""))
    group = (record.get("attributes") or {}).get("MessageGroupId")
    attributes = record.get("messageAttributes") or {}
    headers = {name: one["stringValue"] for name, one in attributes.items() if isinstance(one.get("stringValue"), str)}
    text = record.get("body")
    return Message(
        raw=record,
        identifier=str(record["messageId"]),
        headers=headers,
        body=text.encode("utf-8", "backslashreplace") if isinstance(text, str) else b"",
        read=lambda: _read_sqs(record, headers, paths),
        # A standard queue may have groups as well, for fairness; it keeps no order.
        order=(queue, str(group)) if queue.endswith(".fifo") else None,
    )


def _kinesis_message(record: Mapping[str, Any], paths: Paths) -> Message:
    content = record["kinesis"]
    shard = f"{record.get('eventSourceARN', '')}:{str(record.get('eventID', '')).partition(':')[0]}"
    data = content.get("data", "")
    return Message(
        raw=record,
        identifier=str(content["sequenceNumber"]),
        headers={},
        body=_from_base64(data),
        read=lambda: _read_text(_from_base64(data), paths),
        order=(shard, str(content.get("partitionKey", ""))),
        shard=shard,
    )


def _from_base64(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return data.encode("utf-8", "backslashreplace")


def _bytes_of(invocation: Mapping[str, Any]) -> bytes:
    """What Lambda decoded, as JSON again; it may hold half of a surrogate pair, which only escapes can write."""
    try:
        return msgspec.json.encode(invocation)
    except UnicodeEncodeError:
        return json.dumps(invocation).encode()


def _read_sqs(record: Mapping[str, Any], headers: Mapping[str, str], paths: Paths) -> Event:
    try:
        members = msgspec.json.decode(record.get("body") or "")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        members = None
    # Where the attributes are headers the body is data, whatever it looks like.
    is_data = any(is_attribute(name) for name in headers)
    if isinstance(members, dict) and "detail-type" in members and not is_data:
        return _read_eventbridge(members, paths, paths.id)
    return Event.from_sqs(record, id=paths.id)


def _read_text(body: bytes, paths: Paths) -> Event:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise EventInvalid("The data of a record is no text of UTF-8, so it is no event; nothing ran.") from None
    return _read_sqs({"body": text}, {}, paths)


def _read_eventbridge(message: Mapping[str, Any], paths: Paths, id_path: str | None) -> Event:
    detail = message.get("detail")
    if id_path is None and not (isinstance(detail, Mapping) and "specversion" in detail):
        raise EventInvalid(
            "It is an envelope of EventBridge, whose id is another one for each put; nothing ran. Say where the id of "
            "the producer is: handler(…, id='detail.…'), or id='id' if each event is put once."
        )
    return Event.from_eventbridge(message, id=id_path or "id", subject=paths.subject)
