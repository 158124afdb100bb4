"""Plans: each operation as the commands that carry it out, without colour and without a connection.

What always holds: a plan answers each operation as the memory store's table would; an error of one operation is its
answer. Every write under a lease shows it, and one that changed nothing is looked at again: sent a second time after a
lost reply it gets the answer of the first.

Plans that read: a record by its digest, its finished steps where it has any, and pages of records.

What always holds: a joined reading gives the same as any other, whatever factories and converters the caller has set.

Plans that claim: who runs, decided by one statement.

What always holds: a list of claims is looked up at once before its first write. That decides nothing, it spares the
write lock where nothing can be won. A joined claim goes straight to the write, whose lock is also what keeps others
out, and marks the caller's transaction, so that its end is noticed.

Plans that erase, and that keep account of what caches have to forget.

What always holds: a record, its finished steps and the note for the caches change in one transaction, and only if the
record is settled then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

from msgspec.structs import replace

from semel.core.claim_rules import Winnable, granted, judge
from semel.core.operations import (
    Answer,
    Awaiting,
    Checkpoint,
    Claim,
    ClaimAnswer,
    Complete,
    Confirm,
    Enter,
    Entered,
    Erase,
    Erased,
    Fail,
    Found,
    Granted,
    Held,
    Invalidate,
    Invalidation,
    Lapse,
    Lost,
    Operation,
    Page,
    Pending,
    Purge,
    Read,
    Recorded,
    Renew,
    Resolve,
    Resolved,
    Running,
    Scan,
    Swept,
    Tally,
    Unresolvable,
)
from semel.core.record import ERASED_FAILURE, ERASED_OUTCOME, LEASE_ENDED, Failure, Lease, Record, Status
from semel.core.store import Answers, Plan
from semel.errors import NotInTransaction
from semel.stores.errors import not_inside
from semel.stores.rows import new_record, record_of, steps_of, storable, stored_failure
from semel.stores.sqlite.errors import WriteLocked
from semel.stores.sqlite.statements import (
    SQL,
    Command,
    Kind,
    Reply,
    Row,
    blob,
    claiming,
    release,
    savepoint,
    scan_command,
    seen_many,
    texts_decoded,
)

Part = Generator[Command, Reply, Any]
"""What a plan does for one operation; returns its answer."""


def row_at(digest: bytes, *, joined: bool) -> Generator[Command, Reply, tuple[Row | None, int]]:
    """The row of a record, None where there is none, and the instant of the look."""
    rows, _, now = yield Command(Kind.READ, SQL["seen_joined" if joined else "seen"], {"digest": digest})
    if not rows:
        return None, now
    return (texts_decoded(rows[0]) if joined else rows[0]), now


def row_of(digest: bytes, *, joined: bool) -> Generator[Command, Reply, Row | None]:
    """The row of a record."""
    row, _ = yield from row_at(digest, joined=joined)
    return row


def whole(row: Row, *, joined: bool) -> Generator[Command, Reply, Record]:
    """The record that a row stands for, with its finished steps."""
    if not row[-1]:
        return record_of(row)
    steps, _, _ = yield Command(Kind.READ, SQL["steps_joined" if joined else "steps"], {"digest": row[0]})
    if joined:
        steps = [(position, name.decode(), outcome) for position, name, outcome in steps]
    return record_of(row, steps_of(steps))


def record_at(digest: bytes, *, joined: bool) -> Generator[Command, Reply, Record | None]:
    """The record under a digest, with its finished steps."""
    row = yield from row_of(digest, joined=joined)
    return None if row is None else (yield from whole(row, joined=joined))


def read(operation: Read, *, joined: bool) -> Part:
    """Answers `Read`."""
    row, now = yield from row_at(operation.digest, joined=joined)
    return Found(None if row is None else (yield from whole(row, joined=joined)), now)


def scan(operation: Scan, *, joined: bool) -> Part:
    """Answers `Scan`."""
    del joined  # only ever asked of the store itself
    command = scan_command(operation)
    if command is None:
        return Page((), None)
    rows, _, _ = yield command
    records: list[Record] = []
    for row in rows[: operation.limit]:
        records += [(yield from whole(row, joined=False))]
    last = records[-1] if len(rows) > operation.limit else None
    return Page(tuple(records), None if last is None else (last.created_us, last.key.digest))


_TRY_AGAIN_US = 50_000


def claim_all(claims: Sequence[Claim]) -> Plan:
    """Claims on the store's own connections: look all of them up, then write for those that may win."""
    try:
        rows, _, now = yield seen_many([claim.key.digest for claim in claims])
    except Exception as error:  # noqa: BLE001 - it befell all of them
        return [error] * len(claims)
    by_digest = {row[0]: row for row in rows}
    verdicts: list[Winnable | Answer | Exception | None] = []
    for claim in claims:
        row = by_digest.get(claim.key.digest)
        try:
            verdicts.append(None if row is None else judge((yield from whole(row, joined=False)), claim, now))
        except Exception as error:  # noqa: BLE001 - what befalls one claim is its answer, not its neighbours'
            verdicts.append(error)
    answers: Answers = []
    for claim, verdict in zip(claims, verdicts, strict=True):
        try:
            if verdict is None:
                answers.append((yield from _claim_first(claim)))
            elif isinstance(verdict, Winnable):
                answers.append((yield from claim_one(claim, joined=False)))
            else:
                answers.append(verdict)
        except Exception as error:  # noqa: BLE001 - as above
            answers.append(error)
    return answers


