"""Erasing a record, and repeating what caches in front of the store have not confirmed, as flows.

What always holds: erasing never makes an effect possible again (`semel.core.erasing`). An invalidation is forgotten
only after every cache has confirmed it.
"""

from __future__ import annotations

from typing import Final

from semel.core.erasing import RESOLUTION
from semel.core.flow import Flow
from semel.core.key import Key
from semel.core.operations import Awaiting, Confirm, Erase, Erased, Invalidate, Invalidation, Pending, Unresolvable
from semel.core.record import Note, Record, Status
from semel.core.store import Store
from semel.errors import NotResolvable, StoreUnavailable, UsageError

_BATCH: Final = 100


def has_tiers(store: Store) -> bool:
    """Whether caches stand in front of the records of this store."""
    return bool(getattr(store, "tiers", False))


def erase(key: Key, *, reason: str, by: str, tiers: bool) -> Flow[Record]:
    """Take out of a settled record what may be personal; what keeps the key shut stays.

    Raises:
        UsageError: no reason was given.
        NotResolvable: there is no record under that key, or it is not settled.
    """
    if not isinstance(reason, str) or not reason.strip():
        message = "erase() needs a reason, which is kept with the record; nothing was erased."
        raise UsageError(message)
    note = Note(RESOLUTION, reason[:1000], by).text()
    answer = yield Erase(key.digest, note, key.operation, tiers)
    match answer:
        case Erased(record):
            return record
        case Unresolvable(found):
            raise not_erasable(key, found)
    raise AssertionError(answer)


def not_erasable(key: Key, record: Record | None) -> NotResolvable:
    """The error for a record that cannot be erased, or is not there."""
    if record is None:
        return NotResolvable(f"There is no record {key.reference[:16]}; nothing was erased.", reference=key.reference)
    then = (
        "Resolve it first: semel show, then semel resolve."
        if record.status is Status.IN_DOUBT
        else "Erase it once it has ended."
    )
    return NotResolvable(
        f"The record {record.reference[:16]} is {record.status}, so what it needs to end is still in use; "
        f"nothing was erased. {then}",
        reference=record.reference,
    )


def repeat_invalidations() -> Flow[int]:
    """Send again what caches have not confirmed, oldest first; answers how many they have confirmed now.

    What they cannot confirm yet stays noted for the next sweep, and holds up none of the others. Where a cache is away
    for many in a row, so does the rest.
    """
    confirmed, in_a_row = 0, 0
    left: set[Invalidation] = set()
    while True:
        most = _BATCH + len(left)
        awaiting: Awaiting = yield Pending(most)
        for noted in awaiting.invalidations:
            if noted in left:
                continue
            try:
                yield Invalidate(noted.digest, noted.operation, noted.noted_us)
            except StoreUnavailable as error:
                left.add(noted)
                in_a_row = 0 if error.conflict else in_a_row + 1
                if in_a_row == _BATCH:
                    return confirmed
            else:
                yield Confirm(noted.digest, noted.noted_us)
                confirmed, in_a_row = confirmed + 1, 0
        if len(awaiting.invalidations) < most:
            return confirmed
