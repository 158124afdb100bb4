"""The verdict of the demo: what makes the ledger hold, and everything that makes it fail."""

from dataclasses import replace
from decimal import Decimal

import msgspec
import pytest

from semel import Record
from semel_lab.demo.check import Verdict, judge
from semel_lab.demo.ledger import Entry
from semel_lab.demo.scenario import Payment, story
from semel_lab.demo.state import Kill, PaymentView
from semel_lab.demo.view import conclusion
from tests.cli.conftest import Database

PAYMENT = Payment("pay-1", Decimal("10.00"), 0, 0, 0, fateful=True)
KILL = Kill("w1", 4711, "pay-1", 1)
CHARGE = Entry("charge", "ch_1", "key", "pay-1", "10.00", "w1", 1, 0.0)
AGAIN = Entry("recognised", "ch_1", "key", "pay-1", "10.00", "w2", 2, 1.0)


def view(*charges: str, errors: dict[int, str] | None = None) -> PaymentView:
    answers = dict(enumerate(charges))
    return PaymentView(PAYMENT, asked=3, ran_by=["w1", "w2"], replayed=2, answers=answers, errors=errors or {})


GOOD = view("ch_1", "ch_1", "ch_1")


@pytest.fixture
def record(database: Database) -> Record:
    """A completed record of two attempts."""
    return msgspec.structs.replace(database.completed("pay-1"), attempts=2)


def verdict(of: PaymentView, ledger: list[Entry], record: Record | None, kill: Kill | None = KILL) -> Verdict:
    return judge([of], ledger, {"pay-1": record}, kill, duplicates=3)


def test_one_charge_and_one_receipt_hold(record: Record) -> None:
    good = verdict(GOOD, [CHARGE, AGAIN], record)
    assert good.holds
    [row] = good.rows
    assert (row.asked, row.ran, row.replayed, row.attempts, row.charges, row.recognised) == (3, 2, 2, 2, 1, 1)
    assert "The ledger holds" in conclusion(good)[-1].plain


def changed(entry: Entry, **changes: str) -> Entry:
    return msgspec.structs.replace(entry, **changes)


@pytest.mark.parametrize(
    ("ledger", "of", "fault"),
    [
        ([], GOOD, "0 charges"),
        ([CHARGE, changed(CHARGE, charge="ch_2", key="another")], GOOD, "2 charges"),
        ([changed(CHARGE, amount="11.00")], GOOD, "another amount"),
        ([CHARGE], view("ch_1", "ch_1", "ch_2"), "2 different receipts"),
        ([CHARGE], view("ch_2", "ch_2", "ch_2"), "not in the ledger"),
        ([CHARGE], view("ch_1", "ch_1"), "1 callers without an answer"),
        ([CHARGE], view("ch_1", "ch_1", errors={2: "in_progress: busy"}), "in_progress: busy"),
    ],
)
def test_anything_else_does_not_hold(ledger: list[Entry], of: PaymentView, fault: str, record: Record) -> None:
    bad = verdict(of, ledger, record)
    assert not bad.holds
    assert fault in "; ".join(bad.rows[0].faults)
    assert "does not hold" in conclusion(bad)[-1].plain


def test_a_missing_record_does_not_hold() -> None:
    assert not verdict(GOOD, [CHARGE], None).holds


def test_a_charge_nobody_asked_for_does_not_hold(record: Record) -> None:
    bad = verdict(GOOD, [CHARGE, changed(CHARGE, payment="pay-9", key="other")], record)
    assert "pay-9" in "; ".join(bad.faults)


def test_without_a_kill_nothing_is_shown(record: Record) -> None:
    assert not verdict(GOOD, [CHARGE], record, kill=None).holds


def test_a_kill_that_missed_the_handler_shows_nothing(record: Record) -> None:
    assert not verdict(GOOD, [CHARGE], record, kill=replace(KILL, attempt=2)).holds


def test_the_same_seed_tells_the_same_story() -> None:
    numbers = {"payments": 6, "workers": 4, "duplicates": 50}
    assert story(**numbers, seed=3) == story(**numbers, seed=3)
    assert story(**numbers, seed=3) != story(**numbers, seed=4)


@pytest.mark.parametrize("payments", [1, 2, 3, 6, 99])
def test_one_payment_of_every_story_is_fateful(payments: int) -> None:
    for seed in range(50):
        told = story(payments=payments, workers=2, duplicates=1, seed=seed)
        assert [payment.name for payment in told.payments if payment.fateful] == [told.fateful.name]
