"""Plans that erase, and that keep account of what caches have to forget.

What always holds: a record, its finished steps and the note for the caches change together, in one command, and only
if the record is settled then.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from semel.core.operations import (
    Answer,
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
from semel.core.store import Answers, Plan
from semel.stores.refusals import not_inside
from semel.stores.served.command import Command, Row
from semel.stores.served.dialect import Dialect
from semel.stores.sql import record_of, steps_of


def erase(dialect: Dialect, operations: Sequence[Erase], *, joined: bool) -> Plan:
    """Answers to `Erase`."""
    if joined:
        raise not_inside("erase")
    answers: Answers = []
    for operation in operations:
        answers.append((yield from _erase(dialect, operation)))
    return answers


def _erase(dialect: Dialect, operation: Erase) -> Generator[Command, list[Row], Answer]:
    while True:
        changed = yield dialect.erase(operation)
        if changed:
            return Erased(record_of(changed[0]))
        ((*row, _),) = yield dialect.read([operation.digest], joined=False)
        if row[0] is None:
            return Unresolvable(None)
        record = record_of(row)
        if not record.settled:
            steps = (yield dialect.steps(operation.digest, record.created_us, joined=False)) if row[-1] else []
            return Unresolvable(record_of(row, steps_of(steps)))
        # It was settled in between: there is something to erase now.


def invalidate(_dialect: Dialect, operations: Sequence[Invalidate], *, joined: bool) -> Plan:
    """Answers to `Invalidate`: there is no cache in front of the server."""
    del joined
    return [Recorded(0)] * len(operations)
    yield


def pending(dialect: Dialect, operations: Sequence[Pending], *, joined: bool) -> Plan:
    """Answers to `Pending`."""
    del joined
    answers: Answers = []
    for operation in operations:
        rows = yield dialect.pending(operation)
        answers.append(Awaiting(tuple(Invalidation(*row) for row in rows)))
    return answers


def confirm(dialect: Dialect, operations: Sequence[Confirm], *, joined: bool) -> Plan:
    """Answers to `Confirm`."""
    del joined
    answers: Answers = []
    for operation in operations:
        ((now,),) = yield dialect.confirm(operation)
        answers.append(Recorded(now))
    return answers
