"""Amounts: exact, above zero, in hundredths. Never a float."""

from decimal import Decimal
from typing import Final

MOST: Final = Decimal("1000000.00")
_CENT: Final = Decimal("0.01")


def check_amount(amount: Decimal, *, may_be_zero: bool = False) -> None:
    """Refuse what is no amount of money.

    Raises:
        ValueError: it is not finite, not above zero, too large, or has more than two digits behind the point.
    """
    if not amount.is_finite() or amount < 0 or (amount == 0 and not may_be_zero):
        raise ValueError("the amount is not above zero")
    if amount > MOST:
        raise ValueError(f"the amount is above {MOST}")
    if amount != amount.quantize(_CENT):
        raise ValueError("the amount has more than two digits behind the point")


def to_cents(amount: Decimal) -> int:
    """The amount in hundredths."""
    return int(amount / _CENT)


def from_cents(cents: int) -> Decimal:
    """The amount of so many hundredths."""
    return Decimal(cents) * _CENT


def show(amount: Decimal) -> str:
    """As text, such as `12.50`."""
    return f"{amount:.2f}"
