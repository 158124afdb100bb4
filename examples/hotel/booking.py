"""From nights and prices to a draft with its details: short transactions, and no inventory is touched.

What always holds: the price of a draft is that of the moment it was made. A reservation is found by its id and its user
together, so that somebody else's cannot be told from one that does not exist. Every move asks for the status it leaves.
"""

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from sqlalchemy import ColumnElement, and_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from examples.hotel.problems import Refused
from examples.hotel.settings import Settings
from examples.hotel.tables import Payment, PaymentStatus, Reservation, ReservationNumber, RoomNight, Status

OPEN = (Status.STARTED, Status.DETAILS_CONFIRMED)
LONGEST_STAY = 28
Text = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$")]  # PostgreSQL keeps no other


class Stay(msgspec.Struct, frozen=True):
    """What is asked for; the day of check-out is not a night."""

    hotel_id: Text
    room_type: Text
    check_in: date
    check_out: date


class Details(msgspec.Struct, frozen=True):
    """Who comes."""

    guest_name: Annotated[Text, msgspec.Meta(min_length=1, max_length=200)]
    email: Annotated[str, msgspec.Meta(pattern=r"^[^@\s\x00]+@[^@\s\x00]+$", max_length=254)]


def its_nights(stay: Stay | Reservation) -> ColumnElement[bool]:
    """The inventory rows of a stay: half-open, so that one guest leaves on the day the next one comes."""
    return and_(
        RoomNight.hotel_id == stay.hotel_id,
        RoomNight.room_type == stay.room_type,
        RoomNight.night >= stay.check_in,
        RoomNight.night < stay.check_out,
    )


async def draft(session: AsyncSession, settings: Settings, user_id: int, stay: Stay) -> Reservation:
    """A new reservation at today's price."""
    now = settings.clock()
    _check_dates(stay, now.date())
    number = ReservationNumber()
    session.add(number)
    await session.flush()
    reservation = Reservation(
        id=f"R{number.number:03}",
        user_id=user_id,
        hotel_id=stay.hotel_id,
        room_type=stay.room_type,
        check_in=stay.check_in,
        check_out=stay.check_out,
        status=Status.STARTED,
        price_snapshot=await _price(session, stay),
        currency=settings.currency,
        created_at=now,
        expires_at=now + settings.draft_for,
    )
    session.add(reservation)
    await session.flush()
    return reservation


def _check_dates(stay: Stay, today: date) -> None:
    if not (today <= stay.check_in and timedelta(0) < stay.check_out - stay.check_in <= timedelta(days=LONGEST_STAY)):
        detail = f"Nothing was reserved. A stay begins today or later and has 1 to {LONGEST_STAY} nights."
        raise Refused(400, "malformed", detail)


async def _price(session: AsyncSession, stay: Stay) -> Decimal:
    prices = (await session.scalars(select(RoomNight.price).where(its_nights(stay)))).all()
    if len(prices) != (stay.check_out - stay.check_in).days:
        raise Refused(404, "not-found", "Nothing was reserved. This room is not offered for all of these nights.")
    return sum(prices, Decimal())


async def confirm_details(
    session: AsyncSession, settings: Settings, user_id: int, reservation_id: str, details: Details
) -> Reservation:
    """STARTED → DETAILS_CONFIRMED; whoever clicks twice gets the state as it is."""
    now = settings.clock()
    # Closes the race between two clicks: one of them finds the row no longer STARTED, and changes nothing.
    await session.execute(
        update(Reservation)
        .where(Reservation.id == reservation_id, Reservation.user_id == user_id)
        .where(Reservation.status == Status.STARTED, Reservation.expires_at > now)
        .values(status=Status.DETAILS_CONFIRMED, guest_name=details.guest_name, email=details.email)
    )
    reservation = await find(session, user_id, reservation_id)
    if status_at(reservation, now) == Status.EXPIRED:
        raise expired("Nothing was changed.")
    return reservation


async def find(session: AsyncSession, user_id: int, reservation_id: str, *, lock: bool = False) -> Reservation:
    """A reservation of this user."""
    chosen = select(Reservation).where(Reservation.id == reservation_id, Reservation.user_id == user_id)
    # What is not printable is the id of nothing, and PostgreSQL would not even look for some of it.
    found = await session.scalar(chosen.with_for_update() if lock else chosen) if reservation_id.isprintable() else None
    if found is None:
        raise Refused(404, "not-found", "Nothing was done. You have no reservation with this number.")
    return found


def expired(what_happened: str) -> Refused:
    """The refusal of everything that comes too late."""
    return Refused(410, "expired", f"{what_happened} The reservation has expired. Start over.")


def status_at(reservation: Reservation, now: datetime) -> Status:
    """The status; a draft whose time is over has expired, also before the sweeper has come by."""
    status = Status(reservation.status)
    return Status.EXPIRED if status in OPEN and reservation.expires_at <= now else status


async def shown(session: AsyncSession, reservation: Reservation, now: datetime) -> dict[str, Any]:
    """A reservation as the API shows it."""
    status = status_at(reservation, now)
    paid = select(Payment.receipt).where(
        Payment.reservation_id == reservation.id, Payment.status == PaymentStatus.CHARGED
    )
    return {
        "id": reservation.id,
        "status": status,
        "confirmed": status == Status.CONFIRMED,
        "hotel_id": reservation.hotel_id,
        "room_type": reservation.room_type,
        "check_in": reservation.check_in.isoformat(),
        "check_out": reservation.check_out.isoformat(),
        "nights": (reservation.check_out - reservation.check_in).days,
        "price": f"{reservation.price_snapshot:.2f}",
        "currency": reservation.currency,
        "guest_name": reservation.guest_name,
        "email": reservation.email,
        "expires_at": reservation.expires_at.isoformat(),
        "receipt": await session.scalar(paid) if status == Status.CONFIRMED else None,
    }
