"""Telling states apart: a number for all that can still matter, so that no state is explored twice.

What always holds: what a caller's flow is in the middle of follows from what it was told and when, so the history of
its inputs stands for it; everything else is looked at directly. Two orders of steps that do not touch each other
give one state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.core.record import StoredRecord

if TYPE_CHECKING:
    from semel_lab.simulate.caller import Caller
    from semel_lab.simulate.process import Worker
    from semel_lab.simulate.simulation import Simulation


def signature(sim: Simulation) -> int:
    """The number of the state a simulation is in."""
    faults, store = sim.faults, sim.store
    return hash(
        (
            sim.now_us,
            sim.jump_us,
            sim.slow,
            faults.left,
            sim.calm_since_us,
            tuple([_record(record) for record in store.table.records.values()]),
            tuple([life.mark() for life in store.claims.lives.values()]),
            tuple([_worker(worker) for worker in sim.workers]),
            tuple([_caller(caller) for caller in sim.callers]),
            tuple([tuple([_operation(operation) for operation in late.operations]) for late in sim.late]),
            tuple(sorted(faults.explained.items())),
            frozenset(faults.unknown),
            frozenset(faults.ghosts),
            frozenset(sim.witness.refused),
            sim.held_up,
            sim.quirks.mark(),
        )
    )


def standing(record: StoredRecord) -> tuple[object, ...]:
    """What any next operation on a record depends on: who holds it, and what has come of it."""
    return (
        record.status,
        record.retryable,
        record.fence,
        record.nonce,
        record.lease_us,
        record.doubtful,
        record.attempts,
        record.outcome,
        len(record.steps),
    )


def _record(record: StoredRecord) -> tuple[object, ...]:
    return (
        record.key.digest,
        standing(record),
        record.fingerprint,
        record.started_us,
        record.expires_us,
        record.error and record.error.type,
        record.in_doubt_policy,
        record.about.subject,
    )


def _operation(operation: Any) -> tuple[object, ...]:
    lease = getattr(operation, "lease", None)
    names = tuple([getattr(operation, name, None) for name in ("nonce", "corrects", "seen", "status", "error")])
    return type(operation), names, lease and (lease.nonce, lease.fence)


def _worker(worker: Worker) -> tuple[object, ...]:
    if not worker.alive:
        return ()
    parked = tuple([(type(turn), getattr(turn, "actor", 0)) for turn in worker.parked])
    marks = tuple([part.mark() for part in (*worker.lanes, worker.keeper, worker.leases)])
    return marks, worker.thaws_us, parked


def _caller(caller: Caller) -> tuple[object, ...]:
    if caller.ended:
        return (caller.cancelled,)
    for now, value, error in caller.inputs:
        caller.history = hash((caller.history, now, _input(value), _error(error)))
    caller.inputs.clear()
    over = caller.visit if caller.visit is not None and caller.visit.is_over else caller
    pending = _input(over.value), _error(over.error)
    return caller.history, caller.point, caller.until_us, caller.cancelled, caller.heir, caller.missed, pending


def _error(error: BaseException | None) -> object:
    return type(error), getattr(error, "asked", None)


def _input(value: Any) -> object:
    record = getattr(value, "record", None)
    if record is not None:
        return type(value), _record(record), getattr(value, "in_doubt", None)
    if type(value) in (int, float, str, type(None)):
        return value
    return type(value), getattr(value, "remaining_us", None), getattr(value, "now_us", None), _first(value)


def _first(value: Any) -> object:
    at = getattr(value, "at_us", None)
    return at if at is not None else getattr(value, "count", None)
