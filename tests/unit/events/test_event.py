"""Events are read and written as CloudEvents 1.0 says, and nothing without an identity is taken for one."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from semel.errors import EventInvalid
from semel.events.encoding import from_outbox, to_outbox
from semel.events.event import Event

TIME = datetime(2026, 11, 16, 9, 30, 0, 123456, tzinfo=UTC)


def an_event(**changes: Any) -> Event:
    given: dict[str, Any] = {
        "type": "asset.registered",
        "source": "/facilities/7",
        "subject": "asset-1",
        "id": "e-1",
        "time": TIME,
        "data": {"capacity_kw": 50, "name": "Zürich"},
        "extensions": {"partition": 3, "urgent": True, "tenant": "acme"},
    }
    return Event(**{**given, **changes})


def test_an_id_is_made_where_none_is_given() -> None:
    one, other = (Event(type="t", source="/s") for _ in range(2))
    assert one.id != other.id
    assert not one.has_own_id


def test_an_id_that_is_given_is_the_events_own() -> None:
    assert an_event().has_own_id
    assert Event(type="t", source="/s").with_id("x").has_own_id


def test_the_time_is_now_where_none_is_given() -> None:
    before = datetime.now(UTC)
    time = Event(type="t", source="/s").time
    assert time is not None
    assert before <= time <= datetime.now(UTC)


def test_an_event_comes_back_from_json() -> None:
    assert Event.from_json(an_event().to_json()) == an_event()


def test_json_names_the_attributes_of_the_specification() -> None:
    assert json.loads(an_event().to_json()) == {
        "specversion": "1.0",
        "id": "e-1",
        "source": "/facilities/7",
        "type": "asset.registered",
        "subject": "asset-1",
        "time": "2026-11-16T09:30:00.123456Z",
        "data": {"capacity_kw": 50, "name": "Zürich"},
        "partition": 3,
        "urgent": True,
        "tenant": "acme",
    }


def test_bytes_travel_as_base64_in_json() -> None:
    event = an_event(data=b"\x00\xff", datacontenttype="application/octet-stream")
    assert json.loads(event.to_json())["data_base64"] == base64.b64encode(b"\x00\xff").decode()
    assert Event.from_json(event.to_json()) == event


def test_an_event_comes_back_from_headers() -> None:
    event = an_event(extensions={"tenant": "acme"}, datacontenttype="application/json")
    assert Event.from_headers(*event.to_headers()) == event


def test_headers_carry_text_beyond_ascii_as_percent_signs() -> None:
    headers, _ = an_event(subject='Zürich "1" 100%').to_headers()
    assert headers["ce-subject"] == "Z%C3%BCrich%20%221%22%20100%25"
    assert Event.from_headers(headers, b"").subject == 'Zürich "1" 100%'


@pytest.mark.parametrize("prefix", ["ce-", "CE-", "ce_", "cloudEvents:", "cloudEvents_"])
def test_headers_of_every_binding_are_read(prefix: str) -> None:
    headers = {f"{prefix}{name}": value for name, value in {"id": "e-1", "source": "/s", "type": "t"}.items()}
    event = Event.from_headers({**headers, f"{prefix}specversion": "1.0"}, b'{"a": 1}')
    assert (event.id, event.source, event.type, event.data) == ("e-1", "/s", "t", {"a": 1})


@pytest.mark.parametrize("prefix", ["ce_", "cloudEvents:", "cloudEvents_"])
def test_percent_signs_stay_what_they_are_where_the_binding_does_not_quote(prefix: str) -> None:
    names = {"id": "1%41", "source": "/s", "type": "t"}
    assert Event.from_headers({f"{prefix}{name}": text for name, text in names.items()}, b"").id == "1%41"


def test_an_attribute_that_is_named_like_the_content_type_is_not_taken_for_it() -> None:
    headers = {"ce-id": "e-1", "ce-source": "/s", "ce-type": "t", "ce-content-type": "text/plain"}
    with pytest.raises(EventInvalid, match="content-type"):
        Event.from_headers(headers, b"{}")


def test_headers_may_be_bytes() -> None:
    headers = {"ce_id": b"e-1", "ce_source": b"/s", "ce_type": b"t", "content-type": b"text/plain"}
    assert Event.from_headers(headers, b"hello").data == b"hello"


@pytest.mark.parametrize("seconds", [0, 1, 3208, -7200])
def test_an_instant_of_any_time_zone_is_read_again(seconds: int) -> None:
    time = datetime(1890, 1, 1, tzinfo=timezone(timedelta(seconds=seconds)))
    event = Event(type="t", source="/s", time=time)
    assert Event.from_json(event.to_json()).time == time
    assert Event.from_headers(*event.to_headers()).time == time


def test_a_header_without_a_value_is_no_attribute() -> None:
    headers = {"ce-id": "e-1", "ce-source": "/s", "ce-type": "t", "ce-subject": None, "content-type": None}
    event = Event.from_headers(headers, b'{"a": 1}')
    assert (event.subject, event.datacontenttype, event.data) == (None, None, {"a": 1})
    with pytest.raises(EventInvalid, match="no id"):
        Event.from_headers({**headers, "ce-id": None}, b"{}")


def test_a_body_that_is_the_whole_event_is_read_by_its_content_type() -> None:
    headers = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
    assert Event.from_headers(headers, an_event().to_json()) == an_event()


def test_a_body_without_content_type_is_json_if_it_is() -> None:
    headers = {"ce-id": "e-1", "ce-source": "/s", "ce-type": "t"}
    assert Event.from_headers(headers, b"[1]").data == [1]
    assert Event.from_headers(headers, b"\x00").data == b"\x00"


def test_an_event_that_is_read_without_time_has_none() -> None:
    assert Event.from_json('{"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}').time is None


WITHOUT_IDENTITY = [
    pytest.param(
        {name: value for name, value in {"id": "1", "source": "/s", "type": "t"}.items() if name != left}, id=left
    )
    for left in ("id", "source", "type")
]


@pytest.mark.parametrize("members", WITHOUT_IDENTITY)
def test_json_without_identity_is_refused(members: dict[str, str]) -> None:
    with pytest.raises(EventInvalid, match="has no"):
        Event.from_json(json.dumps({"specversion": "1.0", **members}))


@pytest.mark.parametrize("members", WITHOUT_IDENTITY)
def test_headers_without_identity_are_refused(members: dict[str, str]) -> None:
    with pytest.raises(EventInvalid, match="has no"):
        Event.from_headers({f"ce-{name}": value for name, value in members.items()}, b"{}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"id": ',
        "\udc00",
        b"\xff",
        "[" * 100_000,
        '{"specversion": "0.3", "id": "1", "source": "/s", "type": "t"}',
        '{"id": "1", "source": "/s", "type": "t", "time": "yesterday"}',
        '{"id": "1", "source": "/s", "type": "t", "time": "2026-11-16T09:30:00"}',
        '{"id": "1", "source": "/s", "type": "t", "data": 1, "data_base64": "AA=="}',
        '{"id": "1", "source": "/s", "type": "t", "data_base64": "!"}',
        '{"id": 7, "source": "/s", "type": "t"}',
        '{"id": "1", "source": "/s", "type": "t", "Upper": "x"}',
        '{"id": "1", "source": "/s", "type": "t", "nested": {}}',
        '{"id": "1\\u0000", "source": "/s", "type": "t"}',
        '{"id": "' + "1" * 3000 + '", "source": "/s", "type": "t"}',
    ],
    ids=range(17),
)
def test_what_is_no_event_is_refused_and_nothing_ran(text: str | bytes) -> None:
    with pytest.raises(EventInvalid, match="nothing ran"):
        Event.from_json(text)


def test_data_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(EventInvalid, match="cannot be written as JSON"):
        an_event(data={"what": object()}).to_json()


class Measured(msgspec.Struct):
    """The data of an event."""

    value: float


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: [None, n], lambda n: {"a": (1, {"b": n})}, Measured])
def test_a_number_that_json_has_not_is_refused(wrap: Callable[[float], Any], number: float) -> None:
    event = an_event(data=wrap(number))
    for write in (event.to_json, event.to_headers):
        with pytest.raises(EventInvalid, match="NaN"):
            write()


def test_nothing_is_written_as_null() -> None:
    assert an_event(data={"a": None, "b": 1.5}).body == b'{"a":null,"b":1.5}'


@pytest.mark.parametrize("type_", ["text/plain", "text/plain; charset=utf-8", "application/xml"])
def test_text_that_is_not_json_travels_as_it_is(type_: str) -> None:
    event = an_event(data="<a>\u00e9</a>", datacontenttype=type_)
    assert Event.from_json(event.to_json()) == event
    assert Event.from_json(event.to_json()).to_headers()[1] == "<a>\u00e9</a>".encode()


@pytest.mark.parametrize("type_", [None, "application/json", "application/vnd.asset+json; charset=utf-8"])
def test_text_that_is_json_travels_as_json(type_: str | None) -> None:
    event = an_event(data="hello", datacontenttype=type_)
    assert event.body == b'"hello"'
    assert Event.from_headers(*event.to_headers()).data == "hello"


@pytest.mark.parametrize("data", ["hello", b"\xff", {"a": 1}, None], ids=str)
@pytest.mark.parametrize("type_", ["text/plain", "application/json", None])
def test_an_event_comes_back_from_the_outbox_as_it_was_added(data: Any, type_: str | None) -> None:
    event = an_event(data=data, datacontenttype=type_, time=datetime(2026, 11, 16, tzinfo=UTC))
    back = from_outbox(to_outbox(event, "default", None))
    assert (back, back.to_headers(), back.to_json()) == (event, event.to_headers(), event.to_json())


def test_text_of_a_queue_that_utf8_cannot_hold_is_refused() -> None:
    attributes = {name: {"StringValue": "x"} for name in ("ce-id", "ce-source", "ce-type")}
    with pytest.raises(EventInvalid, match="UTF-8"):
        Event.from_sqs({"Body": "\ud83d", "MessageAttributes": attributes})


def test_a_header_that_is_there_twice_is_refused() -> None:
    with pytest.raises(EventInvalid, match="twice"):
        Event.from_headers({"ce-id": "1", "CE-ID": "2", "ce-source": "/s", "ce-type": "t"}, b"")


BRIDGED = {
    "version": "0",
    "id": "made-by-eventbridge",
    "detail-type": "asset.registered",
    "source": "shop",
    "time": "2026-11-16T09:30:00Z",
    "detail": {"event_id": "e-1", "asset": {"number": 7}},
}


def test_eventbridge_is_read_by_the_path_that_is_named() -> None:
    event = Event.from_eventbridge(BRIDGED, id="detail.event_id", subject="detail.asset.number")
    assert (event.id, event.type, event.source, event.subject) == ("e-1", "asset.registered", "shop", "7")
    assert event.data == BRIDGED["detail"]


def test_eventbridges_own_id_is_taken_where_no_path_is_named() -> None:
    assert Event.from_eventbridge(BRIDGED).id == "made-by-eventbridge"


def test_a_path_that_leads_nowhere_is_refused() -> None:
    with pytest.raises(EventInvalid, match=r"detail\.nothing"):
        Event.from_eventbridge(BRIDGED, id="detail.nothing")


@pytest.mark.parametrize(
    "names", [("Body", "MessageAttributes", "StringValue"), ("body", "messageAttributes", "stringValue")]
)
def test_attributes_of_a_queue_message_are_headers(names: tuple[str, str, str]) -> None:
    body, attributes, value = names
    headers, data = an_event(extensions={}).to_headers()
    message = {body: data.decode(), attributes: {name: {value: text} for name, text in headers.items()}}
    assert Event.from_sqs(message).id == "e-1"


def test_a_queue_message_that_is_a_whole_event_is_read() -> None:
    assert Event.from_sqs({"Body": an_event().to_json().decode()}) == an_event()


def test_a_queue_message_that_eventbridge_put_there_is_read() -> None:
    assert Event.from_sqs({"body": json.dumps(BRIDGED)}, id="detail.event_id").id == "e-1"


def test_an_event_has_its_own_id_whatever_path_is_named() -> None:
    event = an_event()
    whole = event.to_json().decode()
    envelope = {**BRIDGED, "detail": json.loads(whole)}
    assert Event.from_sqs({"Body": whole}, id="data.n") == event
    assert Event.from_eventbridge(envelope, id="detail.data.n", subject="source") == event
    assert Event.from_sqs({"Body": json.dumps(envelope)}, id="detail.data.n") == event


def test_the_id_of_a_queue_message_is_never_taken_for_the_events() -> None:
    with pytest.raises(EventInvalid, match="has no id"):
        Event.from_sqs({"MessageId": "m-1", "Body": '{"type": "t", "source": "/s"}'})


def test_the_id_in_the_body_is_found_by_its_path() -> None:
    message = {"MessageId": "m-1", "Body": '{"type": "t", "source": "/s", "order": {"id": 12}}'}
    event = Event.from_sqs(message, id="order.id")
    assert (event.id, event.data) == ("12", {"type": "t", "source": "/s", "order": {"id": 12}})
