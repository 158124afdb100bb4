"""Refunds: a part of a payment given back, never more than was paid.

What always holds: under the lock of its payment, a refund takes its amount off what may still be given back before the
gateway hears of it; so refunds that run side by side cannot give back too much together.
"""

from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from examples.hotel.database import changed
from examples.hotel.gateway_client import GatewaySilent, GatewayUnreachable, RefundRefused
from examples.payments.balance import change_balance
from examples.payments.money import check_amount, show
from examples.payments.parts import Parts
from examples.payments.paying import GatewayDidNotAnswer, find_payment
from examples.payments.problems import Refused, key_reused, not_found
from examples.payments.tables import Payment, PaymentStatus, Refund, RefundStatus
from semel import AsyncAttempt


class RefundOrder(msgspec.Struct, frozen=True):
    """How much is to be given back, and why."""

    amount: Decimal
    reason: str = ""

    def __post_init__(self) -> None:
        check_amount(self.amount)
        if len(self.reason) > 200 or "\0" in self.reason:
            raise ValueError("the reason has at most 200 characters, and none of them is NUL")


async def refund(
    parts: Parts, attempt: AsyncAttempt, account_id: str, payment_id: str, order: RefundOrder
) -> dict[str, Any]:
    """Give money back; called inside an attempt, whose key the refund hangs on."""
    key, now, transact = attempt.derive("refund"), parts.settings.clock(), parts.database.transact
    await transact(partial(_register, key, account_id, payment_id, order, now=now))
    end = await finish(parts, key)
    if end.status == RefundStatus.REFUSED:
        detail = "The gateway gives nothing back of this payment; nothing was changed. Take a new key to ask again."
        raise Refused(409, "not-refundable", detail)
    return {
        "refund_id": end.id,
        "transaction_id": payment_id,
        "status": end.status,
        "amount": show(end.amount),
        "reason": end.reason,
        "processed_at": None if end.processed_at is None else end.processed_at.isoformat(),
    }


async def finish(parts: Parts, key: str) -> Refund:
    """Have the gateway do what was written down, by the same key however often; gives the refund as it ended."""
    async with parts.database.reading() as session:
        chosen = select(Refund, Payment.gateway_key).join(Payment).where(Refund.gateway_key == key)
        found, charge_key = (await session.execute(chosen)).one()
    if found.status == RefundStatus.PENDING:
        receipt: str | None = None
        try:
            receipt = await parts.gateway.give_back(charge_key, key, found.amount)
        except RefundRefused:
            pass
        except (GatewayUnreachable, GatewaySilent) as error:
            raise GatewayDidNotAnswer(f"No answer for {found.id}. The same key asks again.") from error
        found = await parts.database.transact(partial(_settle, key, receipt, parts.settings.clock()))
    return found


async def _register(
    key: str, account_id: str, payment_id: str, order: RefundOrder, session: AsyncSession, *, now: datetime
) -> None:
    payment = await find_payment(session, account_id, payment_id, lock=True)
    if payment is None:
        raise not_found("payment")
    known = await session.scalar(select(Refund).where(Refund.gateway_key == key))
    if known is not None:
        if (known.amount, known.reason) != (order.amount, order.reason):
            raise key_reused("refund")
        return
    left = payment.amount - payment.refunded
    if payment.status != PaymentStatus.SUCCEEDED or order.amount > left:
        left = left if payment.status == PaymentStatus.SUCCEEDED else Decimal(0)
        detail = f"Nothing was given back: {show(left)} is left of this payment."
        raise Refused(409, "not-refundable", detail, left=show(left))
    refund_id = f"ref_{key[:24]}"
    if payment.wallet_of is not None:
        await change_balance(session, account_id, payment.wallet_of, -order.amount, reference=refund_id, now=now)
    payment.refunded += order.amount
    session.add(
        Refund(
            id=refund_id,
            payment_id=payment_id,
            gateway_key=key,
            amount=order.amount,
            reason=order.reason,
            status=RefundStatus.PENDING,
            created_at=now,
        )
    )
    await session.flush()


async def _settle(key: str, receipt: str | None, now: datetime, session: AsyncSession) -> Refund:
    status = RefundStatus.REFUSED if receipt is None else RefundStatus.SUCCEEDED
    # Closes the race between a request and the sweeper: the amount is put back once.
    ending = (
        update(Refund)
        .where(Refund.gateway_key == key, Refund.status == RefundStatus.PENDING)
        .values(status=status, receipt=receipt, processed_at=now)
    )
    is_ended_here = await changed(session, ending)
    chosen = select(Refund).where(Refund.gateway_key == key).execution_options(populate_existing=True)
    found = (await session.scalars(chosen)).one()
    if is_ended_here and receipt is None:
        payment = (await session.scalars(select(Payment).where(Payment.id == found.payment_id).with_for_update())).one()
        payment.refunded -= found.amount
        if payment.wallet_of is not None:
            await change_balance(
                session, payment.account_id, payment.wallet_of, found.amount, reference=found.id, now=now
            )
        await session.flush()
    return found
