"""Plans of the SQLite store: its claims, which read before they write; everything else is the shared plan.

- A claim is decided by one statement. A list of claims is looked up before its first write only to spare the write lock
  where nothing can be won.
- A joined claim goes straight to the write, whose lock also keeps others out, and sets a savepoint in the caller's
  transaction, so that the end of the transaction is noticed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, cast

from msgspec.structs import replace

from semel.core.claim_rules import MayWrite, granted, judge
from semel.core.operations import Answer, Claim, ClaimAnswer, Granted, Operation, Read, Running
from semel.core.operators.audit import AppendEntry
from semel.core.record import NOTHING, StoredRecord
from semel.core.store import Answers, Plan
from semel.stores.rows import new_record
from semel.stores.search import term_numbers
from semel.stores.sql.batch.plan import BATCH_OPERATIONS, plan_batch
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.errors import other_database
from semel.stores.sql.plan import TRY_AGAIN_US, one_by_one, read_record, with_steps
from semel.stores.sql.plan import plan as shared_plan
from semel.stores.sqlite.commands import SqliteCommand
from semel.stores.sqlite.dialect import DIALECT, SQL, claim_command, read_many_command
from semel.stores.sqlite.errors import WriteLocked

Claiming = Generator[Command, Any, ClaimAnswer]


def plan(operations: Sequence[Operation], *, joined: bool) -> Plan:
    """The commands for `operations`, all of one kind."""
    kind = type(operations[0]) if operations else None
    if kind is Claim:
        claims = cast("Sequence[Claim]", operations)
        return claim_joined(claims) if joined else claim_all(claims)
    if kind in BATCH_OPERATIONS:
        return plan_batch(DIALECT.batch, operations, joined=joined, plan_records=plan)
    if len(operations) > 1 and (joined or kind not in (Read, AppendEntry)):
        return one_by_one(DIALECT, operations, joined=joined)
    return shared_plan(DIALECT, operations, joined=joined)


def claim_all(claims: Sequence[Claim]) -> Plan:
    """Claims on the store's own connections: look all of them up, then write for those that may win."""
    try:
        rows, _, now = yield read_many_command([claim.key.digest for claim in claims])
    except Exception as error:  # noqa: BLE001 - it failed all of them
        return [error] * len(claims)
    by_digest = {row[0]: row for row in rows}
    verdicts: list[MayWrite | Answer | Exception | None] = []
    for claim in claims:
        row = by_digest.get(claim.key.digest)
        try:
            verdicts.append(
                None if row is None else judge((yield from with_steps(DIALECT, row, joined=False)), claim, now)
            )
        except Exception as error:  # noqa: BLE001 - an error of one claim is its answer alone
            verdicts.append(error)
    answers: Answers = []
    for claim, verdict in zip(claims, verdicts, strict=True):
        try:
            if verdict is None:
                answers.append((yield from _claim_first(claim)))
            elif isinstance(verdict, MayWrite):
                answers.append((yield from _claim_one(claim, joined=False)))
            else:
                answers.append(verdict)
        except Exception as error:  # noqa: BLE001 - as above
            answers.append(error)
    return answers


def claim_joined(claims: Sequence[Claim]) -> Plan:
    """Claims in the caller's transaction."""
    answers: Answers = []
    for claim in claims:
        try:
            answers.append((yield from _claim_one(claim, joined=True)))
        except Exception as error:  # noqa: BLE001 - an error of one claim is its answer alone
            answers.append(error)
    return answers


def _claim_first(claim: Claim) -> Claiming:
    lease_us = claim.terms.lease_us
    _, won, now = yield claim_command("claim_first", claim, lease_us=lease_us)
    if won:
        if claim.about is not NOTHING:
            yield from keep_terms(claim)
        return granted(new_record(claim, now, lease_us=lease_us))
    return (yield from _claim_one(claim, joined=False))


def _claim_one(claim: Claim, *, joined: bool) -> Claiming:
    """One claim, without a look beforehand.

    Raises:
        NotInTransaction: the caller's connection leads to another database.
    """
    lease_us = 0 if joined else claim.terms.lease_us  # inside a transaction there is no lease
    try:
        won, _, now = yield claim_command("claim_joined" if joined else "claim", claim, lease_us=lease_us)
    except WriteLocked:
        if joined:
            return Running(TRY_AGAIN_US)  # who writes now may be writing this very key
        raise
    if won and (won[0][0] > 1 or claim.about is not NOTHING):
        yield from keep_terms(claim, drops=won[0][0] > 1)
    if won and won[0][0] == 1:
        answer: MayWrite | ClaimAnswer = granted(new_record(claim, now, lease_us=lease_us))
    elif won:
        answer = granted((yield from _read_claimed(claim.key.digest, joined=joined)))
    else:
        answer = judge((yield from read_record(DIALECT, claim.key.digest, joined=joined)), claim, now)
    if isinstance(answer, MayWrite):
        raise other_database() if joined else AssertionError(f"refused by the statement, {answer.how} by the rules")
    if isinstance(answer, Granted) and joined:
        name = f"semel_{claim.nonce.hex()}"
        yield DIALECT.set_savepoint(name)
        return replace(answer, transaction=name)
    return answer


def keep_terms(claim: Claim, *, drops: bool = False) -> Generator[Command, Any, None]:
    """Keep what a record is searched by, and no longer what was said of it before."""
    if drops:
        yield SqliteCommand(SQL["drop_terms"], named={"digest": claim.key.digest})
    for number in term_numbers(claim.about):
        yield SqliteCommand(SQL["keep_term"], named={"digest": claim.key.digest, "term": number})


def _read_claimed(digest: bytes, *, joined: bool) -> Generator[Command, Any, StoredRecord]:
    ((*columns, _),) = yield DIALECT.read([digest], joined=joined)
    row: Row = tuple(columns)
    if not row[-1]:  # perhaps a new life, which has nothing to do with the steps of the old one
        yield SqliteCommand(SQL["forget_steps"], named={"digest": digest})
    return (yield from with_steps(DIALECT, row, joined=joined))
