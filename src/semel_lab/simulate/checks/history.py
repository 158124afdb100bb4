"""What must hold of histories: each write leaves exactly the entries that it has to leave, and with its record.

What is expected is told from the operation, not from the rule that stores follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from semel.core.operations import Claim, CountFailure, Erase, Fail, MarkLapsed, Reopen, Resolve
from semel.core.record import ERASED_FAILURE, MOST_INSIDE, Entry, Status, StoredRecord
from semel_lab.simulate.checks.violation import Violation

Mark = tuple[int, str]
"""Fence and kind of an entry."""


def check_history(
    operation: Any,
    before: StoredRecord | None,
    after: StoredRecord | None,
    known: tuple[Entry, ...],
    now_known: tuple[Entry, ...],
) -> None:
    """Compare the entries before and after an operation on one record."""
    expected = _expected(operation, before, after, known)
    found: list[Mark] = [(entry.fence, entry.kind) for entry in now_known]
    if found[-MOST_INSIDE:] != expected[-MOST_INSIDE:]:
        name = type(operation).__name__
        raise Violation("history", f"after {name} the history has {found}, and should have {expected}")
    if after is not None and after.erased and any(entry.error not in (None, ERASED_FAILURE) for entry in now_known):
        raise Violation("history", "an erased record tells the errors of its attempts")


def _expected(
    operation: Any, before: StoredRecord | None, after: StoredRecord | None, known: Iterable[Entry]
) -> list[Mark]:
    marks: list[Mark] = [(entry.fence, entry.kind) for entry in known]
    if after is before:
        return marks
    if after is None:
        return []
    if before is None or before.created_us != after.created_us:
        return [(after.fence, "attempt")] if isinstance(operation, CountFailure) else []
    return marks + _left_by(operation, before, after, marks)


def _left_by(operation: Any, before: StoredRecord, after: StoredRecord, known: list[Mark]) -> list[Mark]:
    """What an operation that changed a record leaves."""
    fence, was_running = before.fence, before.status is Status.RUNNING
    match operation:
        case Claim():
            return [(fence, "taken_over")] if was_running and after.fence > fence else []
        case Fail():
            return [(fence, "attempt")] if operation.started else []
        case MarkLapsed():
            return [(fence, "attempt")]
        case CountFailure():
            return [(after.fence, "attempt")]
        case Reopen():
            return [(fence, "reopened")]
        case Resolve():
            is_decided = (fence, "resolved") in known
            forgets = was_running or (before.status is Status.COMPLETED and not is_decided)
            return [*([(fence, "attempt")] if forgets else []), (after.fence, "resolved")]
        case Erase():
            return [] if (after.fence, "erased") in known else [(after.fence, "erased")]
    return []


def check_committed(record: StoredRecord, entries: tuple[Entry, ...]) -> None:
    """A committed history speaks of what was committed with it, once."""
    marks = [(entry.fence, entry.kind) for entry in entries]
    if len(set(marks)) < len(marks):
        raise Violation("history", f"something was entered twice: {marks}")
    for fence, kind in marks:
        is_over = fence < record.fence or (fence == record.fence and _is_said(kind, record))
        if not is_over:
            message = f"{kind} of fence {fence} was entered, and the record is {record.status} at {record.fence}"
            raise Violation("history", message)


def _is_said(kind: str, record: StoredRecord) -> bool:
    """Whether the present state of a record can have such an entry."""
    if kind == "attempt":
        return record.status in (Status.FAILED, Status.IN_DOUBT)
    return kind != "taken_over"
