"""Plans: each operation as the commands that carry it out, without colour and without a connection.

What always holds: a plan answers each operation as the memory store's table would; an error of one operation is its
answer. Every write under a lease shows it, and one that changed nothing is looked at again: sent a second time after a
lost reply it gets the answer of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

from semel.core.operations import (
    Checkpoint,
    Claim,
    Complete,
    Confirm,
    Enter,
    Entered,
    Erase,
    Fail,
    Held,
    Invalidate,
    Lapse,
    Lost,
    Operation,
    Pending,
    Purge,
    Read,
    Recorded,
    Renew,
    Resolve,
    Resolved,
    Scan,
    Swept,
    Tally,
    Unresolvable,
)
from semel.core.record import LEASE_ENDED, Failure, Lease, Record, Status
from semel.core.store import Answers, Plan
from semel.stores.sql import record_of
from semel.stores.sqlite.claims import claim_all, claim_one, other_database
from semel.stores.sqlite.commands import SQL, Command, Kind, Reply, blob, release, savepoint
from semel.stores.sqlite.erasing import confirm, erase, invalidate, pending
from semel.stores.sqlite.reading import Part, read, record_at, row_of, scan
from semel.stores.storable import storable, stored_failure


def plan(operations: Sequence[Operation], *, joined: bool) -> Plan:
    """The commands for `operations`, all of one kind."""
    if operations and isinstance(operations[0], Claim) and not joined:
        return (yield from claim_all(cast("Sequence[Claim]", operations)))
    answers: Answers = []
    for operation in operations:
        part = _PARTS[type(operation)](operation, joined=joined)
        try:
            answers.append((yield from part))
        except Exception as error:  # noqa: BLE001 - what befalls one operation is its answer, not its neighbours'
            answers.append(error)
    return answers


def _shown(lease: Lease, **values: Any) -> dict[str, Any]:
    return {"digest": blob(lease.key.digest), "nonce": blob(lease.nonce), "fence": lease.fence, **values}


def _owned(lease: Lease, *, joined: bool) -> Generator[Command, Reply, Record | None]:
    """The record, if `lease` is its current one: asked only after a write that changed nothing."""
    row = yield from row_of(lease.key.digest, joined=joined)
    record = None if row is None else record_of(row)
    return record if record and record.nonce == lease.nonce and record.fence == lease.fence else None


def _renew(operation: Renew, *, joined: bool) -> Part:
    del joined
    values = _shown(operation.lease, lease_us=operation.lease_us)
    _, changed, now = yield Command(Kind.WRITE, SQL["renew"], values)
    return Held(now + operation.lease_us) if changed else Lost()


def _complete(operation: Complete, *, joined: bool) -> Part:
    lease = operation.lease
    if joined and lease.transaction:
        yield release(lease.transaction)
    _, changed, now = yield Command(Kind.WRITE, SQL["complete"], _shown(lease, outcome=blob(operation.outcome)))
    if changed:
        return Recorded(now)
    record = yield from _owned(lease, joined=joined)
    if record is None or record.status is not Status.COMPLETED:
        return Lost()
    return Recorded(record.completed_us or now)  # the same completion again, after its reply was lost


def _fail(operation: Fail, *, joined: bool) -> Part:
    lease, error = operation.lease, stored_failure(operation.error)
    if joined and lease.transaction:
        yield release(lease.transaction)
    values = _shown(lease, **_failure(error), doubtful=operation.doubtful, unstarted=not operation.started)
    if operation.ending == "doubt":
        command = Command(Kind.WRITE, SQL["doubt"], values)
    else:
        command = Command(Kind.WRITE, SQL["fail"], {**values, "retryable": operation.ending == "retry"})
    _, changed, now = yield command
    if changed:
        return Recorded(now)
    record = yield from _owned(lease, joined=joined)
    if record is None or record.status in (Status.RUNNING, Status.COMPLETED) or record.error != error:
        return Lost()
    return Recorded(record.updated_us)  # the same end again, after its reply was lost


def _failure(error: Failure) -> dict[str, str]:
    return {"error_type": error.type, "error_message": error.message}


def _checkpoint(operation: Checkpoint, *, joined: bool) -> Part:
    lease, step = operation.lease, operation.step
    if joined and lease.transaction:
        yield release(lease.transaction)
    values = _shown(lease, position=step.index, name=storable(step.name), outcome=step.outcome)
    _, added, now = yield Command(Kind.WRITE, SQL["checkpoint"], values)
    if added:
        yield Command(Kind.WRITE, SQL["count_step"], _shown(lease, at=now))
        return Recorded(now)
    record = yield from _owned(lease, joined=joined)
    return Recorded(now) if record and record.status is Status.RUNNING else Lost()


def _enter(operation: Enter, *, joined: bool) -> Part:
    lease = operation.lease
    if not joined:
        return Lost()  # there is no transaction to enter
    _, changed, _ = yield Command(Kind.ENTER, SQL["enter"], _shown(lease))
    if not changed:
        record = yield from _owned(lease, joined=joined)
        if record and record.status is Status.RUNNING:
            raise other_database()  # all but the install_id was right
        return Lost()
    name = f"semel_step_{lease.nonce.hex()}"
    yield savepoint(name)
    return Entered(name)


def _resolve(operation: Resolve, *, joined: bool) -> Part:
    values = {
        "digest": operation.digest,
        "nonce": operation.nonce,
        "status": operation.status.value,
        "outcome": operation.outcome,
        "note": storable(operation.note),
        "corrects": operation.corrects,
    }
    yield Command(Kind.WRITE, SQL["resolve"], values)
    record = yield from record_at(operation.digest, joined=joined)
    if record is None or record.nonce != operation.nonce:
        return Unresolvable(record)
    return Resolved(record)  # by this command, or by the same one before its reply was lost


def _purge(operation: Purge, *, joined: bool) -> Part:
    del joined
    gone, _, _ = yield Command(Kind.WRITE, SQL["purge"], {"limit": max(operation.limit, 0)})
    for digest, steps in gone:
        if steps:
            yield Command(Kind.WRITE, SQL["forget_steps"], {"digest": digest})
    return Swept(len(gone))


def _lapse(operation: Lapse, *, joined: bool) -> Part:
    del joined
    values = {"limit": max(operation.limit, 0), **_failure(LEASE_ENDED)}
    _, changed, _ = yield Command(Kind.WRITE, SQL["lapse"], values)
    return Swept(changed)


def _tally(operation: Tally, *, joined: bool) -> Part:
    del joined
    values = {"digest": operation.digest, "replays": operation.replays}
    _, _, now = yield Command(Kind.WRITE, SQL["tally"], values)
    return Recorded(now)


_PARTS: dict[type, Callable[..., Part]] = {
    Claim: claim_one,
    Renew: _renew,
    Complete: _complete,
    Fail: _fail,
    Checkpoint: _checkpoint,
    Enter: _enter,
    Read: read,
    Scan: scan,
    Resolve: _resolve,
    Erase: erase,
    Invalidate: invalidate,
    Pending: pending,
    Confirm: confirm,
    Purge: _purge,
    Lapse: _lapse,
    Tally: _tally,
}
