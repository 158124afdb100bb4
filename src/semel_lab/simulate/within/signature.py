"""Telling states apart: a number for all that can still matter, so that no state is explored twice.

What always holds: where a caller stands follows from what it heard and when; the rest is looked at directly. A version
counts by what it holds and by whether it is still the committed one, not by its stamp, which depends on the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel_lab.simulate.models.transaction import Row, Transaction
from semel_lab.simulate.state import standing

if TYPE_CHECKING:
    from semel_lab.simulate.models import Server
    from semel_lab.simulate.within.simulation import WithinSimulation


def signature(sim: WithinSimulation) -> int:
    """The number of the state a simulation is in."""
    server, checker = sim.server, sim.checker
    return hash(
        (
            sim.now_us,
            sim.left,
            sim.slow,
            tuple((digest, _row(row)) for digest, row in sorted(server.committed.items())),
            tuple(sorted(server.search.items())),
            tuple(server.effects),
            tuple(
                (
                    caller.point,
                    caller.until_us,
                    caller.ended,
                    caller.history,
                    _transaction(server, caller.session.transaction),
                )
                for caller in sim.callers
            ),
            frozenset(checker.completed),
            frozenset(checker.excused),
            frozenset(checker.early),
            frozenset(checker.unreturned),
        )
    )


def _row(row: Row | None) -> tuple[object, ...]:
    return (
        ()
        if row is None
        else (
            standing(row.record),
            row.record.updated_us,
            row.record.about.subject,
            row.wanted,
        )
    )


def _transaction(server: Server, transaction: Transaction | None) -> object:
    if transaction is None:
        return None
    return (
        transaction.name,
        transaction.aborted,
        _snapshot(server, transaction),
        tuple((digest, _row(row)) for digest, row in sorted(transaction.written.items())),
        tuple(sorted(transaction.written_search.items())),
        frozenset(transaction.locked),
        frozenset(transaction.gaps),
        frozenset(transaction.held),
        frozenset(transaction.marks),
        tuple(transaction.effects),
    )


def _snapshot(server: Server, transaction: Transaction) -> object:
    if transaction.snapshot is None:
        return None
    digests = sorted(transaction.snapshot.keys() | server.committed.keys())
    seen = [(transaction.snapshot.get(digest), server.committed.get(digest)) for digest in digests]
    return tuple((_row(known), known == newest) for known, newest in seen)
