"""A clinic for the tests of workflows: a gateway that counts, and the delegate that pays through it, in both kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, ClassVar, TypeVar

from semel import AsyncSemel, Semel
from semel.workflow import Delegate

K = TypeVar("K", Semel, AsyncSemel)

VARIABLES: dict[str, Any] = {
    "claimId": "CLAIM-001",
    "paymentId": "1",
    "amount": "1500.00",
    "paymentDate": "2024-12-09",
    "businessKey": "revenue-cycle-test",
    "loopCounter": 0,
}


class CardDeclined(Exception):
    """The bank says no."""


class LineDown(Exception):
    """The gateway was not reached."""


@dataclass(frozen=True)
class Payment:
    """What the gateway gives."""

    receipt: str
    amount: Decimal


@dataclass
class Gateway:
    """Counts what it was asked for; `before` is called first, and may raise."""

    charges: Counter[str] = field(default_factory=Counter)
    refunds: Counter[str] = field(default_factory=Counter)
    outputs: int = 0
    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None

    def charge(self, claim: str, amount: Decimal) -> Payment:
        """Take the money."""
        if self.before is not None:
            self.before()
        self.charges[claim] += 1
        if self.after is not None:
            self.after()
        return Payment(f"R-{claim}-{self.charges[claim]}", amount)

    def refund(self, receipt: str) -> None:
        """Give it back."""
        self.refunds[receipt] += 1


class Shared(Delegate[K]):
    """What both kinds of delegate declare."""

    operation = "PAYMENT_PROCESSING"
    version = "PAYMENT_V1"
    keep_for = timedelta(days=90)
    errors: ClassVar = {CardDeclined: "PAYMENT_DECLINED"}
    retry_errors = (LineDown,)
    key = ("claimId", "paymentId")
    gateway: Gateway

    def outputs(self, value: Payment, v: Any) -> dict[str, Any]:
        self.gateway.outputs += 1
        return {"paymentProcessed": True, "receipt": value.receipt}


class PayClaim(Shared[AsyncSemel]):
    """Pays a claim."""

    def __init__(self, semel: AsyncSemel, gateway: Gateway) -> None:
        self.gateway = gateway
        super().__init__(semel)

    async def execute(self, claimId: str, paymentId: str, amount: Decimal, paymentDate: date) -> Payment:  # noqa: N803
        return self.gateway.charge(claimId, amount)

    async def compensate(self, value: Payment, claimId: str, paymentId: str) -> None:  # noqa: N803
        self.gateway.refund(value.receipt)


class SyncPayClaim(Shared[Semel]):
    """The same for threads."""

    def __init__(self, semel: Semel, gateway: Gateway) -> None:
        self.gateway = gateway
        super().__init__(semel)

    def execute(self, claimId: str, paymentId: str, amount: Decimal, paymentDate: date) -> Payment:  # noqa: N803
        return self.gateway.charge(claimId, amount)

    def compensate(self, value: Payment, claimId: str, paymentId: str) -> None:  # noqa: N803
        self.gateway.refund(value.receipt)


def fail(error: BaseException) -> Callable[[], None]:
    """A function that raises `error`."""

    def raise_it() -> None:
        raise error

    return raise_it
