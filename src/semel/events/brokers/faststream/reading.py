"""Which event a message of FastStream is: a CloudEvent, or a plain message whose identity is where somebody named it.

An id that FastStream or a broker makes by itself is never taken unasked: it is another one each time a producer sends
again, and then nothing would be recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from semel.errors import EventInvalid, UsageError
from semel.events.event import JSON_EVENT, Event, find_path, is_attribute

HEADER: Final = "header:"
BODY: Final = "body:"
PLAIN_TYPE: Final = "message"
"""The type of messages that are no CloudEvents, where nobody named another."""
_NO_IDENTITY: Final = (
    "A message is no CloudEvent, so nobody knows its id; nothing ran. Have the producer send ce-id, ce-source and "
    "ce-type, or say inbox(id=…, source=…) where they are."
)


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """An event, and whether the body of its message is the whole event and not only its data."""

    event: Event
    is_envelope: bool = False


class Reader:
    """Makes events of messages.

    Args:
        id: where a message that is no CloudEvent has the producer's id: `header:NAME`, or `body:PATH` with dots.
        source: who the producer is, or where a message says so, in the same two ways.
        type: the same for its type.
        subject: the same for its subject.
    """

    def __init__(self, *, id: str | None, source: str | None, type: str | None, subject: str | None) -> None:  # noqa: A002 - names of attributes
        if id is None and (source, type, subject) != (None, None, None):
            raise UsageError("source, type and subject are of messages whose id is named; nothing ran. Give id= too.")
        if id is not None and not _is_place(id):
            raise UsageError(f'id is "header:NAME" or "body:PATH", not {id!r:.80}; nothing ran.')
        if id is not None and source is None:
            raise UsageError(
                'An id names an event among those of its producer; nothing ran. Give source= too: "header:NAME", '
                '"body:PATH", or a text that stands for all of them, such as "/shop".'
            )
        places = {"id": id, "source": source, "type": type or PLAIN_TYPE, "subject": subject}
        self._places = {} if id is None else {name: place for name, place in places.items() if place is not None}

    def read(self, headers: Mapping[str, Any], body: bytes) -> ReadMessage:
        """The event of a message.

        Raises:
            EventInvalid: it is none, or its identity is not where it was said to be.
        """
        content_type = _content_type(headers)
        is_json_event = content_type.partition(";")[0].strip().lower() == JSON_EVENT
        if is_json_event or any(is_attribute(name) for name in headers):
            return ReadMessage(Event.from_headers(headers, body), is_json_event)
        if self._places:
            return ReadMessage(self._read_plain(headers, body, content_type))
        members = _members_of(body)
        if "specversion" not in members:
            raise EventInvalid(_NO_IDENTITY)
        return ReadMessage(Event.from_json(body), is_envelope=True)

    def _read_plain(self, headers: Mapping[str, Any], body: bytes, content_type: str) -> Event:
        members = _members_of(body) if any(place.startswith(BODY) for place in self._places.values()) else {}
        small = {name.lower(): value for name, value in headers.items()}
        found = {f"cloudEvents_{name}": _look_up(place, small, members) for name, place in self._places.items()}
        if content_type:
            found["content-type"] = content_type
        return Event.from_headers(found, body)


def _is_place(text: str) -> bool:
    return any(text.startswith(kind) and len(text) > len(kind) for kind in (HEADER, BODY))


def _look_up(place: str, headers: Mapping[str, Any], members: Mapping[str, Any]) -> Any:
    """What is at a place; a text that is no place stands for itself.

    Raises:
        EventInvalid: nothing is there.
    """
    if place.startswith(BODY):
        return find_path(members, place.removeprefix(BODY))
    if not place.startswith(HEADER):
        return place
    name = place.removeprefix(HEADER)
    value = headers.get(name.lower())
    if value is None or value in ("", b""):
        raise EventInvalid(f"The message has no header {name!r:.80}, where its identity should be; nothing ran.")
    return value


def _content_type(headers: Mapping[str, Any]) -> str:
    for name, value in headers.items():
        if name.lower() in ("content-type", "content_type"):
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return ""


def _members_of(body: bytes) -> Mapping[str, Any]:
    """The members of a body that is a JSON object; none of another one."""
    try:
        members = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return members if isinstance(members, dict) else {}
