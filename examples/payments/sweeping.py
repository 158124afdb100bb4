"""The sweeper: ends what nobody came back for.

What always holds: the gateway is asked before a payment is ended, and it ends as the gateway says. A key that was
never charged is closed there first, so that a charge that comes late is refused; and before that the payment is marked,
so that no request reports as paid what is about to be given back. Payments of a bulk are never closed: its workers
come back for them.
"""

import logging
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from examples.hotel.database import changed
from examples.hotel.gateway_client import Charge, GatewaySilent, GatewayUnreachable
from examples.payments import refunds
from examples.payments.parts import Parts
from examples.payments.paying import GatewayDidNotAnswer, settle
from examples.payments.tables import Payment, PaymentStatus, Refund, RefundStatus

log = logging.getLogger(__name__)
OPEN = (PaymentStatus.PENDING, PaymentStatus.CLOSING)
AT_ONCE = 500


@dataclass
class Report:
    """What one sweep did."""

    settled: int = 0
    closed: int = 0
    refunds: int = 0
    gateway_silent: int = 0


async def sweep(parts: Parts) -> Report:
    """End payments and refunds that are too old to have somebody who ends them."""
    report = Report()
    for payment in await _old_payments(parts):
        try:
            charge = await _end(parts, payment)
        except (GatewayUnreachable, GatewaySilent):
            report.gateway_silent += 1
            continue
        report.settled += charge is not None and charge.state in ("charged", "declined")
        report.closed += charge is not None and charge.state in ("closed", "refunded")
    for key in await _old_refunds(parts):
        try:
            await refunds.finish(parts, key)
            report.refunds += 1
        except GatewayDidNotAnswer:
            report.gateway_silent += 1
    return report


async def _old_payments(parts: Parts) -> list[Payment]:
    before = parts.settings.clock() - parts.settings.ask_after
    chosen = select(Payment).where(Payment.status.in_(OPEN), Payment.created_at <= before)
    # Those of bulks come last: they may stay open for as long as nobody runs them again, and nobody waits behind them.
    chosen = chosen.order_by(Payment.bulk_id.is_not(None), Payment.created_at)
    async with parts.database.reading() as session:
        return list(await session.scalars(chosen.limit(AT_ONCE)))


async def _old_refunds(parts: Parts) -> list[str]:
    before = parts.settings.clock() - parts.settings.ask_after
    chosen = select(Refund.gateway_key).where(Refund.status == RefundStatus.PENDING, Refund.created_at <= before)
    async with parts.database.reading() as session:
        return list(await session.scalars(chosen.order_by(Refund.created_at).limit(AT_ONCE)))


async def _end(parts: Parts, payment: Payment) -> Charge | None:
    """End one payment, and tell what the gateway says of it; None where it goes on, or somebody else has ended it."""
    transact, now, key = parts.database.transact, parts.settings.clock(), payment.gateway_key
    if payment.status == PaymentStatus.PENDING:
        found = await parts.gateway.find(key)
        if found is not None:
            return found if await transact(partial(settle, key, found, now)) else None
        age: timedelta = now - payment.created_at
        if payment.bulk_id is not None or age < parts.settings.close_after:
            return None
        if not await transact(partial(_give_up, key)):
            return None
    # Closes the race with a charge on its way: it is refunded if it was faster, and refused if it comes later.
    charge = await parts.gateway.refund(key)
    ending = partial(settle, key, charge, now, before=PaymentStatus.CLOSING)
    return charge if await transact(ending) else None


async def _give_up(gateway_key: str, session: AsyncSession) -> int:
    # Closes the race with a request that was told "charged" just before the refund: it finds nothing to settle.
    deciding = (
        update(Payment)
        .where(Payment.gateway_key == gateway_key, Payment.status == PaymentStatus.PENDING)
        .values(status=PaymentStatus.CLOSING)
    )
    return await changed(session, deciding)
