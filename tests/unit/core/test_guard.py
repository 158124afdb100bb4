"""The guard of a store: what it refuses while the store rests, what it never refuses, and what counts against it."""

import weakref
from datetime import timedelta
from typing import Any

import pytest

from semel.core.circuit import Breaker, Guard, Limits
from semel.core.operations import (
    AddReplays,
    Checkpoint,
    Complete,
    Fail,
    JoinTransaction,
    Lost,
    MarkLapsed,
    Operation,
    Purge,
    Query,
    Read,
    Recorded,
    Renew,
    Resolve,
    Reused,
    Running,
    Scan,
)
from semel.core.record import Failure, Status, Step
from semel.errors import SchemaOutdated, StoreMisconfigured, StoreUnavailable, UsageError
from tests.unit.core.records import claim, lease, record

SILENT = StoreUnavailable("It did not answer.")
BEGINS_OR_LOOKS: list[Operation] = [
    claim(),
    Read(b"d"),
    Scan(Query(), None, 1),
    Resolve(b"d", b"n", Status.CANCELLED, None, "note"),
    Purge(1),
    MarkLapsed(1),
    AddReplays(b"d", 1),
]
BELONGS_TO_A_RUN: list[Operation] = [
    Complete(lease(), b""),
    Fail(lease(), "retry", Failure("E", "no"), doubtful=False),
    Renew(lease(), 1),
    Checkpoint(lease(), Step(0, "s", b"")),
    JoinTransaction(lease()),
]


class Guarded:
    """A guard with a clock that is set by hand, opened after three rounds without an answer."""

    def __init__(self, failures: int = 3) -> None:
        self.now = 0.0
        breaker = Breaker(failures=failures, rest=1.0, longest=4.0, chance=lambda: 1.0)
        self.guard = Guard(breaker, lambda: self.now, name="sqlite:///x", patience=5.0)

    def round(self, *replies: Any, took: float = 0.0) -> None:
        """One round that came back with these replies."""
        self.guard.on_send()
        self.now += took
        self.guard.on_reply(replies)

    def refuses(self, operation: Operation | None = None) -> bool:
        """Whether it refuses an operation, by default a claim."""
        return self.guard.check(operation or claim()) is not None


def opened() -> Guarded:
    """A guard whose store rests for a second."""
    made = Guarded(failures=1)
    made.round(SILENT)
    return made


def named(value: object) -> str:
    return type(value).__name__


@pytest.mark.parametrize("operation", [*BEGINS_OR_LOOKS, *BELONGS_TO_A_RUN], ids=named)
def test_everything_goes_through_while_the_store_answers(operation: Operation) -> None:
    assert not Guarded().refuses(operation)


@pytest.mark.parametrize("operation", BEGINS_OR_LOOKS, ids=named)
def test_what_begins_or_looks_is_refused_while_the_store_rests(operation: Operation) -> None:
    assert opened().refuses(operation)


@pytest.mark.parametrize("operation", BELONGS_TO_A_RUN, ids=named)
def test_what_belongs_to_a_run_always_goes_through(operation: Operation) -> None:
    assert not opened().refuses(operation)


def refused(made: Guarded) -> StoreUnavailable:
    """The refusal of a claim."""
    error = made.guard.check(claim())
    assert error is not None, "the store is left alone"
    return error


def test_a_refusal_says_what_happened_that_nothing_ran_and_when_to_come_back() -> None:
    made = Guarded(failures=2)
    made.round(StoreUnavailable("It is full."))
    made.round([StoreUnavailable("It cannot be reached (ConnectionRefusedError); nothing was recorded.")])
    made.now = 0.25
    error = refused(made)
    assert (error.retry_after, error.ran, error.asked) == (timedelta(seconds=0.75), False, False)
    assert error.message == (
        "sqlite:///x is unavailable (failures in a row: 2), so this request was not sent: nothing ran and nothing was "
        "recorded for it. Retry with the same key in 0.75 s. "
        "The last failure: It cannot be reached (ConnectionRefusedError); nothing was recorded."
    )


