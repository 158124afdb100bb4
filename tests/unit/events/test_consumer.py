"""What comes of a delivery: every row of the table of dispositions, with engines of both kinds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from semel import AsyncAttempt, Attempt, Cancelled, Happened, Semel
from semel.engine.engine import engine_of
from semel.errors import KeyInvalid, RecordNotFound, StepsChanged, StoreUnavailable, UsageError
from semel.events import Backoff, Consumer, Disposition, Event, Outbox
from semel.testing import Crash
from tests.events.desk import Declined, Desk, Registered, an_event, fail


def test_an_event_that_arrives_five_times_runs_once(desk: Desk) -> None:
    seen: list[Event] = []

    def registered(event: Event) -> None:
        seen.append(event)

    consumer = desk.consumer(registered)
    given = [desk.handle(consumer, an_event()) for _ in range(5)]
    assert [one.status for one in given] == ["processed"] + ["duplicate"] * 4
    assert {one.action for one in given} == {"ack"}
    assert len(seen) == 1


def test_data_is_decoded_to_its_annotation(desk: Desk) -> None:
    seen: list[Registered] = []

    def registered(data: Registered) -> None:
        seen.append(data)

    desk.handle(desk.consumer(registered), an_event())
    assert seen == [Registered(50)]


def test_a_handler_that_asks_for_its_attempt_gets_it(desk: Desk) -> None:
    numbers: list[int] = []
    consumer = desk.consumer(lambda attempt: numbers.append(attempt.number))
    desk.handle(consumer, an_event())
    assert numbers == [1]


def test_data_that_does_not_decode_is_a_dead_letter_at_once(desk: Desk) -> None:
    def registered(data: Registered) -> None:
        raise AssertionError(data)

    given = desk.handle(desk.consumer(registered), an_event(data={"capacity_kw": "much"}))
    assert (given.action, given.status) == ("dead_letter", "invalid")
    assert [letter.reason for letter in desk.letters()] == ["invalid"]


def test_an_error_is_delivered_again_after_a_pause(desk: Desk) -> None:
    consumer = desk.consumer(fail(OSError("no route")))
    given = desk.handle(consumer, an_event())
    assert (given.action, given.status, given.retry_after) == ("retry", "failed", timedelta(seconds=1))
    assert isinstance(given.error, OSError)


def test_pauses_double(desk: Desk) -> None:
    consumer = desk.consumer(fail(OSError("no route")))
    pauses = [desk.handle(consumer, an_event()).retry_after for _ in range(4)]
    assert pauses == [timedelta(seconds=seconds) for seconds in (1, 2, 4, 8)]


def test_the_last_attempt_makes_a_dead_letter(desk: Desk) -> None:
    consumer = desk.consumer(fail(OSError("no route")), max_attempts=2)
    assert desk.handle(consumer, an_event()).action == "retry"
    given = desk.handle(consumer, an_event())
    assert (given.action, given.status) == ("dead_letter", "exhausted")
    (letter,) = desk.letters()
    assert (letter.reason, letter.attempts) == ("exhausted", 2)
    assert letter.error is not None
    assert letter.error.message == "no route"


def test_an_exhausted_event_that_arrives_again_is_only_seen_once_more(desk: Desk) -> None:
    consumer = desk.consumer(fail(OSError("no route")), max_attempts=1)
    desk.handle(consumer, an_event())
    desk.clock.advance(60)
    given = desk.handle(consumer, an_event())
    assert (given.action, given.status) == ("dead_letter", "exhausted")
    (letter,) = desk.letters()
    assert (letter.seen, letter.last - letter.first, letter.attempts) == (2, timedelta(minutes=1), 1)


def test_a_final_error_is_rejected_at_once(desk: Desk) -> None:
    consumer = desk.consumer(fail(Declined()), final_errors=(Declined,))
    given = desk.handle(consumer, an_event())
    assert (given.action, given.status) == ("dead_letter", "rejected")
    assert desk.handle(consumer, an_event()).status == "rejected"


def test_the_same_id_with_another_body_is_a_dead_letter_and_changes_nothing(desk: Desk) -> None:
    consumer = desk.consumer(lambda: None)
    desk.handle(consumer, an_event())
    given = desk.handle(consumer, an_event(data={"capacity_kw": 51}))
    assert (given.action, given.status) == ("dead_letter", "reused")
    assert desk.record(an_event()).status == "completed"
    assert [letter.reason for letter in desk.letters()] == ["reused"]


@pytest.mark.parametrize("other", [{"type": "asset.moved"}, {"subject": "asset-2"}, {"subject": None}], ids=str)
def test_two_events_of_one_id_and_equal_data_have_a_letter_each(desk: Desk, other: dict[str, Any]) -> None:
    flaky = Flaky()
    consumer = desk.consumer(flaky.handler, "asset.registered", "asset.moved", max_attempts=1)
    mine, reused = an_event(data=None), an_event(data=None, **other)
    assert [desk.handle(consumer, event).status for event in (mine, reused)] == ["exhausted", "reused"]
    assert {letter.reason: letter.event for letter in desk.letters()} == {"exhausted": mine, "reused": reused}
    flaky.is_mended = True
    assert desk.wait(consumer.redrive()).statuses == {"processed": 1, "reused": 1}
    assert [letter.event for letter in desk.letters()] == [reused]


def test_an_event_that_is_processed_leaves_the_letter_of_another_one_under_its_id(desk: Desk) -> None:
    flaky = Flaky()
    consumer = desk.consumer(flaky.handler, "asset.registered", "asset.moved")
    mine, reused = an_event(data=None), an_event(data=None, type="asset.moved")
    assert [desk.handle(consumer, event).status for event in (mine, reused)] == ["failed", "reused"]
    flaky.is_mended = True
    assert desk.handle(consumer, mine).status == "processed"
    assert [letter.event for letter in desk.letters()] == [reused]


def test_bytes_and_json_under_one_id_have_a_letter_each(desk: Desk) -> None:
    consumer = desk.consumer(fail(ValueError("?")), max_attempts=1)
    as_json, as_bytes = an_event(data=1), an_event(data=b"1", datacontenttype="image/png")
    assert [desk.handle(consumer, event).status for event in (as_json, as_bytes)] == ["exhausted", "reused"]
    assert {letter.reason: letter.event for letter in desk.letters()} == {"exhausted": as_json, "reused": as_bytes}


def test_another_time_or_extension_is_the_same_event(desk: Desk) -> None:
    consumer = desk.consumer(lambda: None)
    desk.handle(consumer, an_event())
    assert desk.handle(consumer, an_event(extensions={"traceparent": "00-1"})).status == "duplicate"


def test_an_unknown_type_is_delivered_again_until_its_attempts_are_used_up(desk: Desk) -> None:
    consumer = desk.consumer(lambda: None, "asset.moved", max_attempts=2)
    first, second = (desk.handle(consumer, an_event()) for _ in range(2))
    assert (first.action, first.status) == ("retry", "unknown_type")
    assert (second.action, second.status) == ("dead_letter", "exhausted")


def test_an_unknown_type_can_be_a_dead_letter_at_once(desk: Desk) -> None:
    consumer = desk.consumer(lambda: None, "asset.moved", unknown="dead_letter")
    given = desk.handle(consumer, an_event())
    assert (given.action, given.status) == ("dead_letter", "unknown_type")


def test_an_unknown_type_can_be_ignored_and_leaves_nothing(desk: Desk) -> None:
    consumer = desk.consumer(lambda: None, "asset.moved", unknown="ignore")
    given = desk.handle(consumer, an_event())
    assert (given.action, given.status) == ("ack", "ignored")
    assert desk.record(an_event()) is None


def test_a_crash_under_hold_is_a_dead_letter_that_names_the_record(desk: Desk) -> None:
    consumer = desk.consumer(fail(Crash("killed")), in_doubt="hold")
    with pytest.raises(Crash):
        desk.handle(consumer, an_event())
    desk.clock.advance(3600)
    given = desk.handle(consumer, an_event())
    assert (given.action, given.status) == ("dead_letter", "in_doubt")
    assert desk.letters()[0].reference is not None
    assert given.reference == desk.record(an_event()).reference


def test_an_error_under_hold_is_a_dead_letter(desk: Desk) -> None:
    given = desk.handle(desk.consumer(fail(OSError("?")), in_doubt="hold"), an_event())
    assert (given.action, given.status) == ("dead_letter", "in_doubt")


def test_what_a_person_resolved_as_happened_is_a_duplicate(desk: Desk) -> None:
    consumer = desk.consumer(fail(OSError("?")), in_doubt="hold")
    desk.handle(consumer, an_event())
    key = desk.record(an_event()).key
    desk.wait(desk.semel.resolve(key, Happened(None), reason="seen in the ledger"))
    assert desk.handle(consumer, an_event()).status == "duplicate"


def test_what_a_person_cancelled_is_ignored(desk: Desk) -> None:
    consumer = desk.consumer(fail(OSError("?")), in_doubt="hold")
    desk.handle(consumer, an_event())
    desk.wait(desk.semel.resolve(desk.record(an_event()).key, Cancelled(), reason="not wanted"))
    given = desk.handle(consumer, an_event())
    assert (given.action, given.status) == ("ack", "ignored")


def test_an_event_that_another_worker_runs_comes_again_after_the_lease(desk: Desk) -> None:
    consumer = desk.consumer(fail(Crash("killed")), lease_for=20)
    with pytest.raises(Crash):
        desk.handle(consumer, an_event())
    desk.clock.advance(5)
    given = desk.handle(consumer, an_event())
    assert (given.action, given.status, given.retry_after) == ("retry", "in_progress", timedelta(seconds=15))


def test_a_store_that_does_not_answer_is_a_retry_and_leaves_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: Any) -> Any:
        raise StoreUnavailable("down", asked=False, retry_after=timedelta(seconds=3))

    consumer = desk.consumer(lambda: None)
    monkeypatch.setattr(desk.store, "apply", silent)
    given = desk.handle(consumer, an_event())
    assert (given.action, given.status) == ("retry", "unavailable")


@pytest.mark.parametrize(
    "given",
    [{"final_errors": (Declined,)}, {"in_doubt": "hold"}, {"max_attempts": 1}, {"unknown": "dead_letter"}],
    ids=["final", "hold", "last", "unknown type"],
)
def test_what_fails_unprotected_is_delivered_again_because_no_letter_is_kept(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    def silent(*_: Any) -> Any:
        raise StoreUnavailable("down", asked=False)

    takes = "asset.moved" if "unknown" in given else "asset.registered"
    consumer = desk.consumer(fail(Declined("no")), takes, store_down="run", **given)
    monkeypatch.setattr(desk.store, "apply", silent)
    told = desk.handle(consumer, an_event())
    assert (told.action, told.retry_after) == ("retry", timedelta(seconds=1))
    monkeypatch.undo()
    assert desk.letters() == []


def test_bytes_that_are_no_event_become_a_dead_letter_with_them(desk: Desk) -> None:
    consumer = desk.consumer(lambda: None)
    given = desk.wait(consumer.receive({"ce-id": "1"}, b"\x00\x01"))
    assert (given.action, given.status) == ("dead_letter", "invalid")
    (letter,) = desk.letters()
    assert (letter.event, letter.raw) == (None, ({"ce-id": "1"}, b"\x00\x01"))


def test_two_consumers_do_not_see_each_others_marks(desk: Desk) -> None:
    billing = desk.consumer(lambda: None)
    audit: Consumer[Any] = Consumer(desk.semel, "audit")
    audit.on("asset.registered")(desk.kind(lambda: None))
    assert desk.handle(billing, an_event()).status == "processed"
    assert desk.handle(audit, an_event()).status == "processed"


def test_a_retry_after_of_the_error_itself_wins(desk: Desk) -> None:
    error = OSError("busy")
    error.retry_after = 7.5  # type: ignore[attr-defined]
    assert desk.handle(desk.consumer(fail(error)), an_event()).retry_after == timedelta(seconds=7.5)


def test_an_identity_that_is_too_long_to_be_shown_is_still_one(desk: Desk) -> None:
    consumer = desk.consumer(lambda: None)
    long = an_event(id="1" * 400)
    assert desk.handle(consumer, long).status == "processed"
    assert desk.handle(consumer, long).status == "duplicate"


def test_a_parameter_that_nobody_gives_is_refused_at_decoration(desk: Desk) -> None:
    with pytest.raises(UsageError, match="event, data, attempt, session"):
        desk.consumer(lambda evnt: None)


class Asset:
    """A class that says nothing of how it is written."""

    def __init__(self, capacity_kw: int) -> None:
        self.capacity_kw = capacity_kw


def test_data_that_nothing_decodes_to_is_refused_at_decoration(desk: Desk) -> None:
    """Otherwise every event would be a dead letter at once."""

    def registered(data: Asset) -> None:
        del data

    with pytest.raises(UsageError, match=r"Asset.*a Struct, a dataclass"):
        desk.consumer(registered)


def test_data_whose_annotation_cannot_be_found_is_refused_at_decoration(desk: Desk) -> None:
    """As one that is imported for type checkers alone: the handler would get what was never decoded."""

    def registered(data: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821 - that it is missing is the point
        del data

    with pytest.raises(UsageError, match=r"Missing.*Import it at run time"):
        desk.consumer(registered)


def test_a_name_that_no_record_could_have_is_refused_before_any_event(desk: Desk) -> None:
    assert Consumer(desk.semel, "n" * 249).name == "n" * 249
    with pytest.raises(KeyInvalid, match="more than the 255"):
        Consumer(desk.semel, "n" * 250)


def test_two_handlers_for_one_type_are_refused(desk: Desk) -> None:
    consumer = desk.consumer(lambda: None)
    with pytest.raises(UsageError, match="taken by"):
        consumer.on("asset.registered")(desk.kind(lambda: None))


def test_an_event_whose_handler_lost_a_step_has_failed_and_becomes_a_dead_letter(desk: Desk) -> None:
    async def async_charge() -> None: ...

    async def async_begin(attempt: AsyncAttempt) -> None:
        await attempt.step("charge", async_charge)
        raise ValueError

    def begin(attempt: Attempt) -> None:
        attempt.step("charge", lambda: None)
        raise ValueError

    older: Consumer[Any] = Consumer(desk.semel, "billing", max_attempts=2)
    older.on("asset.registered")(async_begin if desk.is_async else begin)
    assert desk.handle(older, an_event()).status == "failed"
    given = desk.handle(desk.consumer(lambda: None, max_attempts=2), an_event())
    assert (given.action, given.status) == ("dead_letter", "exhausted")
    assert isinstance(given.error, StepsChanged)
    assert [letter.reason for letter in desk.letters()] == ["exhausted"]


def test_a_session_without_a_transaction_is_refused_before_anything_runs(desk: Desk) -> None:
    consumer = desk.consumer(lambda session: None)
    with pytest.raises(UsageError, match="nothing ran"):
        desk.handle(consumer, an_event())
    assert desk.record(an_event()) is None


def test_marks_are_kept_for_thirty_days(desk: Desk) -> None:
    consumer = desk.consumer(lambda: None)
    desk.handle(consumer, an_event())
    desk.clock.advance(timedelta(days=29, hours=23))
    assert desk.handle(consumer, an_event()).status == "duplicate"
    assert engine_of(desk.semel).policy.keep_for == timedelta(days=1)


class Flaky:
    """A handler that fails until it is mended."""

    def __init__(self) -> None:
        self.is_mended = False
        self.seen: list[str] = []

    def __call__(self, event: Event) -> None:
        self.seen.append(event.id)
        if not self.is_mended:
            raise OSError("broken")

    def handler(self, event: Event) -> None:
        """As a function."""
        self(event)


def exhausted(desk: Desk, flaky: Flaky, *ids: str, **settings: Any) -> Consumer[Any]:
    def handler(event: Event) -> None:
        flaky(event)

    consumer = desk.consumer(handler, max_attempts=1, **settings)
    for id_ in ids:
        assert desk.handle(consumer, an_event(id=id_)).action == "dead_letter"
    return consumer


def test_a_dead_letter_shows_the_event_and_why_it_is_one(desk: Desk) -> None:
    consumer = exhausted(desk, Flaky(), "e-1")
    (letter,) = desk.every(consumer.dead_letters())
    assert letter.event.data == {"capacity_kw": 50}
    assert (letter.reason, letter.attempts, letter.seen, letter.raw) == ("exhausted", 1, 1, None)
    assert letter.reference == desk.record(an_event()).reference


def test_dead_letters_are_found_by_reason_type_subject_and_time(desk: Desk) -> None:
    consumer = exhausted(desk, Flaky(), "e-1")
    (letter,) = desk.every(consumer.dead_letters())
    found: dict[str, Any] = {"reason": "exhausted", "type": "asset.registered", "subject": "asset-1"}
    for name, value in found.items():
        same: dict[str, Any] = {name: value}
        other: dict[str, Any] = {name: "rejected"}
        assert len(desk.every(consumer.dead_letters(**same))) == 1, name
        assert desk.every(consumer.dead_letters(**other)) == [], name
    assert desk.every(consumer.dead_letters(before=letter.first)) == []


def test_redriving_runs_the_stored_event_and_the_letter_goes(desk: Desk) -> None:
    flaky = Flaky()
    consumer = exhausted(desk, flaky, "e-1")
    (letter,) = desk.every(consumer.dead_letters())
    flaky.is_mended = True
    assert desk.wait(consumer.redrive(letter.id)).status == "processed"
    assert desk.every(consumer.dead_letters()) == []
    assert flaky.seen == ["e-1", "e-1"]


def test_redriving_what_fails_again_leaves_one_letter(desk: Desk) -> None:
    consumer = exhausted(desk, Flaky(), "e-1")
    (letter,) = desk.every(consumer.dead_letters())
    assert desk.wait(consumer.redrive(letter.id)).status == "exhausted"
    (again,) = desk.every(consumer.dead_letters())
    assert (again.id, again.attempts) == (letter.id, 1)


def test_an_event_that_is_processed_after_it_was_reopened_takes_its_letter_along(desk: Desk) -> None:
    flaky = Flaky()
    consumer = exhausted(desk, flaky, "e-1")
    flaky.is_mended = True
    record = desk.record(an_event())
    desk.wait(desk.semel.reopen(record.key, reason="again"))
    assert desk.handle(consumer, an_event()).status == "processed"
    assert desk.every(consumer.dead_letters()) == []
    assert flaky.seen == ["e-1", "e-1"]


def test_redriving_many_says_what_came_of_them(desk: Desk) -> None:
    flaky = Flaky()
    consumer = exhausted(desk, flaky, "e-1", "e-2", "e-3")
    flaky.is_mended = True
    report = desk.wait(consumer.redrive(reason="exhausted"))
    assert (report.total, dict(report.statuses)) == (3, {"processed": 3})


@pytest.mark.parametrize("call", ["redrive", "dead_letters"])
def test_a_reason_that_no_letter_has_is_refused(desk: Desk, call: str) -> None:
    consumer = exhausted(desk, Flaky(), "e-1")
    with pytest.raises(UsageError, match="not 'other'"):
        getattr(consumer, call)(reason="other")


def test_a_letter_that_is_not_there_cannot_be_redriven_or_discarded(desk: Desk) -> None:
    consumer = exhausted(desk, Flaky())
    for act in (consumer.redrive, lambda id_: consumer.discard(id_, reason="old")):
        with pytest.raises(RecordNotFound, match="nothing"):
            desk.wait(act("0" * 64))


def test_what_was_discarded_is_not_processed_when_it_is_delivered_again(desk: Desk) -> None:
    flaky = Flaky()
    consumer = exhausted(desk, flaky, "e-1")
    (letter,) = desk.every(consumer.dead_letters())
    desk.wait(consumer.discard(letter.id, reason="not wanted"))
    flaky.is_mended = True
    assert desk.handle(consumer, an_event(id="e-1")).action == "dead_letter"
    assert flaky.seen == ["e-1"]


def test_a_letter_keeps_its_record_from_expiring(desk: Desk) -> None:
    consumer = exhausted(desk, Flaky(), "e-1", keep_for=60)
    desk.clock.advance(3600)
    desk.wait(desk.semel.sweep())
    assert desk.handle(consumer, an_event()).status == "exhausted"
    assert len(desk.every(consumer.dead_letters())) == 1


def nested(desk: Desk, consumer: Consumer[Any], event: Event, **settings: Any) -> Disposition:
    """Handle an event while another handler runs, as another process would."""
    box: list[Disposition] = []

    def run() -> None:
        with asyncio.Runner() as runner:
            made = Desk(desk.is_async, desk.clock, desk.store, runner)
            other = made.consumer(lambda: None, serial_by="subject", **settings)
            box.append(made.handle(other, event))
            made.wait(made.semel.close())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return box[0]


@pytest.mark.parametrize(("subject", "status"), [("asset-1", "in_progress"), ("asset-2", "processed")])
def test_two_events_of_one_subject_never_run_at_the_same_time(desk: Desk, subject: str, status: str) -> None:
    seen: list[Disposition] = []

    def registered() -> None:
        seen.append(nested(desk, consumer, an_event(id="e-2", subject=subject)))

    consumer = desk.consumer(registered, serial_by="subject")
    assert desk.handle(consumer, an_event()).status == "processed"
    assert [one.status for one in seen] == [status]


@pytest.mark.parametrize(
    ("settings", "told"),
    [({}, timedelta(seconds=1)), ({"backoff": Backoff(first=60, spread=0), "lease_for": 20}, timedelta(seconds=20))],
    ids=["back-off", "rest of the lease"],
)
def test_an_event_waits_for_its_turn_no_longer_than_after_a_failure(
    desk: Desk, settings: dict[str, Any], told: timedelta
) -> None:
    seen: list[Disposition] = []

    def registered() -> None:
        seen.append(nested(desk, consumer, an_event(id="e-2"), **settings))

    consumer = desk.consumer(registered, serial_by="subject", **settings)
    desk.handle(consumer, an_event())
    assert [(one.status, one.retry_after) for one in seen] == [("in_progress", told)]


def test_the_next_event_of_a_subject_runs_when_the_first_has_ended_whatever_came_of_it(desk: Desk) -> None:
    flaky = Flaky()

    def registered(event: Event) -> None:
        flaky(event)

    consumer = desk.consumer(registered, serial_by="subject")
    assert desk.handle(consumer, an_event()).status == "failed"
    flaky.is_mended = True
    assert desk.handle(consumer, an_event(id="e-2")).status == "processed"


def test_the_turn_of_a_worker_that_crashed_ends_with_its_lease(desk: Desk) -> None:
    broken = desk.consumer(fail(Crash("killed")), serial_by="subject", lease_for=20)
    with pytest.raises(Crash):
        desk.handle(broken, an_event())
    other: Consumer[Any] = Consumer(desk.semel, "billing", serial_by="subject")
    other.on("asset.registered")(desk.kind(lambda: None))
    assert desk.handle(other, an_event(id="e-2")).status == "in_progress"
    desk.clock.advance(21)
    assert desk.handle(other, an_event(id="e-2")).status == "processed"


def test_serial_events_cannot_be_part_of_a_transaction_of_the_caller(desk: Desk) -> None:
    consumer = desk.consumer(lambda: None, serial_by="subject")
    with pytest.raises(UsageError, match="transaction="):
        desk.wait(consumer.handle(an_event(), within=object()))


def test_an_alias_of_django_is_refused_where_handlers_are_awaited(desk: Desk) -> None:
    if not desk.is_async:
        consumer: Consumer[Any] = Consumer(desk.semel, "billing", transaction="default")
        assert "billing" in repr(consumer)
        return
    with pytest.raises(UsageError, match="coroutines"):
        Consumer(desk.semel, "billing", transaction="default")


def test_what_begins_no_transaction_is_refused(desk: Desk) -> None:
    with pytest.raises(UsageError, match="callable"):
        Consumer(desk.semel, "billing", transaction=7)  # type: ignore[arg-type]


def test_a_consumer_can_be_made_before_django_knows_its_databases() -> None:
    assert Consumer(Semel("django://default"), "billing").name == "billing"


@pytest.mark.parametrize("call", ["handle", "failed", "add"])
def test_what_is_no_event_object_is_refused(desk: Desk, call: str) -> None:
    consumer, given = desk.consumer(lambda: None), cast("Event", {"type": "asset.registered"})
    calls: dict[str, Callable[[], object]] = {
        "handle": lambda: consumer.handle(given),
        "failed": lambda: consumer.failed(given, OSError()),
        "add": lambda: Outbox(desk.semel).add(given, autonomous=True),
    }
    with pytest.raises(UsageError, match=rf"{call}\(\) takes an Event, not a dict"):
        calls[call]()
