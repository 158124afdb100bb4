"""What the pages show, read from the database: hotels, rooms by night, and a user's own reservations.

What always holds: nothing is written here, and a reservation is found by its id and its user together, so that somebody
else's cannot be told from one that does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from examples.hotel.booking import OPEN, status_at
from examples.hotel.tables import Hotel, Payment, PaymentStatus, Reservation, RoomNight

_DRAFTS_SHOWN: Final = 3


@dataclass(frozen=True)
class Offer:
    """One type of room over the nights asked for."""

    room_type: str
    nights: tuple[RoomNight, ...]

    @property
    def name(self) -> str:
        """As a guest would say it."""
        return room_name(self.room_type)

    @property
    def total(self) -> Decimal:
        """The price of all nights."""
        return sum((night.price for night in self.nights), Decimal())

    @property
    def left(self) -> int:
        """How many rooms are left in the night with the fewest."""
        return min(night.rooms_left for night in self.nights)


@dataclass(frozen=True)
class Stay:
    """A reservation, or what is to become one, in the words of a page."""

    hotel_id: str
    hotel_name: str
    room_type: str
    check_in: date
    check_out: date
    price: Decimal
    currency: str
    id: str = ""
    status: str = ""
    guest_name: str | None = None
    email: str | None = None
    expires_at: datetime | None = None
    receipt: str | None = None
    refunded: bool = False
    left: int = 1

    @property
    def nights(self) -> int:
        """The day of leaving is not a night."""
        return (self.check_out - self.check_in).days

    @property
    def room_name(self) -> str:
        """As a guest would say it."""
        return room_name(self.room_type)


def room_name(room_type: str) -> str:
    """The name of a type of room."""
    text = room_type.replace("_", " ").replace("-", " ").capitalize()
    return f"{text} room" if room_type in {"single", "double", "twin", "family"} else text


async def hotels(session: AsyncSession) -> list[Hotel]:
    """All of them, in order of their ids."""
    return list(await session.scalars(select(Hotel).order_by(Hotel.id)))


async def last_night(session: AsyncSession, hotel_id: str) -> date | None:
    """The last night that can be booked; None where there are none."""
    found: date | None = await session.scalar(select(func.max(RoomNight.night)).where(RoomNight.hotel_id == hotel_id))
    return found


async def offers(session: AsyncSession, hotel_id: str, check_in: date, check_out: date) -> list[Offer]:
    """Every type of room that the hotel has in all of these nights, sold out or not."""
    chosen = select(RoomNight).where(
        RoomNight.hotel_id == hotel_id, RoomNight.night >= check_in, RoomNight.night < check_out
    )
    by_type: dict[str, list[RoomNight]] = {}
    for night in await session.scalars(chosen.order_by(RoomNight.room_type, RoomNight.night)):
        by_type.setdefault(night.room_type, []).append(night)
    wanted = (check_out - check_in) // timedelta(days=1)
    return [Offer(room_type, tuple(nights)) for room_type, nights in by_type.items() if len(nights) == wanted]


async def drafts(session: AsyncSession, user_id: int, now: datetime) -> list[Stay]:
    """The user's reservations that wait for the user, the newest first."""
    chosen = (
        select(Reservation, Hotel)
        .join(Hotel, Hotel.id == Reservation.hotel_id)
        .where(Reservation.user_id == user_id, Reservation.status.in_(OPEN), Reservation.expires_at > now)
        .order_by(Reservation.created_at.desc())
        .limit(_DRAFTS_SHOWN)
    )
    return [_stay(reservation, hotel, now) for reservation, hotel in await session.execute(chosen)]


async def reserved(session: AsyncSession, user_id: int, reservation_id: str, now: datetime) -> Stay | None:
    """This reservation, if it is the user's."""
    if not reservation_id.isprintable():
        return None  # the id of nothing, and PostgreSQL would not even look for some
    paid = select(Payment.receipt).where(Payment.reservation_id == reservation_id)
    receipt = paid.where(Payment.status == PaymentStatus.CHARGED).limit(1).scalar_subquery()
    refunded = paid.where(Payment.status == PaymentStatus.REFUNDED).exists()
    chosen = (
        select(Reservation, Hotel, receipt, refunded)
        .join(Hotel, Hotel.id == Reservation.hotel_id)
        .where(Reservation.id == reservation_id, Reservation.user_id == user_id)
    )
    row = (await session.execute(chosen)).one_or_none()
    return None if row is None else replace(_stay(row[0], row[1], now), receipt=row[2], refunded=row[3])


def _stay(reservation: Reservation, hotel: Hotel, now: datetime) -> Stay:
    return Stay(
        hotel_id=hotel.id,
        hotel_name=hotel.name,
        room_type=reservation.room_type,
        check_in=reservation.check_in,
        check_out=reservation.check_out,
        price=reservation.price_snapshot,
        currency=reservation.currency,
        id=reservation.id,
        status=status_at(reservation, now),
        guest_name=reservation.guest_name,
        email=reservation.email,
        expires_at=reservation.expires_at,
    )
