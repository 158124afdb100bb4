"""The house of a run: one kind of room, three nights, and few rooms left in each; and what is in its database later.

What always holds: the facts are read from the tables, never from replies.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

from sqlalchemy import select

from examples.hotel.database import Database
from examples.hotel.parts import opened
from examples.hotel.settings import Settings
from examples.hotel.tables import Hotel, Payment, Reservation, RoomNight, Status

TOTAL = 20
LEFT = 5
NIGHTS = 3
PRICE = Decimal("120.50")


@dataclass(frozen=True)
class House:
    """What a stay there is, and how many may be sold."""

    url: str
    check_in: date
    overbooking: int

    @classmethod
    def opening(cls, url: str, overbooking: int, now: datetime) -> "House":
        """A house whose few rooms are those of a month from now."""
        return cls(url, now.date() + timedelta(days=30), overbooking)

    @property
    def sellable(self) -> int:
        """How many can be confirmed."""
        return LEFT + self.overbooking

    @property
    def stay(self) -> dict[str, str]:
        """What all users ask for."""
        check_out = self.check_in + timedelta(days=NIGHTS)
        return {
            "hotel_id": "H1",
            "room_type": "double",
            "check_in": self.check_in.isoformat(),
            "check_out": check_out.isoformat(),
        }

    async def build(self) -> None:
        """Make the tables and the house in an empty database."""
        async with opened(Settings(database=self.url)) as parts:
            await parts.prepare()
            async with parts.database.writing() as session:
                session.add(Hotel(id="H1", name="Load", city="Ulm", blurb="Almost full."))
                await session.flush()
                session.add_all(self._night(day) for day in range(NIGHTS))

    def _night(self, day: int) -> RoomNight:
        return RoomNight(
            hotel_id="H1",
            room_type="double",
            night=self.check_in + timedelta(days=day),
            total_rooms=TOTAL,
            booked_rooms=TOTAL - LEFT,
            overbooking_limit=self.overbooking,
            price=PRICE,
        )

    async def facts(self) -> "Facts":
        """What the database says now."""
        database = Database(self.url)
        try:
            async with database.reading() as session:
                nights = await session.scalars(select(RoomNight).order_by(RoomNight.night))
                return Facts(
                    sold=[night.booked_rooms - (TOTAL - LEFT) for night in nights],
                    reservations={one.id: one for one in await session.scalars(select(Reservation))},
                    payments=list(await session.scalars(select(Payment).order_by(Payment.id))),
                )
        finally:
            await database.close()


@dataclass(frozen=True)
class Facts:
    """The tables at one moment; `sold` is what was sold in each night since the run began."""

    sold: list[int]
    reservations: dict[str, Reservation]
    payments: list[Payment]

    def having(self, status: Status) -> set[str]:
        """The reservations in this status."""
        return {one.id for one in self.reservations.values() if one.status == status}
