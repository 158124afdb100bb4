"""Plans that erase, and that keep account of what caches have to forget.

What always holds: a record, its finished steps and the note for the caches change in one transaction, and only if the
record is settled then.
"""

from __future__ import annotations

from typing import cast

from semel.core import erasing
from semel.core.operations import (
    Awaiting,
    Confirm,
    Erase,
    Erased,
    Invalidate,
    Invalidation,
    Pending,
    Recorded,
    Unresolvable,
)
from semel.core.record import Record
from semel.stores.refusals import not_inside
from semel.stores.sqlite.commands import SQL, Command, Kind, blob
from semel.stores.sqlite.reading import Part, record_at
from semel.stores.storable import storable


def erase(operation: Erase, *, joined: bool) -> Part:
    """Answers `Erase`."""
    if joined:
        raise not_inside("erase")
    place = {"digest": blob(operation.digest)}
    values = {
        **place,
        "note": storable(operation.note),
        "tombstone": blob(erasing.TOMBSTONE),
        "error_type": erasing.FAILURE.type,
        "error_message": erasing.FAILURE.message,
    }
    _, changed, _ = yield Command(Kind.WRITE, SQL["erase"], values)
    if not changed:
        return Unresolvable((yield from record_at(operation.digest, joined=False)))
    yield Command(Kind.WRITE, SQL["forget_steps"], place)
    if operation.tiers:
        yield Command(Kind.WRITE, SQL["note_invalidation"], place)
    return Erased(cast("Record", (yield from record_at(operation.digest, joined=False))))


def invalidate(operation: Invalidate, *, joined: bool) -> Part:
    """Answers `Invalidate`: there is no cache in front of the file."""
    del operation, joined
    return Recorded(0)
    yield


def pending(operation: Pending, *, joined: bool) -> Part:
    """Answers `Pending`."""
    del joined
    rows, _, _ = yield Command(Kind.SCAN, SQL["invalidations"], {"limit": max(operation.limit, 0)})
    return Awaiting(tuple(Invalidation(*row) for row in rows))


def confirm(operation: Confirm, *, joined: bool) -> Part:
    """Answers `Confirm`."""
    del joined
    values = {"digest": blob(operation.digest), "before_us": operation.before_us}
    _, _, now = yield Command(Kind.WRITE, SQL["confirm"], values)
    return Recorded(now)
