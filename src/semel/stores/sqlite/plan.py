"""Plans: each operation as the commands that carry it out, without colour and without a connection.

What always holds: a plan answers each operation as the memory store's table would; an error of one operation is its
answer. Before its first write a list of claims is looked up at once: that decides nothing, it spares the write lock
where nothing can be won. Joined plans go straight to the write, whose lock is also what keeps others waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

from msgspec.structs import replace

from semel.core.arbitration import Winnable, granted, judge
from semel.core.operations import (
    Answer,
    Checkpoint,
    Claim,
    ClaimAnswer,
    Complete,
    Enter,
    Entered,
    Fail,
    Found,
    Granted,
    Held,
    Lapse,
    Lost,
    Operation,
    Page,
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
from semel.core.record import Failure, Lease, Record, Status
from semel.core.store import Answers, Plan
from semel.errors import NotInTransaction
from semel.stores.memory.table import LEASE_ENDED
from semel.stores.sql import claim_values, new_record, record_of, steps_of, storable, stored_failure
from semel.stores.sqlite.commands import SQL, Command, Kind, Reply, Row, release, savepoint, seen_many, texts_decoded
from semel.stores.sqlite.scan import scan_command
from semel.stores.sqlite.translate import WriteLocked

Part = Generator[Command, Reply, Any]
_TRY_AGAIN_US = 50_000


def plan(operations: Sequence[Operation], *, joined: bool) -> Plan:
    """The commands for `operations`, all of one kind."""
    if operations and isinstance(operations[0], Claim) and not joined:
        return (yield from _claims(cast("Sequence[Claim]", operations)))
    answers: Answers = []
    for operation in operations:
        answers.append((yield from _answered(_PARTS[type(operation)](operation, joined=joined))))
    return answers


def _answered(part: Part) -> Generator[Command, Reply, Any]:
    try:
        return (yield from part)
    except Exception as error:  # noqa: BLE001 - whatever befell this operation is its answer, not its neighbours'
        return error


# ---------------------------------------------------------------- claims


def _claims(claims: Sequence[Claim]) -> Plan:
    answers: dict[int, Answer | Exception] = {}
    try:
        rows, _, now = yield seen_many([claim.key.digest for claim in claims])
    except Exception as error:  # noqa: BLE001 - it befell all of them
        return [error] * len(claims)
    by_digest = {row[0]: row for row in rows}
    for place, claim in enumerate(claims):
        row = by_digest.get(claim.key.digest)
        if row is not None:
            verdict = yield from _answered(_judged(row, claim, now))
            if not isinstance(verdict, Winnable):
                answers[place] = verdict
    for place, claim in enumerate(claims):
        if place not in answers:
            answers[place] = yield from _answered(_claim(claim, joined=False))
    return [answers[place] for place in range(len(claims))]


def _judged(row: Row, claim: Claim, now: int) -> Part:
    record = yield from _whole(row, joined=False)
    return judge(record, claim, now)


def _claim(claim: Claim, *, joined: bool) -> Generator[Command, Reply, ClaimAnswer]:
    lease_us = 0 if joined else claim.terms.lease_us  # inside a transaction there is no lease
    kind = Kind.ENTER if joined else Kind.WRITE
    try:
        won, _, now = yield Command(kind, SQL["claim"], claim_values(claim, lease_us=lease_us))
    except WriteLocked:
        if joined:
            return Running(_TRY_AGAIN_US)  # who writes now may be writing this very key
        raise
    if won and won[0][0] == 1:
        answer: Winnable | ClaimAnswer = granted(new_record(claim, now, lease_us=lease_us))
    elif won:
        answer = granted((yield from _claimed_again(claim.key.digest, joined=joined)))
    else:
        answer = judge((yield from _record(claim.key.digest, joined=joined)), claim, now)
    if isinstance(answer, Winnable):
        raise _not_ours(answer, joined=joined)
    if isinstance(answer, Granted) and joined:
        name = f"semel_{claim.nonce.hex()}"
        yield savepoint(name)
        return replace(answer, transaction=name)
    return answer


def _claimed_again(digest: bytes, *, joined: bool) -> Generator[Command, Reply, Record]:
    row = cast("Row", (yield from _row(digest, joined=joined)))
    if not row[-1]:  # perhaps a new life, which has nothing to do with the steps of the old one
        yield Command(Kind.WRITE, SQL["forget_steps"], {"digest": digest})
    return (yield from _whole(row, joined=joined))


def _not_ours(winnable: Winnable, *, joined: bool) -> Exception:
    if joined:
        return NotInTransaction(
            "The connection given to within() leads to another database than the store's; nothing ran. "
            "Give a connection to the same file."
        )
    return RuntimeError(f"the claim was refused although {winnable.how} is winnable: the database was exchanged")


# ---------------------------------------------------------------- reading


def _row_at(digest: bytes, *, joined: bool) -> Generator[Command, Reply, tuple[Row | None, int]]:
    rows, _, now = yield Command(Kind.READ, SQL["seen_joined" if joined else "seen"], {"digest": digest})
    if not rows:
        return None, now
    return (texts_decoded(rows[0]) if joined else rows[0]), now


def _row(digest: bytes, *, joined: bool) -> Generator[Command, Reply, Row | None]:
    row, _ = yield from _row_at(digest, joined=joined)
    return row


def _whole(row: Row, *, joined: bool) -> Generator[Command, Reply, Record]:
    if not row[-1]:
        return record_of(row)
    steps, _, _ = yield Command(Kind.READ, SQL["steps_joined" if joined else "steps"], {"digest": row[0]})
    if joined:
        steps = [(position, name.decode(), outcome) for position, name, outcome in steps]
    return record_of(row, steps_of(steps))


def _record(digest: bytes, *, joined: bool) -> Generator[Command, Reply, Record | None]:
    row = yield from _row(digest, joined=joined)
    return None if row is None else (yield from _whole(row, joined=joined))


def _read(operation: Read, *, joined: bool) -> Part:
    row, now = yield from _row_at(operation.digest, joined=joined)
    return Found(None if row is None else (yield from _whole(row, joined=joined)), now)


def _scan(operation: Scan, *, joined: bool) -> Part:
    del joined  # only ever asked of the store itself
    command = scan_command(operation)
    if command is None:
        return Page((), None)
    rows, _, _ = yield command
    records: list[Record] = []
    for row in rows[: operation.limit]:
        records += [(yield from _whole(row, joined=False))]
    last = records[-1] if len(rows) > operation.limit else None
    return Page(tuple(records), None if last is None else (last.created_us, last.key.digest))


# ---------------------------------------------------------------- writing under a lease


def _shown(lease: Lease, **values: Any) -> dict[str, Any]:
    return {"digest": lease.key.digest, "nonce": lease.nonce, "fence": lease.fence, **values}


def _owned(lease: Lease, *, joined: bool) -> Generator[Command, Reply, Record | None]:
    """The record, if `lease` is its current one: asked only after a write that changed nothing."""
    row = yield from _row(lease.key.digest, joined=joined)
    record = None if row is None else record_of(row)
    return record if record and record.nonce == lease.nonce and record.fence == lease.fence else None


def _released(lease: Lease, *, joined: bool) -> Generator[Command, Reply, None]:
    if joined and lease.transaction:
        yield release(lease.transaction)


def _renew(operation: Renew, *, joined: bool) -> Part:
    del joined
    values = _shown(operation.lease, lease_us=operation.lease_us)
    _, changed, now = yield Command(Kind.WRITE, SQL["renew"], values)
    return Held(now + operation.lease_us) if changed else Lost()


def _complete(operation: Complete, *, joined: bool) -> Part:
    lease = operation.lease
    yield from _released(lease, joined=joined)
    _, changed, now = yield Command(Kind.WRITE, SQL["complete"], _shown(lease, outcome=operation.outcome))
    if changed:
        return Recorded(now)
    record = yield from _owned(lease, joined=joined)
    if record is None or record.status is not Status.COMPLETED:
        return Lost()
    return Recorded(record.completed_us or now)  # the same completion again, after its reply was lost


def _fail(operation: Fail, *, joined: bool) -> Part:
    lease, error = operation.lease, stored_failure(operation.error)
    yield from _released(lease, joined=joined)
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
    yield from _released(lease, joined=joined)
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
            raise _not_ours(Winnable("absent"), joined=joined)
        return Lost()
    name = f"semel_step_{lease.nonce.hex()}"
    yield savepoint(name)
    return Entered(name)


# ---------------------------------------------------------------- decisions and the sweep


def _resolve(operation: Resolve, *, joined: bool) -> Part:
    values = {
        "digest": operation.digest,
        "nonce": operation.nonce,
        "status": operation.status.value,
        "outcome": operation.outcome,
        "note": storable(operation.note),
    }
    yield Command(Kind.WRITE, SQL["resolve"], values)
    record = yield from _record(operation.digest, joined=joined)
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
    Claim: _claim,
    Renew: _renew,
    Complete: _complete,
    Fail: _fail,
    Checkpoint: _checkpoint,
    Enter: _enter,
    Read: _read,
    Scan: _scan,
    Resolve: _resolve,
    Purge: _purge,
    Lapse: _lapse,
    Tally: _tally,
}