def test_a_refusal_after_one_long_round_counts_one_failure() -> None:
    made = Guarded()
    made.round(SILENT, took=5.0)
    assert "(failures in a row: 1)" in refused(made).message


def test_a_refusal_tells_of_a_write_that_failed_during_the_rest() -> None:
    made = opened()
    made.round([StoreUnavailable("It is full.")])
    message = refused(made).message
    assert "(failures in a row: 2)" in message
    assert message.endswith("The last failure: It is full.")


def test_failures_before_an_answer_are_forgotten() -> None:
    made = Guarded(failures=2)
    made.round(StoreUnavailable("It is full."))
    made.round([Recorded(1)])
    made.round(SILENT)
    made.round(SILENT)
    message = refused(made).message
    assert "(failures in a row: 2)" in message
    assert "full" not in message


@pytest.mark.parametrize("other", [SchemaOutdated("old"), StoreUnavailable("Not asked.", asked=False)], ids=named)
def test_what_counts_neither_way_is_not_the_last_failure(other: Exception) -> None:
    made = Guarded(failures=1)
    made.round(SILENT, other)
    assert refused(made).message.endswith(f"The last failure: {SILENT}")


def test_a_store_that_refuses_its_login_is_refused_as_one() -> None:
    made = Guarded(failures=1)
    made.round(StoreMisconfigured("The password is wrong; nothing was recorded. Trying again does not help."))
    error = refused(made)
    assert (type(error), error.asked) == (StoreMisconfigured, False)
    assert "Retry with the same key once that is mended." in error.message
    assert "Retry with the same key in" not in error.message
    made.now = 1.0
    made.round(SILENT)
    assert type(refused(made)) is StoreUnavailable, "the last failure is of another kind"


def test_the_cause_of_a_refusal_is_the_last_failure() -> None:
    cause = refused(opened()).__cause__
    assert isinstance(cause, StoreUnavailable)
    assert cause.message == SILENT.message


def test_a_guard_keeps_no_failure_and_no_frame_alive() -> None:
    made = Guarded(failures=1)

    def fail() -> weakref.ref[StoreUnavailable]:
        try:
            raise StoreUnavailable("It did not answer.") from OSError("refused")
        except StoreUnavailable as error:
            made.round(error)
            return weakref.ref(error)

    failure = fail()
    assert failure() is None, "the error that a caller got is still held, and with it the frames it came through"
    error = refused(made)
    assert error.__cause__ is not None
    assert error.__cause__.__traceback__ is None
    assert error.__cause__ is not refused(made).__cause__, "one that is raised again must not gather frames for others"


def test_rounds_without_an_answer_in_a_row_open_it() -> None:
    made = Guarded()
    seen = []
    for _ in range(3):
        made.round(SILENT)
        seen.append(made.refuses())
    assert seen == [False, False, True]


def test_errors_of_single_operations_count_as_one_round() -> None:
    made = Guarded()
    made.round([SILENT] * 10, [SILENT] * 10)
    assert not made.refuses()


@pytest.mark.parametrize(
    "answer",
    [Reused(record()), Running(5), Lost(), StoreUnavailable("A row was locked.", conflict=True)],
    ids=lambda answer: type(answer).__name__,
)
def test_a_conflict_is_an_answer(answer: Any) -> None:
    made = Guarded()
    for _ in range(5):
        made.round(SILENT)
        made.round(SILENT)
        made.round([answer])
    assert not made.refuses()


def test_one_answer_in_a_round_is_enough() -> None:
    made = Guarded(failures=1)
    made.round(SILENT, [SILENT, Recorded(1)])
    assert not made.refuses()


@pytest.mark.parametrize("error", [SchemaOutdated("old"), UsageError("no"), ValueError("a bug")])
def test_other_errors_count_neither_way(error: Exception) -> None:
    made = Guarded(failures=2)
    made.round(SILENT)
    for _ in range(5):
        made.round(error)
    assert not made.refuses()
    made.round(SILENT)
    assert made.refuses()


