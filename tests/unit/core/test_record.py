"""The record and what is said about it: checked input, half-open instants, errors that are kept whatever they hold."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given

from semel.core.record import NOTHING, About, Failure, Status, instant, show_record, store_instant
from semel.errors import UsageError
from tests.unit.core.records import record
from tests.unit.core.values import moments

ALL = {
    "subject": "s",
    "business_key": "b",
    "process_instance": "p",
    "requester": "r",
    "tags": {"a": "b"},
}


@pytest.mark.parametrize("about", [None, {}, About(), NOTHING])
def test_nothing_said_is_nothing(about: Any) -> None:
    assert About.of(about) == NOTHING


@pytest.mark.parametrize("name", ALL)
def test_each_known_name_is_taken(name: str) -> None:
    assert getattr(About.of({name: ALL[name]}), name) == ALL[name]


def test_an_about_is_taken_as_it_is() -> None:
    assert About.of(About(**ALL)) == About.of(ALL)  # type: ignore[arg-type]  # one dictionary for two forms


@pytest.mark.parametrize(
    "about", [{"topic": "x"}, {"subject": "s", "Tags": {}}, {1: "x"}, {1: "x", "y": "z"}], ids=repr
)
def test_an_unknown_name_is_answered_with_the_known_ones(about: Any) -> None:
    with pytest.raises(UsageError, match=r"nothing ran\. It has subject, business_key"):
        About.of(about)


@pytest.mark.parametrize(
    "about",
    [
        {"subject": 7},
        {"subject": b"s"},
        {"tags": "a=b"},
        {"tags": ["a"]},
        {"tags": None},
        {"tags": {"a": 1}},
        {"tags": {1: "a"}},
        {"requester": ["r"]},
        About(subject=7),  # type: ignore[arg-type]  # values that do not fit are the point
        About(tags={"a": 1}),  # type: ignore[dict-item]
        {"subject": "a\x00b"},
        {"subject": "\ud800"},
        {"tags": {"a": "\ud800"}},
        {"tags": {"\x00": "a"}},
        "subject",
        ["subject"],
        7,
    ],
    ids=repr,
)
def test_what_is_no_text_is_refused(about: Any) -> None:
    with pytest.raises(UsageError, match="nothing ran"):
        About.of(about)


def test_a_failure_keeps_type_and_message() -> None:
    assert Failure.of(ValueError("no money")) == Failure("builtins.ValueError", "no money")


def test_a_failure_is_bounded() -> None:
    assert len(Failure.of(ValueError("x" * 10_000)).message) == 2000


class _Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


@pytest.mark.parametrize("error", [_Silent(), ValueError("a\x00b"), ValueError("half \ud800"), ValueError()], ids=repr)
def test_a_failure_can_be_kept_whatever_the_error_holds(error: Exception) -> None:
    failure = Failure.of(error)
    assert msgspec.json.decode(msgspec.json.encode(failure), type=Failure) == failure
    assert "\x00" not in failure.message


@given(moments)
def test_instants_come_back_to_the_microsecond(moment: datetime) -> None:
    assert instant(store_instant(moment)) == moment.astimezone(UTC)


def test_an_instant_is_the_same_in_every_zone() -> None:
    there = datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert store_instant(there) == store_instant(datetime(2030, 1, 1, tzinfo=UTC)) == 1_893_456_000_000_000


@pytest.mark.parametrize(
    "moment",
    [datetime(2030, 1, 1), date(2030, 1, 1), "2030-01-01", 1_893_456_000, None],  # noqa: DTZ001 - naive is the point
    ids=repr,
)
def test_what_names_no_moment_is_refused(moment: Any) -> None:
    with pytest.raises(UsageError, match="nothing ran"):
        store_instant(moment)


@pytest.mark.parametrize(
    ("status", "retryable", "settled", "final"),
    [
        (Status.RUNNING, False, False, False),
        (Status.IN_DOUBT, False, False, False),
        (Status.COMPLETED, False, True, True),
        (Status.CANCELLED, False, True, True),
        (Status.FAILED, False, True, True),
        (Status.FAILED, True, True, False),
    ],
)
def test_only_an_end_settles_and_only_an_answer_is_final(
    status: Status, retryable: bool, settled: bool, final: bool
) -> None:
    found = record(status=status, retryable=retryable)
    assert (found.settled, found.final) == (settled, final)


def test_the_instants_of_a_store_are_shown_as_datetimes() -> None:
    found = show_record(record(replayed_us=60))
    assert found.created_at == instant(10)
    assert found.started_at == instant(20)
    assert found.updated_at == found.completed_at == instant(45)
    assert found.lease_until == instant(50)
    assert found.expires_at == instant(100)
    assert found.replayed_at == instant(60)
    assert found.duration == timedelta(microseconds=25)


def test_what_did_not_end_has_no_end() -> None:
    found = show_record(record(status=Status.RUNNING, completed_us=None))
    assert (found.completed_at, found.duration, found.replayed_at) == (None, None, None)


def test_the_lease_of_a_record_is_that_of_its_last_claim() -> None:
    lease = record().lease
    assert (lease.key, lease.fence, lease.nonce, lease.until) == (record().key, 2, b"n", 50)
    assert record().reference == record().key.reference
