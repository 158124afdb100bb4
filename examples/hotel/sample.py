"""Sample data for the first start: three houses, two kinds of room, sixty nights.

What always holds: a database that has hotels is left as it is.
"""

from datetime import date, timedelta
from decimal import Decimal

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from examples.hotel.database import Database
from examples.hotel.settings import Clock
from examples.hotel.tables import Hotel, RoomNight

NIGHTS = 60
HOTELS = (
    Hotel(id="H1", name="The Harbour Light", city="Lisbon", blurb="Small, blue and white, with the ferry at the door."),
    Hotel(
        id="H2", name="Haus am Wald", city="Freiburg", blurb="Pine floors, a tiled stove, and trails from the garden."
    ),
    Hotel(
        id="H3", name="Casa Aurelia", city="Rome", blurb="A quiet courtyard behind a loud street; breakfast till noon."
    ),
)
# For each kind of room: how many a house has, and what a night costs before the day of the week is looked at.
ROOMS = {"double": (4, Decimal(118)), "suite": (1, Decimal(240))}


async def add_sample(database: Database, clock: Clock) -> None:
    """Fill an empty database."""

    async def fill(session: AsyncSession) -> None:
        if await session.scalar(select(func.count()).select_from(Hotel)):
            return
        session.add_all(Hotel(id=h.id, name=h.name, city=h.city, blurb=h.blurb) for h in HOTELS)
        await session.flush()
        session.add_all(_nights(clock().date()))

    await database.transact(fill)


def _nights(first: date) -> list[RoomNight]:
    return [
        RoomNight(
            hotel_id=hotel.id,
            room_type=room_type,
            night=night,
            total_rooms=rooms,
            booked_rooms=0,
            overbooking_limit=0,
            price=_price(base + 22 * house, night),
        )
        for house, hotel in enumerate(HOTELS)
        for room_type, (rooms, base) in ROOMS.items()
        for night in (first + timedelta(days=day) for day in range(NIGHTS))
    ]


def _price(base: Decimal, night: date) -> Decimal:
    """Friday and Saturday cost more, and so does every other week."""
    weekend = Decimal("1.25") if night.weekday() in (4, 5) else Decimal(1)
    return (base * weekend + 6 * (night.isocalendar().week % 2)).quantize(Decimal("0.01"))
