"""The tables of the hotel; `migrations/` makes them.

What always holds: instants are UTC and aware, money is exact. A reservation moves from one status to the next by
`UPDATE … WHERE status = …` alone, so that of two who move it one finds nothing to do.
"""

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, Date, DateTime, Dialect, ForeignKey, Integer, Numeric, String, TypeDecorator
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeEngine


class Status(StrEnum):
    """How far a reservation is."""

    STARTED = "STARTED"
    DETAILS_CONFIRMED = "DETAILS_CONFIRMED"
    PAYING = "PAYING"
    CONFIRMED = "CONFIRMED"
    EXPIRED = "EXPIRED"


class PaymentStatus(StrEnum):
    """What became of a payment. GIVING_BACK: the sweeper has decided, and the gateway may not have heard of it yet."""

    PENDING = "PENDING"
    GIVING_BACK = "GIVING_BACK"
    CHARGED = "CHARGED"
    DECLINED = "DECLINED"
    REFUNDED = "REFUNDED"
    VOID = "VOID"


class Instant(TypeDecorator[datetime]):
    """An aware datetime, kept as UTC to the microsecond."""

    impl = DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class Money(TypeDecorator[Decimal]):
    """An exact amount with two digits; SQLite, which would make a float of it, keeps it as text."""

    impl = Numeric(10, 2)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(String(11)) if dialect.name == "sqlite" else super().load_dialect_impl(dialect)

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> Any:
        return f"{value:.2f}" if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        return None if value is None else Decimal(value)


# SQLite numbers rows by itself only where the column is called exactly INTEGER.
Number = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    """All tables; each is described where it is mapped."""


class User(Base):
    """Whoever has signed in."""

    __tablename__ = "user"
    id: Mapped[int] = mapped_column(Number, primary_key=True)
    name: Mapped[str] = mapped_column(String(80))
    created_at: Mapped[datetime] = mapped_column(Instant)


class Session(Base):
    """A signed-in browser; the token itself is known to the browser alone."""

    __tablename__ = "session"
    token_digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("user.id"))
    created_at: Mapped[datetime] = mapped_column(Instant)


class Hotel(Base):
    """A house."""

    __tablename__ = "hotel"
    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    name: Mapped[str] = mapped_column(String(80))
    city: Mapped[str] = mapped_column(String(80))
    blurb: Mapped[str] = mapped_column(String(200))


class RoomNight(Base):
    """The rooms of one type in one night: how many there are, are taken, and may be sold beyond what there is."""

    __tablename__ = "room_type_inventory"
    hotel_id: Mapped[str] = mapped_column(ForeignKey("hotel.id"), primary_key=True)
    room_type: Mapped[str] = mapped_column(String(20), primary_key=True)
    night: Mapped[date] = mapped_column(Date, primary_key=True)
    total_rooms: Mapped[int]
    booked_rooms: Mapped[int] = mapped_column(default=0)
    overbooking_limit: Mapped[int] = mapped_column(default=0)
    price: Mapped[Decimal] = mapped_column(Money)

    @property
    def rooms_left(self) -> int:
        """How many may still be sold."""
        return self.total_rooms + self.overbooking_limit - self.booked_rooms


class ReservationNumber(Base):
    """Numbers reservations: the database counts, and never gives a number twice."""

    __tablename__ = "reservation_number"
    __table_args__ = ({"sqlite_autoincrement": True},)
    number: Mapped[int] = mapped_column(Number, primary_key=True)


class Reservation(Base):
    """Somebody's nights, at the price they had when the draft was made."""

    __tablename__ = "reservation"
    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("user.id"))
    hotel_id: Mapped[str] = mapped_column(ForeignKey("hotel.id"))
    room_type: Mapped[str] = mapped_column(String(20))
    check_in: Mapped[date]
    check_out: Mapped[date]
    status: Mapped[str] = mapped_column(String(20))
    price_snapshot: Mapped[Decimal] = mapped_column(Money)
    currency: Mapped[str] = mapped_column(String(3))
    guest_name: Mapped[str | None] = mapped_column(String(200))
    email: Mapped[str | None] = mapped_column(String(254))
    created_at: Mapped[datetime] = mapped_column(Instant)
    expires_at: Mapped[datetime] = mapped_column(Instant)
    paying_until: Mapped[datetime | None] = mapped_column(Instant)


class Payment(Base):
    """One try to pay; the gateway knows it by `gateway_key`."""

    __tablename__ = "payment"
    id: Mapped[int] = mapped_column(Number, primary_key=True)
    reservation_id: Mapped[str] = mapped_column(ForeignKey("reservation.id"))
    gateway_key: Mapped[str] = mapped_column(String(64), unique=True)
    amount: Mapped[Decimal] = mapped_column(Money)
    status: Mapped[str] = mapped_column(String(20))
    receipt: Mapped[str | None] = mapped_column(String(80))
    created_at: Mapped[datetime] = mapped_column(Instant)
