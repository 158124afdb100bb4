"""Whether the ledger holds: judged from the ledger, the callers' receipts and the records, and from nothing else.

What always holds: a payment is good only if there is exactly one charge of it, every caller has an answer, and every
answer is that charge. What is missing counts against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from semel.core.record import Record, Status
from semel_lab.demo.ledger import Entry
from semel_lab.demo.state import Kill, PaymentView


@dataclass(frozen=True, slots=True)
class Row:
    """One payment at the end; `faults` is empty where all is well."""

    payment: str
    amount: str
    asked: int
    asked_again: int
    ran: int
    replayed: int
    attempts: int
    charges: int
    recognised: int
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of it all. `faults` are those of no single payment."""

    rows: tuple[Row, ...]
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether everything is as promised."""
        return not self.faults and not any(row.faults for row in self.rows)


def judge(
    views: Iterable[PaymentView],
    ledger: Sequence[Entry],
    records: Mapping[str, Record | None],
    kill: Kill | None,
    duplicates: int,
) -> Verdict:
    """Hold the ledger against what the callers were told."""
    rows = tuple(_row(view, ledger, records.get(view.payment.name), duplicates) for view in views)
    known = {row.payment for row in rows}
    strangers = sorted({entry.payment for entry in ledger} - known)
    faults = [f"the ledger has charges of {name}, which nobody asked for" for name in strangers]
    faults += _kill_faults(kill, rows)
    return Verdict(rows, tuple(faults))


def _kill_faults(kill: Kill | None, rows: Sequence[Row]) -> list[str]:
    if kill is None:
        return ["no worker was killed, so nothing was shown"]
    hit = next((row for row in rows if row.payment == kill.payment), None)
    if hit is None or hit.attempts <= kill.attempt:
        return [f"the kill of {kill.worker} did not hit the handler of {kill.payment}, so nothing was shown"]
    return []


def _row(view: PaymentView, ledger: Sequence[Entry], record: Record | None, duplicates: int) -> Row:
    mine = [entry for entry in ledger if entry.payment == view.payment.name]
    charges = [entry for entry in mine if entry.kind == "charge"]
    return Row(
        payment=view.payment.name,
        amount=str(view.payment.amount),
        asked=view.asked,
        asked_again=view.asked_again,
        ran=view.ran,
        replayed=view.replayed,
        attempts=0 if record is None else record.attempts,
        charges=len(charges),
        recognised=len(mine) - len(charges),
        faults=tuple(_faults(view, charges, record, duplicates)),
    )


def _faults(view: PaymentView, charges: Sequence[Entry], record: Record | None, duplicates: int) -> Iterable[str]:
    if len(charges) != 1:
        yield f"{len(charges)} charges"
    if any(entry.amount != str(view.payment.amount) for entry in charges):
        yield "charged another amount"
    receipts = set(view.answers.values())
    if len(receipts) > 1:
        yield f"{len(receipts)} different receipts"
    if not receipts <= {entry.charge for entry in charges}:
        yield "a receipt that is not in the ledger"
    if view.errors:
        yield f"{len(view.errors)} callers got an error ({next(iter(view.errors.values()))})"
    if len(view.answers) + len(view.errors) < duplicates:
        yield f"{duplicates - len(view.answers) - len(view.errors)} callers without an answer"
    if record is None or record.status is not Status.COMPLETED:
        yield "no completed record"
