"""Events that nobody can process, whatever they are: each is a dead letter, and none ends whoever takes events."""

from __future__ import annotations

import json
import logging
import math
from datetime import timedelta
from typing import Any

import pytest

from semel.errors import EventInvalid, KeyInvalid, KeyMissing
from semel.events import Consumer, Disposition, Event
from tests.events.desk import Declined, Desk, an_event, fail

JSON = {"ce-id": "e-1", "ce-source": "/s", "ce-type": "asset.registered", "content-type": "application/json"}
YEAR = timedelta(days=365)


def nothing() -> None:
    """A handler that does nothing."""


def nest(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(("levels", "status"), [(1, "processed"), (63, "processed"), (64, "invalid"), (65, "invalid")])
def test_data_that_is_nested_too_deep_is_a_dead_letter(desk: Desk, levels: int, status: str) -> None:
    consumer = desk.consumer(nothing)
    assert desk.wait(consumer.receive(JSON, nest(levels))).status == status
    assert [letter.raw and letter.raw[1] for letter in desk.letters()] == [nest(levels)] * (status == "invalid")


@pytest.mark.parametrize("levels", [*range(960, 1000, 3), 100_000])
def test_no_depth_at_which_python_gives_up_ends_a_consumer(desk: Desk, levels: int) -> None:
    consumer = desk.consumer(nothing)
    assert desk.wait(consumer.receive(JSON, nest(levels))).status == "invalid"
    (letter,) = desk.letters()
    assert desk.wait(consumer.redrive(letter.id)).status == "invalid"


def test_text_without_a_fingerprint_is_a_dead_letter_with_its_event(desk: Desk) -> None:
    event = an_event(data={"name": "e" + "\u0301" * 31})
    consumer = desk.consumer(nothing)
    given = [desk.handle(consumer, event) for _ in range(3)]
    assert {(one.action, one.status, one.reference) for one in given} == {("dead_letter", "invalid", None)}
    (letter,) = desk.letters()
    assert (letter.event, letter.seen, letter.attempts, letter.reference) == (event, 3, 0, None)
    assert isinstance(given[0].error, EventInvalid)


def scope_of(event: Event) -> Any:
    return event.data["tenant"]


def about_tenant(event: Event) -> Any:
    return {"requester": event.data["tenant"]}


TENANTS: dict[str, dict[str, Any]] = {"none": {}, "null": {"tenant": None}, "long": {"tenant": "x" * 3000}}


@pytest.mark.parametrize("data", [*TENANTS.values(), {"tenant": ""}, {"tenant": ["a"]}, {"tenant": 5}], ids=str)
def test_an_event_of_which_nobody_can_tell_whose_it_is_is_a_dead_letter(desk: Desk, data: dict[str, Any]) -> None:
    consumer = desk.consumer(nothing, scope=scope_of)
    given = desk.handle(consumer, an_event(data=data))
    assert (given.action, given.status) == ("dead_letter", "invalid")
    assert [letter.event and letter.event.data for letter in desk.letters()] == [data]
    assert desk.handle(consumer, an_event(data={"tenant": "t-1"})).status == "processed"


@pytest.mark.parametrize("data", [{}, {"tenant": 5}, {"tenant": "\x00"}], ids=str)
def test_an_event_that_cannot_be_searched_for_as_asked_is_a_dead_letter(desk: Desk, data: dict[str, Any]) -> None:
    consumer = desk.consumer(nothing, about=about_tenant)
    assert desk.handle(consumer, an_event(data=data)).status == "invalid"


def test_an_event_is_redriven_once_its_consumer_can_tell_whose_it_is(desk: Desk) -> None:
    seen: list[Event] = []
    poor = an_event(data={})

    def note(event: Event) -> None:
        seen.append(event)

    desk.handle(desk.consumer(nothing, scope=scope_of), poor)
    (letter,) = desk.letters()
    mended = desk.consumer(note, scope=lambda event: event.data.get("tenant", "unknown"))
    assert desk.wait(mended.redrive(letter.id)).status == "processed"
    assert (seen, desk.letters()) == ([poor], [])


def test_failed_keeps_a_letter_of_an_event_that_can_have_no_record(desk: Desk) -> None:
    consumer = desk.consumer(nothing, scope=scope_of)
    given: Disposition = desk.wait(consumer.failed(an_event(data={}), EventInvalid("as handle() raised it")))
    assert (given.action, given.status) == ("dead_letter", "invalid")
    assert len(desk.letters()) == 1


@pytest.mark.parametrize(("scope", "error"), [(None, KeyMissing), ("", KeyMissing), (5, KeyInvalid)])
def test_a_scope_that_is_none_is_refused_when_the_consumer_is_made(desk: Desk, scope: Any, error: Any) -> None:
    with pytest.raises(error):
        desk.consumer(nothing, scope=scope)


@pytest.mark.parametrize("length", [*range(40, 64), 300])
@pytest.mark.parametrize("letter", ["x", "\u00e9"])
def test_names_of_any_length_are_processed(desk: Desk, length: int, letter: str) -> None:
    event = an_event(source="s" * (200 if letter == "x" else 150), id=letter * length, subject=letter * length * 5)
    consumer = desk.consumer(nothing, serial_by="subject")
    assert [desk.handle(consumer, event).status for _ in range(2)] == ["processed", "duplicate"]


class Busy(Exception):
    """Says when to come back."""

    def __init__(self, retry_after: Any) -> None:
        super().__init__("busy")
        self.retry_after = retry_after


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (math.inf, YEAR),
        (1e300, YEAR),
        (10**400, YEAR),
        (timedelta.max, YEAR),
        (timedelta(hours=1), timedelta(hours=1)),
        (math.nan, timedelta(seconds=1)),
        (-1, timedelta(seconds=1)),
        (timedelta(seconds=-1), timedelta(seconds=1)),
        (True, timedelta(seconds=1)),
    ],
    ids=str,
)
def test_an_error_may_ask_for_any_pause(desk: Desk, asked: Any, told: timedelta) -> None:
    given = desk.handle(desk.consumer(fail(Busy(asked))), an_event())
    assert (given.status, given.retry_after) == ("failed", told)


