"""Paying, in three steps: hold the rooms, charge the card, write down what came of it.

What always holds: no transaction is open while the gateway is asked. Rooms are held before the card is charged, and a
hold ends in exactly one way, decided by whoever moves its payment on from PENDING: this request, or the sweeper, which
does so before it refunds anything. A request that is sent again, to whichever process, goes on behind the last step
that committed.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from examples.hotel.booking import expired, find, its_nights, shown, status_at
from examples.hotel.database import changed
from examples.hotel.gateway_client import Charge, GatewaySilent, GatewayUnreachable
from examples.hotel.parts import Parts
from examples.hotel.problems import Refused
from examples.hotel.tables import Payment, PaymentStatus, Reservation, RoomNight, Status
from semel import AsyncAttempt, DidNotHappen, Happened
from semel.errors import InDoubt

AFTER: Final = {
    "charged": (PaymentStatus.CHARGED, Status.CONFIRMED),
    "declined": (PaymentStatus.DECLINED, Status.DETAILS_CONFIRMED),
    "refunded": (PaymentStatus.REFUNDED, Status.EXPIRED),
    "closed": (PaymentStatus.VOID, Status.EXPIRED),
}
"""What a hold ends in, by what the gateway says of its charge."""


@dataclass(frozen=True)
class Held:
    """What is to be charged for the rooms that are held."""

    amount: Decimal
    currency: str


class Paying:
    """Takes payments. Made once per process, because the operation it declares is known to the engine by name."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        settings = parts.settings
        self._charge = parts.semel.once(
            key="gateway_key",
            operation="hotel.charge",
            lease_for=settings.lease_for,
            wait_for=settings.wait_for,
            retry_errors=(GatewayUnreachable,),
            in_doubt="reconcile",
            reconcile=self._was_charged,
            reconcile_after=settings.reconcile_after,
        )(self._charge_card)

    async def pay(self, user_id: int, reservation_id: str, card: str) -> dict[str, Any]:
        """Pay a reservation; called inside the request's own attempt, whose key all steps hang on."""
        attempt, settings, transact = self._parts.semel.current(), self._parts.settings, self._parts.database.transact
        gateway_key = attempt.derive("charge")

        async def hold(session: AsyncSession) -> Held:
            return await attempt.step("hold", self._hold, session, user_id, reservation_id, gateway_key, within=session)

        held = await transact(hold)
        try:
            charge = await self._charge(gateway_key, held.amount, held.currency, card, reservation_id)
        except (GatewayUnreachable, GatewaySilent, InDoubt) as error:
            detail = "Your rooms are held. Send the same request again, with the same key: you are charged once."
            wait = getattr(error, "retry_after", None) or timedelta(seconds=1)
            raise Refused(503, "gateway-unavailable", detail, retry_after=wait) from error

        async def settled(session: AsyncSession) -> bool:
            return await attempt.step("confirm", settle, gateway_key, charge, session, within=session)

        await transact(settled)

        if charge.state == "declined":
            raise _card_declined()
        async with self._parts.database.reading() as session:
            reservation = await find(session, user_id, reservation_id)
            if reservation.status != Status.CONFIRMED:
                raise expired("The payment came too late: no money was taken, or it is given back.")
            return await shown(session, reservation, settings.clock())

    async def _hold(self, session: AsyncSession, user_id: int, reservation_id: str, gateway_key: str) -> Held:
        """DETAILS_CONFIRMED → PAYING, and a room taken in each night. Locks: the reservation, then nights by date."""
        now = self._parts.settings.clock()
        reservation = await find(session, user_id, reservation_id, lock=True)
        _check_payable(reservation, now)
        if await session.scalar(select(Payment.id).where(Payment.gateway_key == gateway_key)):
            raise _card_declined()  # semel has forgotten the key; of all ends of a payment, this one leaves it payable
        nights = await _locked_nights(session, reservation)
        sold_out = [night.night.isoformat() for night in nights if night.rooms_left < 1]
        if sold_out or len(nights) != (reservation.check_out - reservation.check_in).days:
            detail = "No money was taken and no room is held. Choose other dates, or try again later."
            raise Refused(409, "sold-out", detail, nights=sold_out)
        for night in nights:
            night.booked_rooms += 1
        await _move(
            session, reservation, Status.DETAILS_CONFIRMED, Status.PAYING, now + self._parts.settings.paying_for
        )
        session.add(
            Payment(
                reservation_id=reservation_id,
                gateway_key=gateway_key,
                amount=reservation.price_snapshot,
                status=PaymentStatus.PENDING,
                created_at=now,
            )
        )
        await session.flush()
        return Held(reservation.price_snapshot, reservation.currency)

    async def _charge_card(
        self, gateway_key: str, amount: Decimal, currency: str, card: str, reservation_id: str
    ) -> Charge:
        return await self._parts.gateway.charge(gateway_key, amount, currency, card, reservation_id)

    async def _was_charged(self, attempt: AsyncAttempt) -> Happened | DidNotHappen:
        """Ask the gateway, by our key. A charge still on its way does no harm: it carries the same key as the next."""
        found = await self._parts.gateway.find(str(attempt.key.value))
        return DidNotHappen() if found is None else Happened(found)


