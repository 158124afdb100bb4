"""Plans that claim: who runs, decided by one statement for the whole list.

What always holds: the statement answers with the row as it is after it, so what a claim met is judged on the very row
that refused it. The same key twice in a list is sent once; the second is judged by what the first met. A joined claim
has no lease, and notes the name of the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from msgspec.structs import replace

from semel.core.arbitration import Winnable, granted, judge
from semel.core.operations import Answer, Claim, ClaimAnswer, Granted, Running
from semel.core.record import Record, Status
from semel.core.store import Plan
from semel.errors import StoreUnavailable
from semel.stores.served.command import Command, Row
from semel.stores.served.dialect import Dialect
from semel.stores.served.troubles import other_database
from semel.stores.sql import record_of, steps_of

TRY_AGAIN_US: Final = 50_000
_ROUNDS: Final = 5
Judged = Answer | Exception | None
"""None: to be sent (again)."""


def claims(dialect: Dialect, asked: Sequence[Claim], *, joined: bool) -> Plan:
    """Send what can be sent together; whoever was refused by a row that has changed since is sent again."""
    answers: list[Judged] = [None] * len(asked)
    for turn in range(_ROUNDS):
        open_ = [place for place, answer in enumerate(answers) if answer is None]
        if not open_:
            break
        first = {asked[place].key.digest: place for place in reversed(open_)}
        rows = yield dialect.claim([asked[place] for place in first.values()], joined=joined, first=turn == 0)
        if joined and not rows and turn:
            raise other_database()
        by_digest = {row[0]: row for row in rows}
        for place in open_:
            line = by_digest.get(asked[place].key.digest)
            answers[place] = yield from _judged(dialect, asked[place], line, joined=joined)
    return [_unsettled() if answer is None else answer for answer in answers]


def _judged(dialect: Dialect, claim: Claim, line: Row | None, *, joined: bool) -> Generator[Command, list[Row], Judged]:
    if line is None:
        return None
    *columns, now, transaction = line
    row = tuple(columns)
    if row[4] is None:
        return Running(TRY_AGAIN_US)  # an open transaction is writing this very key
    try:
        record = record_of(row)
        if row[-1] and _mine(record, claim):
            record = record_of(
                row, steps_of((yield dialect.steps(record.key.digest, record.created_us, joined=joined)))
            )
        answer = granted(record) if _mine(record, claim) else judge(record, claim, now)
    except Exception as error:  # noqa: BLE001 - what befalls one claim is its answer, not its neighbours'
        return error
    if isinstance(answer, Winnable):
        return None
    return (yield from _noted(dialect, claim, answer, transaction)) if joined else answer


def _mine(record: Record, claim: Claim) -> bool:
    return record.nonce == claim.nonce and record.status is Status.RUNNING


def _noted(
    dialect: Dialect, claim: Claim, answer: ClaimAnswer, transaction: str | None
) -> Generator[Command, list[Row], ClaimAnswer]:
    if not isinstance(answer, Granted):
        return answer
    if transaction is None:
        transaction = f"semel_{claim.nonce.hex()}"
        mark = dialect.mark(transaction)
        if mark is not None:
            yield mark
    return replace(answer, transaction=transaction)


def _unsettled() -> StoreUnavailable:
    return StoreUnavailable("The record changed under every look at it; nothing ran. Try again.", conflict=True)
