"""Executes a write and interprets the answers of its statements: one flow for every library, sync and async.

The statement that writes decides whether the row was written. The read after a refused write only explains it: it gives
the version for the error, and recognizes the caller's own request.

MySQL and MariaDB cannot say by RETURNING whether an UPDATE found a row, and their count of rows means "found" on one
connection and "changed" on the next (CLIENT_FOUND_ROWS). Here only an UPDATE is counted, and each one raises the
version, so a row that is found is changed and both counts are equal. An INSERT that may find a row is never counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from semel.core.flow import Flow
from semel.errors import ConcurrentModification, UsageError
from semel.versions.write import Unchanged, Write, Written

_DUPLICATE = 1062  # ER_DUP_ENTRY of MySQL and MariaDB


class Step(Enum):
    """One statement. What it says of the row depends on the `Write`; how it is spelled, on the database."""

    ADD = auto()  # INSERT; a row with this key is left alone, or refused with a duplicate error (MySQL)
    ADD_BELOW = auto()  # INSERT one version below `newer`; a row with this key is left alone
    ADD_OR_CHANGE = auto()  # INSERT, or UPDATE where the version is below `newer`
    CHANGE = auto()  # UPDATE where the version is `expected`, or below `newer`
    LOOK = auto()  # SELECT the version, and whether the row shows this request


@dataclass(frozen=True)
class Reply:
    """What a statement gave: its rows, and how many it wrote."""

    rows: list[tuple[Any, ...]]
    count: int


def writing(write: Write, *, returning: bool) -> Flow[Written | Unchanged]:
    """Carry out `write`. `returning`: the database has RETURNING for both INSERT and UPDATE.

    Raises:
        ConcurrentModification: the row is not as expected; nothing was written.
        UsageError: the key does not name one row.
    """
    refused: Exception | None = None
    count = 0
    try:
        count = yield from (_with_returning(write) if returning else _without_returning(write))
    except Exception as error:
        # A refused INSERT is undone alone: the transaction goes on, and may be asked what is in the way.
        if returning or not _is_duplicate(error):
            raise
        refused = error
    if count > 1:
        raise UsageError(
            f"{count} rows of {write.place} were changed: {', '.join(write.key)} does not name one row. Roll the "
            f"transaction back, and give the columns of a unique index as the key."
        )
    if count == 1:
        return Written(write.after)
    reply: Reply = yield Step.LOOK
    if refused is not None and not reply.rows:
        raise refused  # by another unique index: no version is at fault
    return why_not(write, reply)


def _with_returning(write: Write) -> Flow[int]:
    reply: Reply
    if write.newer is not None:
        reply = yield Step.ADD_OR_CHANGE
    else:
        reply = yield Step.ADD if write.expected is None else Step.CHANGE
    return reply.count


def _without_returning(write: Write) -> Flow[int]:
    if write.newer is None and write.expected is None:
        yield Step.ADD
        return 1
    if write.newer is not None:
        # The row is made one version too old, so that the UPDATE meets a new row as it meets an old one, and its count
        # decides for both. The INSERT locks a row that is there for writing: to UPDATE first would lock only the gap
        # where two new rows collide, and one of the two transactions would end in a deadlock.
        yield Step.ADD_BELOW
    reply: Reply = yield Step.CHANGE
    return reply.count


def why_not(write: Write, reply: Reply, thing: str = "row", **facts: Any) -> Unchanged:
    """What a refused write means: nothing had to be written, or somebody else was there.

    Raises:
        ConcurrentModification: the row, or what else the thing is, is not as expected; with these facts.
        UsageError: what is there cannot be the reason.
    """
    found, shown = reply.rows[0] if reply.rows else (None, 0)
    if write.newer is not None and found is None:
        raise UsageError(
            f"{write.place} refused the row, yet has none with this key and a version; nothing was written. Either "
            f"another unique index is in the way, or the version of the row is NULL."
        )
    if write.newer is not None or (shown and found is not None):
        return Unchanged(found)
    now = "is not there" if found is None else f"is at version {found}"
    wanted = "must be new" if write.expected is None else f"was expected at version {write.expected}"
    raise ConcurrentModification(
        f"The {thing} of {write.place} {wanted} and {now}; nothing was written. Read it again and decide whether the "
        f"change still applies.",
        expected=write.expected,
        found=found,
        **facts,
    )


def _is_duplicate(error: Exception) -> bool:
    cause = getattr(error, "orig", None) or error  # SQLAlchemy wraps the error of the driver
    return bool(cause.args) and cause.args[0] == _DUPLICATE