def test_an_error_whose_pause_cannot_be_read_is_delivered_again(desk: Desk) -> None:
    class Broken(Exception):
        @property
        def retry_after(self) -> Any:
            raise RuntimeError("broken")

    given = desk.handle(desk.consumer(fail(Broken())), an_event())
    assert (given.status, given.retry_after) == ("failed", timedelta(seconds=1))


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
NOT_JSON: dict[str, Any] = {
    "object": {"what": object()},
    "infinite": math.inf,
    "no number": {"capacity_kw": [math.nan]},
    "half a character": {"name": "\ud83d"},
    "text that is half a character": "\ud83d",
    "a key that is none": {None: 1},
    "a circle": CIRCLE,
    "too deep": json.loads(nest(70)),
    "a number without end": 10**5000,
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_json_cannot_hold_is_a_dead_letter_that_is_never_processed(desk: Desk, name: str) -> None:
    seen: list[Event] = []

    def note(event: Event) -> None:
        seen.append(event)

    consumer = desk.consumer(note)
    event = an_event(data=NOT_JSON[name])
    assert [desk.handle(consumer, event).status for _ in range(2)] == ["invalid"] * 2
    (letter,) = desk.letters()
    assert letter.raw is not None
    assert (letter.event, letter.raw[0]["ce-id"], letter.seen) == (None, "e-1", 2)
    assert desk.wait(consumer.redrive(letter.id)).status == "invalid"
    assert (seen, [one.seen for one in desk.letters()]) == ([], [3])


def test_an_extension_that_json_cannot_hold_is_a_dead_letter(desk: Desk) -> None:
    given = desk.handle(desk.consumer(nothing), an_event(extensions={"many": 10**5000}))
    assert (given.status, len(desk.letters())) == ("invalid", 1)


def test_a_letter_says_what_was_delivered_although_json_cannot_hold_it(desk: Desk) -> None:
    desk.handle(desk.consumer(nothing), an_event(data={"name": "\ud83d"}))
    assert [letter.raw and letter.raw[1] for letter in desk.letters()] == [b'{"name": "\\ud83d"}']


@pytest.mark.parametrize("headers", [{"x": "\udcff"}, {"\ud83d": b"\xff"}, {**JSON, "ce-id": "\udcff"}], ids=ascii)
def test_headers_that_utf8_cannot_hold_become_a_dead_letter(desk: Desk, headers: dict[str, Any]) -> None:
    consumer = desk.consumer(nothing)
    assert desk.wait(consumer.receive(headers, b"garbage")).status == "invalid"
    (letter,) = desk.letters()
    assert desk.wait(consumer.redrive(letter.id)).status == "invalid"
    assert [one.seen for one in desk.letters()] == [2]


@pytest.mark.parametrize("settings", [{}, {"retry_errors": (Declined,)}], ids=["in doubt", "without effect"])
def test_without_a_limit_attempts_are_never_used_up(desk: Desk, settings: dict[str, Any]) -> None:
    consumer = desk.consumer(fail(Declined()), max_attempts=None, **settings)
    assert {desk.handle(consumer, an_event()).status for _ in range(20)} == {"failed"}
    assert desk.letters() == []


def test_without_a_limit_what_was_rolled_back_is_counted_and_tried_again(desk: Desk) -> None:
    consumer = desk.consumer(nothing, max_attempts=None, final_errors=(Declined,))
    assert {desk.wait(consumer.failed(an_event(), OSError("?"))).status for _ in range(20)} == {"failed"}
    assert desk.record(an_event()).attempts == 20
    assert desk.wait(consumer.failed(an_event(), Declined())).status == "rejected"
    assert [letter.reason for letter in desk.letters()] == ["rejected"]


def test_a_letter_is_kept_for_as_long_as_the_records_of_its_consumer(desk: Desk) -> None:
    consumer = desk.consumer(fail(Declined()), final_errors=(Declined,), keep_for=timedelta(days=90))
    desk.handle(consumer, an_event())
    desk.clock.advance(timedelta(days=89).total_seconds())
    desk.wait(desk.semel.sweep())
    assert len(desk.letters()) == 1
    desk.clock.advance(timedelta(days=2).total_seconds())
    desk.wait(desk.semel.sweep())
    assert desk.letters() == []


def test_the_log_says_why_a_letter_was_discarded(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    consumer: Consumer[Any] = desk.consumer(fail(Declined()), final_errors=(Declined,))
    desk.handle(consumer, an_event())
    (letter,) = desk.letters()
    with caplog.at_level(logging.INFO, logger="semel"):
        desk.wait(consumer.discard(letter.id, reason="sent by mistake"))
    assert letter.id[:16] in caplog.text
    assert "sent by mistake" in caplog.text
