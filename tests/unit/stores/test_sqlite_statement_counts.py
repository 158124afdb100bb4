"""How many statements each operation takes on the connection that writes, transaction included: none may be added."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from semel.core.events.letters import Letter
from semel.core.operations import (
    AddReplays,
    Checkpoint,
    Complete,
    Confirm,
    CountFailure,
    Erase,
    Fail,
    MarkLapsed,
    Operation,
    Pending,
    Purge,
    Read,
    Recorded,
    Renew,
    Reopen,
    Resolve,
)
from semel.core.record import About, Failure, Lease, Status, Step
from tests.unit.stores.kit import Asker, opened
from tests.unit.stores.operations import KEYS, claim

DIGEST = KEYS[0].digest
OOPS = Failure("app.Broke", "why")
LETTER = Letter(
    id=bytes(32),
    consumer="billing",
    scope="",
    record=DIGEST,
    reason="exhausted",
    type="asset.registered",
    subject=None,
    content=b"{}",
    readable=True,
    attempts=5,
    error=OOPS,
    keep_us=1,
)
Make = Callable[[Lease], Operation]
TRANSACTION = 2  # BEGIN IMMEDIATE and COMMIT
LETTERS = 1  # decisions and erasures look for dead letters of the record
HISTORY = 5  # what the trigger does for writes that have an entry; completions, renewals and steps have none


@pytest.mark.parametrize(
    ("make", "first", "again"),
    [
        (lambda lease: Renew(lease, 5), 1, 1),
        (lambda lease: Complete(lease, b"outcome"), 1, 2),
        (lambda lease: Fail(lease, "final", OOPS, doubtful=False), 1 + HISTORY, 2),
        (lambda lease: Fail(lease, "doubt", OOPS, doubtful=True), 1 + HISTORY, 2),
        (lambda lease: Complete(lease, b"outcome", bytes(32)), 2, 2),
        (lambda lease: Fail(lease, "final", OOPS, doubtful=False, letter=LETTER), 3 + HISTORY, 2),
        (lambda lease: Fail(lease, "retry", OOPS, doubtful=False, letter=LETTER), 1 + HISTORY, 2),
        (lambda lease: Checkpoint(lease, Step(0, "reserve", b"1")), 2, 2),
        (lambda _: MarkLapsed(10), 1, 1),
        (lambda _: Purge(10), 1, 1),
        (lambda _: AddReplays(DIGEST, 3), 1, 1),
        (lambda _: Confirm(DIGEST, 5), 1, 1),
        (lambda _: Erase(DIGEST, "note", invalidates=True), 2, 2),
        (lambda _: Resolve(DIGEST, bytes(16), Status.CANCELLED, None, "note", force=True), 2 + HISTORY + LETTERS, 2),
        (lambda lease: Reopen(DIGEST, bytes(16), lease.nonce, "note"), 2, 2),
        (lambda _: count_failure(), 3, 3),
    ],
)
def test_writes_of_a_running_record(path: Path, make: Make, first: int, again: int) -> None:
    with opened(path) as asker:
        operation = make(asker.granted().lease)
        assert (_count(asker, operation), _count(asker, operation)) == (first + TRANSACTION, again + TRANSACTION)


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: Erase(DIGEST, "note", invalidates=False), 6 + HISTORY + LETTERS),
        (lambda: Erase(DIGEST, "note", invalidates=True), 7 + HISTORY + LETTERS),
        (lambda: Resolve(DIGEST, bytes(16), Status.COMPLETED, b"x", "note"), 2),
        (lambda: claim(number=2), 1 - TRANSACTION),
        (lambda: Read(DIGEST), 1 - TRANSACTION),
        (lambda: Pending(10), 0 - TRANSACTION),
    ],
)
def test_what_meets_a_completed_record(path: Path, make: Callable[[], Operation], count: int) -> None:
    with opened(path) as asker:
        asker.one(Complete(asker.granted().lease, b"outcome"), Recorded)
        assert _count(asker, make()) == count + TRANSACTION


def test_a_reopening_is_an_update_and_a_look_at_the_finished_steps(path: Path) -> None:
    with opened(path) as asker:
        lease = asker.granted().lease
        asker.one(Fail(lease, "final", OOPS, doubtful=False), Recorded)
        reopening = Reopen(DIGEST, bytes(16), lease.nonce, "note")
        assert (_count(asker, reopening), _count(asker, reopening)) == (2 + HISTORY + TRANSACTION, 2 + TRANSACTION)


def test_a_first_failure_is_counted_by_an_insert_and_a_further_one_by_an_update(path: Path) -> None:
    with opened(path) as asker:
        first, second = count_failure(1), count_failure(2)
        assert (_count(asker, first), _count(asker, second)) == (3 + TRANSACTION, 3 + HISTORY + TRANSACTION)


def test_a_first_claim_is_a_look_and_an_insert(path: Path) -> None:
    with opened(path) as asker:
        assert _count(asker, claim()) == 2 + TRANSACTION


def test_a_first_claim_that_says_what_it_is_about_is_an_insert_more_for_each_value(path: Path) -> None:
    with opened(path) as asker:
        assert _count(asker, claim(about=About(subject="ann", tags={"tenant": "acme"}))) == 4 + TRANSACTION


def count_failure(number: int = 2) -> CountFailure:
    asked = claim(number=number)
    return CountFailure(asked.key, asked.fingerprint, asked.nonce, OOPS, asked.terms, asked.about, max_attempts=3)


def _count(asker: Asker, operation: Operation) -> int:
    with asker.traced() as told:
        asker.all([operation])
    return len(told)
