"""What the demo plays: which payments, when they are asked for, how long the provider takes, which one is hit.

What always holds: the same seed gives the same story. How the workers share it out is up to the machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from decimal import Decimal

OPERATION = "charge"
SHOP = "demo-shop"
LEASE = 2.0
"""Seconds; short, so that the take-over after the kill can be watched."""

_WINDOW = 4.2
_GAP = 0.7


@dataclass(frozen=True, slots=True)
class Payment:
    """One payment. Times are in seconds; a `fateful` one has its first attempt killed after the charge."""

    name: str
    amount: Decimal
    asked_at: float
    before: float
    after: float
    fateful: bool


@dataclass(frozen=True, slots=True)
class Story:
    """All of it."""

    payments: tuple[Payment, ...]
    workers: tuple[str, ...]
    duplicates: int
    seed: int

    @property
    def fateful(self) -> Payment:
        """The payment whose worker is killed."""
        return next(payment for payment in self.payments if payment.fateful)

    @property
    def calls(self) -> int:
        """How many callers there are."""
        return len(self.payments) * self.duplicates


def story(*, payments: int, workers: int, duplicates: int, seed: int) -> Story:
    """The story of a seed."""
    chance = random.Random(seed)  # noqa: S311 - a story, not a secret
    hit = chance.randrange(payments // 4, max(payments * 2 // 3, 1))
    gap = min(_GAP, _WINDOW / payments)
    digits = len(str(payments))
    made = tuple(
        Payment(
            name=f"pay-{number + 1:0{digits}}",
            amount=Decimal(chance.randrange(500, 25000)).scaleb(-2),
            asked_at=number * gap,
            before=chance.uniform(0.2, 0.6),
            after=chance.uniform(0.4, 0.9),
            fateful=number == hit,
        )
        for number in range(payments)
    )
    return Story(made, tuple(f"w{number + 1}" for number in range(workers)), duplicates, seed)
