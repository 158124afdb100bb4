"""One event in several forms: with objects as its data, in headers, and as JSON. It is processed once, as one event."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec
import pytest

from semel.events import Event
from tests.events.desk import Desk, an_event

AT = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)


class Colour(Enum):
    """A value with a name."""

    RED = "red"


class Registered(msgspec.Struct):
    """Data that is more than JSON."""

    at: datetime
    price: Decimal
    number: uuid.UUID
    by_place: dict[int, bytes]


@dataclass
class Point:
    """Data of the standard library."""

    x: int


FULL = Registered(AT, Decimal("1.0"), uuid.UUID(int=1), {1: b"x"})
OBJECTS: list[Any] = [
    FULL,
    Point(1),
    {"at": AT},
    {"price": Decimal("1.0")},
    {"number": uuid.UUID(int=1)},
    {"raw": b"x"},
    {"some": {1, 2}},
    {"colour": Colour.RED},
    {1: {2: (3,)}},
    "text",
    1.0,
    True,
    bytearray(b"x"),
]


@pytest.mark.parametrize("data", OBJECTS, ids=str)
def test_an_event_whose_data_is_an_object_can_be_redriven(desk: Desk, data: Any) -> None:
    seen: list[Event] = []

    def registered(event: Event) -> None:
        seen.append(event)
        if len(seen) == 1:
            raise OSError("broken")

    consumer = desk.consumer(registered, max_attempts=1)
    assert desk.handle(consumer, an_event(data=data)).status == "exhausted"
    assert desk.wait(consumer.redrive()).statuses == {"processed": 1}
    assert (desk.letters(), len(seen)) == ([], 2)
    assert (seen[0].data, type(seen[0].data)) == (seen[1].data, type(seen[1].data))


def test_an_event_is_the_same_one_with_an_object_and_as_it_is_read(desk: Desk) -> None:
    consumer = desk.consumer(lambda: None)
    event = an_event(data=FULL)
    read = [Event.from_json(event.to_json()), Event.from_headers(*event.to_headers())]
    assert [desk.handle(consumer, one).status for one in (event, *read)] == ["processed", "duplicate", "duplicate"]


def test_data_is_decoded_from_json_to_its_annotation_although_it_was_an_object(desk: Desk) -> None:
    seen: list[Registered] = []

    def registered(data: Any) -> None:
        seen.append(data)

    registered.__annotations__["data"] = Registered
    consumer = desk.consumer(registered)
    event = an_event(data=FULL)
    desk.handle(consumer, event)
    desk.handle(consumer, Event.from_headers(*event.with_id("e-2").to_headers()))
    assert seen == [FULL, FULL]


def test_a_set_is_the_same_data_in_whatever_order_its_process_has_it(desk: Desk) -> None:
    consumer = desk.consumer(lambda: None)
    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other), "these sets are to be equal and in different orders"
    given = [desk.handle(consumer, an_event(data={"some": some})).status for some in (one, other)]
    assert given == ["processed", "duplicate"]


@pytest.mark.parametrize(
    ("data", "type_"),
    [
        ("<a/>", "application/xml"),
        ("hello", "text/plain"),
        ({"a": 1}, "text/plain"),
        (b'{"a": 1}', "application/json"),
        (b'{"a": 1}', None),
        (b"\xff", None),
        (b"\xff", "application/json"),
        (b"", "image/png"),
    ],
    ids=str,
)
def test_an_event_is_the_same_one_in_headers_and_as_json(desk: Desk, data: Any, type_: str | None) -> None:
    consumer = desk.consumer(lambda: None)
    event = an_event(data=data, datacontenttype=type_)
    forms = [Event.from_json(event.to_json())]
    if type_ != "application/json" or data != b"\xff":  # in headers that is no event
        forms.append(Event.from_headers(*event.to_headers()))
    statuses = [desk.handle(consumer, one).status for one in (event, *forms)]
    assert statuses == ["processed", *["duplicate"] * len(forms)]
