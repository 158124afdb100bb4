"""What is left out where an item would be too large for DynamoDB: values become tombstones, the fact is always kept.

What always holds: an operation that happened is recorded as such, however large its value. A duplicate then gets
`ResultNotKept`, and nothing runs again.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from semel.core.operations import Checkpoint, Complete, Operation, Resolve
from semel.core.outcome import pack_tombstone
from semel.core.record import Record
from semel.stores.dynamodb.items import LARGEST, item_of, size_of

_REST: Final = 2048
"""Room for what an end changes beside the outcome."""
Kind = TypeVar("Kind", bound=Operation)


def shrunk(operation: Kind, record: Record | None) -> tuple[Kind, bool]:
    """The operation with a value that fits, and whether the finished steps have to go for it.

    Without `record` only what cannot fit into any item is left out. Steps are left out of what is final alone: nobody
    takes it up again.
    """
    match operation:
        case Complete(_, outcome) | Resolve(_, _, _, bytes() as outcome):
            settles = record is not None and bool(record.steps)
            bare = 0 if record is None else size_of(item_of(replace(record, steps=(), outcome=None), 1))
            return replace(operation, outcome=_kept(outcome, bare)), settles
        case Checkpoint(_, step):
            whole = 0 if record is None else size_of(item_of(record, 1))
            return replace(operation, step=replace(step, outcome=_kept(step.outcome, whole))), False
    return operation, False


def _kept(outcome: bytes, beside: int) -> bytes:
    room = LARGEST - beside - _REST
    if len(outcome) <= room:
        return outcome
    return pack_tombstone(
        f"the result takes {len(outcome)} bytes, and an item of DynamoDB has room for {max(room, 0)} here"
    )
