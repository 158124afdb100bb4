"""The sweeper: ends what nobody came back for. `python -m examples.hotel.sweeper` sweeps once.

What always holds: the gateway is asked before a hold is ended, and the hold ends as the gateway says. A key that was
never charged is closed there first, so that a charge that comes late is refused; and before that the payment is marked
as given back, so that no request confirms what is about to be refunded. Several sweepers do no harm: whoever moves a
row first has done it, and the other finds nothing to do.
"""

import asyncio
import logging
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from examples.hotel.booking import OPEN
from examples.hotel.database import changed
from examples.hotel.gateway_client import Charge, GatewaySilent, GatewayUnreachable
from examples.hotel.parts import Parts, opened
from examples.hotel.paying import settle
from examples.hotel.settings import Settings
from examples.hotel.tables import Payment, PaymentStatus, Reservation, Status

log = logging.getLogger(__name__)


@dataclass
class Report:
    """What one sweep did."""

    drafts_expired: int = 0
    confirmed: int = 0
    given_back: int = 0
    gateway_silent: int = 0


async def sweep(parts: Parts) -> Report:
    """Expire drafts, and end every hold whose time is over."""
    report = Report(drafts_expired=await parts.database.transact(partial(_expire_drafts, parts)))
    for gateway_key, status in await _overdue(parts):
        try:
            charge = await _ended(parts, gateway_key, PaymentStatus(status))
        except (GatewayUnreachable, GatewaySilent):
            report.gateway_silent += 1  # the rooms stay held until the gateway has told
            continue
        if charge is not None:
            report.confirmed += charge.state == "charged"
            report.given_back += charge.state != "charged"
    return report


async def sweep_for_ever(parts: Parts, every: timedelta) -> None:
    """Sweep now and then, beside a server. A sweep that fails is followed by the next."""
    while True:
        await asyncio.sleep(every.total_seconds())
        try:
            report = await sweep(parts)
            await parts.semel.sweep()  # and the same for semel: expired records, and charges that are in doubt
        except Exception:
            log.exception("A sweep failed; the next one begins in %s.", every)
        else:
            if any(asdict(report).values()):
                log.info("swept: %s", report)


async def _expire_drafts(parts: Parts, session: AsyncSession) -> int:
    ending = (
        update(Reservation)
        .where(Reservation.status.in_(OPEN), Reservation.expires_at <= parts.settings.clock())
        .values(status=Status.EXPIRED)
    )
    return await changed(session, ending)


async def _overdue(parts: Parts) -> list[tuple[str, str]]:
    """The keys and statuses of all payments whose hold is over its time."""
    chosen = (
        select(Payment.gateway_key, Payment.status)
        .join(Reservation)
        .where(Reservation.status == Status.PAYING, Reservation.paying_until <= parts.settings.clock())
        .where(Payment.status.in_((PaymentStatus.PENDING, PaymentStatus.GIVING_BACK)))
        .order_by(Payment.id)
    )
    async with parts.database.reading() as session:
        return [(key, status) for key, status in await session.execute(chosen)]


async def _ended(parts: Parts, gateway_key: str, status: PaymentStatus) -> Charge | None:
    """End one hold, and tell what the gateway says of its charge; None where somebody else has ended it."""
    transact = parts.database.transact
    if status == PaymentStatus.PENDING:
        found = await parts.gateway.find(gateway_key)
        if found is not None:
            return found if await transact(partial(settle, gateway_key, found)) else None
        if not await transact(partial(_give_back, gateway_key)):
            return None
    # Closes the race with a charge on its way: it is refunded if it was faster, and refused if it comes later.
    charge = await parts.gateway.refund(gateway_key)
    ending = partial(settle, gateway_key, charge, before=PaymentStatus.GIVING_BACK)
    return charge if await transact(ending) else None


async def _give_back(gateway_key: str, session: AsyncSession) -> int:
    # Closes the race with a request that was told "charged" just before the refund: it finds nothing to confirm.
    deciding = (
        update(Payment)
        .where(Payment.gateway_key == gateway_key, Payment.status == PaymentStatus.PENDING)
        .values(status=PaymentStatus.GIVING_BACK)
    )
    return await changed(session, deciding)


async def main() -> None:
    """Sweep once, and say what was done."""
    async with opened(Settings.from_environment()) as parts:
        print(await sweep(parts))


if __name__ == "__main__":
    asyncio.run(main())