def _claim_first(claim: Claim) -> Generator[Command, Reply, ClaimAnswer]:
    lease_us = claim.terms.lease_us
    _, won, now = yield claiming("claim_first", claim, lease_us=lease_us)
    if won:
        return granted(new_record(claim, now, lease_us=lease_us))
    return (yield from claim_one(claim, joined=False))


def claim_one(claim: Claim, *, joined: bool) -> Generator[Command, Reply, ClaimAnswer]:
    """One claim, without a look beforehand.

    Raises:
        NotInTransaction: the caller's connection leads to another database.
    """
    lease_us = 0 if joined else claim.terms.lease_us  # inside a transaction there is no lease
    try:
        won, _, now = yield claiming("claim_joined" if joined else "claim", claim, lease_us=lease_us)
    except WriteLocked:
        if joined:
            return Running(_TRY_AGAIN_US)  # who writes now may be writing this very key
        raise
    if won and won[0][0] == 1:
        answer: Winnable | ClaimAnswer = granted(new_record(claim, now, lease_us=lease_us))
    elif won:
        answer = granted((yield from _claimed_again(claim.key.digest, joined=joined)))
    else:
        answer = judge((yield from record_at(claim.key.digest, joined=joined)), claim, now)
    if isinstance(answer, Winnable):
        raise other_database() if joined else AssertionError(f"refused by the statement, {answer.how} by the rules")
    if isinstance(answer, Granted) and joined:
        name = f"semel_{claim.nonce.hex()}"
        yield savepoint(name)
        return replace(answer, transaction=name)
    return answer


def _claimed_again(digest: bytes, *, joined: bool) -> Generator[Command, Reply, Record]:
    row = cast("Row", (yield from row_of(digest, joined=joined)))
    if not row[-1]:  # perhaps a new life, which has nothing to do with the steps of the old one
        yield Command(Kind.WRITE, SQL["forget_steps"], {"digest": digest})
    return (yield from whole(row, joined=joined))


def other_database() -> NotInTransaction:
    """The error for a connection whose database has another install_id."""
    return NotInTransaction(
        "The connection given to within() leads to another database than the store's; nothing ran. "
        "Give a connection to the same file."
    )


def erase(operation: Erase, *, joined: bool) -> Part:
    """Answers `Erase`."""
    if joined:
        raise not_inside("erase")
    place = {"digest": blob(operation.digest)}
    values = {
        **place,
        "note": storable(operation.note),
        "tombstone": blob(ERASED_OUTCOME),
        "error_type": ERASED_FAILURE.type,
        "error_message": ERASED_FAILURE.message,
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
