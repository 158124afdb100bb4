"""How many statements each operation takes on the connection that writes, transaction included: none may be added."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from semel.core.operations import (
    AddReplays,
    Checkpoint,
    Complete,
    Confirm,
    Erase,
    Fail,
    MarkLapsed,
    Operation,
    Pending,
    Purge,
    Read,
    Recorded,
    Renew,
    Resolve,
)
from semel.core.record import Failure, Lease, Status, Step
from tests.unit.stores.kit import Asker, opened
from tests.unit.stores.operations import KEYS, claim

DIGEST = KEYS[0].digest
OOPS = Failure("app.Broke", "why")
Make = Callable[[Lease], Operation]
TRANSACTION = 2  # BEGIN IMMEDIATE and COMMIT


@pytest.mark.parametrize(
    ("make", "first", "again"),
    [
        (lambda lease: Renew(lease, 5), 1, 1),
        (lambda lease: Complete(lease, b"outcome"), 1, 2),
        (lambda lease: Fail(lease, "final", OOPS, doubtful=False), 1, 2),
        (lambda lease: Fail(lease, "doubt", OOPS, doubtful=True), 1, 2),
        (lambda lease: Checkpoint(lease, Step(0, "reserve", b"1")), 2, 2),
        (lambda _: MarkLapsed(10), 1, 1),
        (lambda _: Purge(10), 1, 1),
        (lambda _: AddReplays(DIGEST, 3), 1, 1),
        (lambda _: Confirm(DIGEST, 5), 1, 1),
        (lambda _: Erase(DIGEST, "note", invalidates=True), 2, 2),
    ],
)
def test_writes_of_a_running_record(path: Path, make: Make, first: int, again: int) -> None:
    with opened(path) as asker:
        operation = make(asker.granted().lease)
        assert (_count(asker, operation), _count(asker, operation)) == (first + TRANSACTION, again + TRANSACTION)


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: Erase(DIGEST, "note", invalidates=False), 3),
        (lambda: Erase(DIGEST, "note", invalidates=True), 4),
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


def test_a_first_claim_is_a_look_and_an_insert(path: Path) -> None:
    with opened(path) as asker:
        assert _count(asker, claim()) == 2 + TRANSACTION


def _count(asker: Asker, operation: Operation) -> int:
    with asker.traced() as told:
        asker.all([operation])
    return len(told)
