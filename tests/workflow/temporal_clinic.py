"""The delegate behind the activity of the workflows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

from semel import AsyncAttempt, AsyncSemel
from semel.stores.memory import MemoryStore
from semel.workflow import Delegate
from tests.workflow.ledger import Ledger


class PayOnce(Delegate[AsyncSemel]):
    """Pays a claim at a bank that honours the derived key."""

    operation = "PAYMENT_PROCESSING"
    version = "PAYMENT_V1"
    key = ("claimId", "paymentId")
    lease_for = timedelta(seconds=2)

    def __init__(self, semel: AsyncSemel, ledger: Ledger) -> None:
        self.ledger = ledger
        self.before: Callable[[], None] | None = None
        self.after: Callable[[], Awaitable[None]] | None = None
        super().__init__(semel)

    async def execute(self, claimId: str, paymentId: str, amount: Decimal, attempt: AsyncAttempt) -> str:  # noqa: N803
        if self.before is not None:
            self.before()
        receipt = self.ledger.pay(attempt.derive("bank"), claimId)
        if self.after is not None:
            await self.after()
        return receipt

    def outputs(self, value: str, v: Any) -> dict[str, Any]:
        return {"receipt": value}


IDLE = PayOnce(AsyncSemel(MemoryStore()), None)  # type: ignore[arg-type]  # is never asked
"""A delegate that the code of a workflow can reach."""
