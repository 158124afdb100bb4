"""The sweeper: ends what nobody came back for. `python -m examples.hotel.sweeper` sweeps once.

What always holds: the gateway is asked before a hold is ended, and the hold ends as the gateway says. A key that was
never charged is closed there first, so that a charge that comes late is refused. Several sweepers do no harm: whoever
moves a row first has done it, and the other finds nothing to do.
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
    for gateway_key in await _overdue(parts):
        try:
            charge = await _decided(parts, gateway_key)
        except (GatewayUnreachable, GatewaySilent):
            report.gateway_silent += 1  # the rooms stay held until the gateway has told
            continue
        if await parts.database.transact(partial(settle, gateway_key, charge)):
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


async def _overdue(parts: Parts) -> list[str]:
    """The keys of all payments whose hold is over its time."""
    chosen = (
        select(Payment.gateway_key)
        .join(Reservation)
        .where(Reservation.status == Status.PAYING, Reservation.paying_until <= parts.settings.clock())
        .where(Payment.status == PaymentStatus.PENDING)
        .order_by(Payment.id)
    )
    async with parts.database.reading() as session:
        return list(await session.scalars(chosen))


async def _decided(parts: Parts, gateway_key: str) -> Charge:
    """What the gateway says of a charge, now and for ever after."""
    found = await parts.gateway.find(gateway_key)
    if found is None:
        # Closes the race with a charge on its way: it is refunded if it was faster, and refused if it comes later.
        return await parts.gateway.refund(gateway_key)
    return found


async def main() -> None:
    """Sweep once, and say what was done."""
    async with opened(Settings.from_environment()) as parts:
        print(await sweep(parts))


if __name__ == "__main__":
    asyncio.run(main())
