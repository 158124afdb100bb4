"""What is left out where an item would be too large for DynamoDB: values become tombstones, the fact is always kept.

What always holds: an operation that happened is recorded as such, however large its value. A duplicate then gets
`ResultNotKept`, and nothing runs again.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from semel.core.operations import Checkpoint, Complete, Fail, Operation, Resolve
from semel.core.outcome import pack_tombstone
from semel.core.record import Record
from semel.stores.dynamodb.items import LARGEST, item_of, size_of

_REST: Final = 2048
"""Room for what an end changes beside the outcome."""
_BRIEF: Final = 80
Kind = TypeVar("Kind", bound=Operation)


def shrunk(operation: Kind, record: Record | None, size: int = LARGEST) -> tuple[Kind, bool]:
    """The operation with values that fit into an item of this size, and whether the finished steps have to go for it.

    Without `record` only what cannot fit into any item is left out. Steps are left out of what is final alone: nobody
    takes it up again.
    """
    match operation:
        case Complete(_, outcome) | Resolve(_, _, _, bytes() as outcome):
            settles = record is not None and bool(record.steps)
            bare = 0 if record is None else size_of(item_of(replace(record, steps=(), outcome=None), 1))
            return replace(operation, outcome=_kept(outcome, size - bare)), settles
        case Checkpoint(_, step):
            before = () if record is None else record.steps
            for kept in before:
                if (kept.index, kept.name) == (step.index, step.name):
                    return replace(operation, step=kept), False  # the same step again, after its reply was lost
            whole = 0 if record is None else size_of(item_of(record, 1))
            return replace(operation, step=replace(step, outcome=_kept(step.outcome, size - whole))), False
        case Fail(_, _, error) if record is not None:
            return replace(operation, error=replace(error, message=error.message[:_BRIEF])), False
    return operation, False


def _kept(outcome: bytes, left: int) -> bytes:
    room = left - _REST
    if len(outcome) <= room:
        return outcome
    return pack_tombstone(
        f"the result takes {len(outcome)} bytes, and an item of DynamoDB has room for {max(room, 0)} here"
    )