def test_a_round_that_was_cut_short_counts_neither_way() -> None:
    made = Guarded(failures=1)
    made.round()
    assert not made.refuses()


def test_a_refusal_of_another_guard_counts_neither_way() -> None:
    made = Guarded(failures=1)
    made.round([StoreUnavailable("Not asked.", asked=False)])
    assert not made.refuses()


def test_one_round_that_took_too_long_is_enough() -> None:
    made = Guarded()
    made.round(SILENT, took=5.0)
    assert made.refuses()


def test_one_try_is_let_through_after_the_rest() -> None:
    made = opened()
    made.now = 1.0
    assert [made.refuses(), made.refuses()] == [False, True]


def test_nobody_waits_behind_a_try_that_hangs() -> None:
    made = opened()
    made.now = 1.0
    assert not made.refuses()
    made.guard.on_send()
    made.now = 60.0
    assert made.refuses()


def test_an_answer_to_the_try_lets_everybody_through() -> None:
    made = opened()
    made.now = 1.0
    made.refuses()
    made.round([Running(1)])
    assert [made.refuses(), made.refuses()] == [False, False]


def test_a_try_that_told_nothing_is_followed_by_another_at_once() -> None:
    made = opened()
    made.now = 1.0
    made.refuses()
    made.round(SchemaOutdated("old"))
    assert not made.refuses()


def test_a_write_that_is_answered_ends_the_rest_at_once() -> None:
    made = opened()
    made.round([Recorded(1)])
    assert not made.refuses()


def test_a_write_that_fails_during_the_rest_does_not_prolong_it() -> None:
    made = opened()
    for _ in range(20):
        made.round([SILENT])
    made.now = 1.0
    assert not made.refuses()


def test_a_write_after_the_rest_is_the_try() -> None:
    made = opened()
    made.now = 1.0
    made.round([SILENT])
    assert made.refuses()
    made.now = 2.9
    assert made.refuses()
    made.now = 3.0
    assert not made.refuses()


def test_changes_are_told_once() -> None:
    made = opened()
    assert made.guard.take_events() == ["store_open"]
    made.now = 1.0
    made.round(SILENT)
    assert not made.guard.take_events()
    made.round([Recorded(1)])
    made.round([Recorded(1)])
    assert made.guard.take_events() == ["store_closed"]
    assert not made.guard.take_events()


@pytest.mark.parametrize(
    "wrong",
    [
        {"open_after": 0},
        {"open_after": 2.5},
        {"open_after": True},
        {"max_queue": 0},
        {"retry_budget": -1},
        {"waiters": 0},
        {"waiters_per_key": 0},
        {"backoff": 0.0},
        {"backoff": 3.0},
        {"slow_call": 0.0},
    ],
    ids=str,
)
def test_limits_that_cannot_be_kept_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="nothing ran"):
        Limits(**wrong)


@pytest.mark.parametrize(
    ("wrong", "named"), [("max_que", "Did you mean 'max_queue'"), ("failures", "It has backoff, max_backoff,")]
)
def test_an_unknown_limit_is_refused_with_the_one_that_was_meant(wrong: str, named: str) -> None:
    given: dict[str, Any] = {wrong: 1}
    with pytest.raises(UsageError, match=f"no setting '{wrong}'; nothing ran.*{named}"):
        Limits(**given)


def test_limits_without_resends_are_possible() -> None:
    assert Limits(retry_budget=0).retry_budget == 0


def test_a_breaker_has_the_limits_it_was_made_from() -> None:
    breaker = Limits(open_after=2, backoff=1.0, max_backoff=8.0).breaker(lambda: 1.0)
    breaker.on_failure(0.0)
    assert breaker.state == "closed"
    breaker.on_failure(0.0)
    assert (breaker.state, breaker.remaining(0.0)) == ("open", 1.0)
