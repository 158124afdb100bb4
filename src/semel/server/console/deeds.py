"""What can be done from a page: its words, its permission, and whether it can be done to what is there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from semel.core.record import Record, Status
from semel.engine.admin import is_reopenable, is_stated, not_erasable, not_reopenable, not_resolvable
from semel.server.access import Permission
from semel.server.actions.records import bulk_item_error, is_bulk_item, still_running_error

Kind = Literal["record", "letter", "parked", "batch"]
Asked = Literal["", "value", "error"]


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that can be done.

    Attributes:
        name: in addresses.
        kind: what it is done to.
        words: on its button.
        meaning: what it does, for who has to decide.
        permission: what it needs.
        asks_for: what has to be stated beside the reason.
        is_grave: whether it cannot be taken back.
    """

    name: str
    kind: Kind
    words: str
    meaning: str
    permission: Permission
    asks_for: Asked = ""
    is_grave: bool = False


_ALL: Final = (
    Deed(
        "happened",
        "record",
        "It happened",
        "The record is completed. Every duplicate gets the value that you state here, and nothing runs again.",
        Permission.RESOLVE,
        "value",
    ),
    Deed(
        "release",
        "record",
        "It did not happen",
        "The doubt is ended: the next call of the key runs the operation again.",
        Permission.RELEASE,
    ),
    Deed(
        "cancel",
        "record",
        "Cancel it",
        "It never runs again. Every duplicate is told that it was cancelled.",
        Permission.CANCEL,
        is_grave=True,
    ),
    Deed(
        "fail",
        "record",
        "It failed",
        "It never runs again. Every duplicate gets the error that you state here.",
        Permission.FAIL,
        "error",
        is_grave=True,
    ),
    Deed(
        "correct",
        "record",
        "Correct the value",
        "The value that somebody stated is replaced. That it happened stays, and nothing runs again.",
        Permission.RESOLVE,
        "value",
    ),
    Deed(
        "reopen",
        "record",
        "Let it run again",
        "What failed for good or was cancelled may run again; its attempts are counted from none. Nothing runs now.",
        Permission.REOPEN,
    ),
    Deed(
        "erase",
        "record",
        "Erase what is personal",
        "Key, value, error and all that it is about are deleted for good. The key stays shut: nothing runs again.",
        Permission.ERASE,
        is_grave=True,
    ),
    Deed(
        "redrive",
        "letter",
        "Redrive",
        "The stored event is handed to its consumer again, now, and never through the broker.",
        Permission.REDRIVE,
    ),
    Deed(
        "discard",
        "letter",
        "Discard",
        "The letter is deleted. Its record stays, so the event is not processed when it is delivered again.",
        Permission.DISCARD,
        is_grave=True,
    ),
    Deed(
        "publish",
        "parked",
        "Release",
        "The event may be published again, by the next turn of its relay; what waits behind it follows.",
        Permission.REDRIVE,
    ),
    Deed(
        "drop",
        "parked",
        "Drop",
        "The event is deleted and never published. What waits behind it goes on.",
        Permission.DISCARD,
        is_grave=True,
    ),
    Deed("pause", "batch", "Pause", "Items that run come to their end, and no others begin.", Permission.BATCH),
    Deed("resume", "batch", "Resume", "Its runners go on with the next items.", Permission.BATCH),
    Deed(
        "cancel_batch",
        "batch",
        "Cancel the batch",
        "Items that run come to their end, no others ever begin, and it cannot be resumed.",
        Permission.BATCH,
        is_grave=True,
    ),
    Deed(
        "retry_failed",
        "batch",
        "Retry what failed",
        "Every failed item is opened, and runs again with the data it has.",
        Permission.BATCH,
    ),
    Deed(
        "retry_in_doubt",
        "batch",
        "Retry what is in doubt",
        "This says that none of the items in doubt happened: every one of them runs again.",
        Permission.BATCH,
        is_grave=True,
    ),
)
DEEDS: Final = {deed.name: deed for deed in _ALL}
_ENDS_DOUBT: Final = ("happened", "release", "cancel", "fail")


def is_live(record: Record, now: datetime) -> bool:
    """Whether somebody holds a record."""
    return record.status is Status.RUNNING and record.lease_until > now


def why_not(deed: Deed, record: Record, now: datetime, *, force: bool = False) -> str:
    """Why something cannot be done to a record as it is now, in the words of the refusal; empty: it can."""
    if is_bulk_item(record):
        return bulk_item_error(record).message
    if is_live(record, now) and not (force and deed.name in _ENDS_DOUBT):
        return still_running_error(record).message
    if deed.name == "erase":
        return "" if record.settled else not_erasable(record.key, record).message
    if deed.name == "reopen":
        return "" if is_reopenable(record) else not_reopenable(record).message
    if deed.name == "correct":
        return "" if is_stated(record) else not_resolvable(record).message
    return not_resolvable(record).message if record.settled else ""


def fitting_deeds(record: Record, now: datetime, *, force: bool) -> list[Deed]:
    """What can be done to a record as it is now."""
    found = [deed for deed in _ALL if deed.kind == "record" and not why_not(deed, record, now, force=force)]
    return [deed for deed in found if not (deed.name == "erase" and record.erased)]


def batch_deeds(state: str, *, failed: int, in_doubt: int) -> list[Deed]:
    """What can be done to a batch in this state."""
    names = {"running": ["pause", "cancel_batch"], "pending": ["pause", "cancel_batch"]}.get(state, [])
    if state == "paused":
        names = ["resume", "cancel_batch"]
    if state in ("running", "paused", "completed"):
        names += ["retry_failed"] * bool(failed) + ["retry_in_doubt"] * bool(in_doubt)
    return [DEEDS[name] for name in names]