async def settle(
    gateway_key: str, charge: Charge, session: AsyncSession, before: PaymentStatus = PaymentStatus.PENDING
) -> bool:
    """End a hold as the gateway says, and tell whether it was this call that did. Not charged: rooms are given back."""
    payment_status, status = AFTER[charge.state]
    # Closes the race between request and sweeper: one of them finds the payment as it was, the other changes nothing.
    ending = (
        update(Payment)
        .where(Payment.gateway_key == gateway_key, Payment.status == before)
        .values(status=payment_status, receipt=charge.receipt)
    )
    if not await changed(session, ending):
        return False
    chosen = select(Reservation).join(Payment).where(Payment.gateway_key == gateway_key)
    reservation = (await session.scalars(chosen.with_for_update(of=Reservation))).one()
    await _move(session, reservation, Status.PAYING, status, None)
    if status != Status.CONFIRMED:
        for night in await _locked_nights(session, reservation):
            night.booked_rooms -= 1
    await session.flush()
    return True


def _card_declined() -> Refused:
    detail = "The card was declined; no money was taken and no room is held. Take another card and a new key."
    return Refused(402, "declined", detail)


def _check_payable(reservation: Reservation, now: datetime) -> None:
    match status_at(reservation, now):
        case Status.DETAILS_CONFIRMED:
            return
        case Status.EXPIRED:
            raise expired("No money was taken and no room is held.")
        case Status.PAYING:
            left = timedelta(seconds=1) if reservation.paying_until is None else reservation.paying_until - now
            detail = "Nothing was done: another payment for this reservation is running. Look at its state again later."
            raise Refused(409, "payment-running", detail, retry_after=min(left, timedelta(seconds=5)))
        case status:
            detail = f"Nothing was done: a reservation that is {status} cannot be paid."
            raise Refused(409, "illegal-transition", detail)


async def _locked_nights(session: AsyncSession, reservation: Reservation) -> list[RoomNight]:
    """The inventory of the stay, locked in order of the nights, so that two who want the same cannot deadlock."""
    chosen = select(RoomNight).where(its_nights(reservation)).order_by(RoomNight.night).with_for_update()
    return list(await session.scalars(chosen.execution_options(populate_existing=True)))


async def _move(
    session: AsyncSession, reservation: Reservation, before: Status, after: Status, until: datetime | None
) -> None:
    moving = (
        update(Reservation)
        .where(Reservation.id == reservation.id, Reservation.status == before)
        .values(status=after, paying_until=until)
    )
    if not await changed(session, moving):
        raise RuntimeError(
            f"{reservation.id} is locked and was {before}, but did not move to {after}; nothing was done."
        )
