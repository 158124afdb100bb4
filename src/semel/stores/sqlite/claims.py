"""Plans that claim: who runs, decided by one statement.

What always holds: a list of claims is looked up at once before its first write. That decides nothing, it spares the
write lock where nothing can be won. A joined claim goes straight to the write, whose lock is also what keeps others
out, and marks the caller's transaction, so that its end is noticed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import cast

from msgspec.structs import replace

from semel.core.arbitration import Winnable, granted, judge
from semel.core.operations import Answer, Claim, ClaimAnswer, Granted, Running
from semel.core.record import Record
from semel.core.store import Answers, Plan
from semel.errors import NotInTransaction
from semel.stores.sqlite.commands import SQL, Command, Kind, Reply, Row, claiming, savepoint, seen_many
from semel.stores.sqlite.reading import record_at, row_of, whole
from semel.stores.sqlite.translate import WriteLocked
from semel.stores.storable import new_record

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
