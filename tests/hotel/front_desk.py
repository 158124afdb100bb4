"""A hotel for tests: the real application in this process, the real gateway in another, and a clock that can be moved.

What always holds: one house with rooms of type "double" in all nights from 1 June 2030, each at 120.00, and the time is
1 May 2030, noon. What is asked about the end is read from the database and from the gateway's ledger, not from replies.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import httpx
from sqlalchemy import select, text, update

from examples.hotel.app import make_app
from examples.hotel.parts import Parts
from examples.hotel.settings import Settings
from examples.hotel.tables import Hotel, Payment, Reservation, RoomNight
from tests.hotel.gateway_process import GatewayProcess

FIRST = date(2030, 6, 1)
NIGHTS = 10
Night = int
"""The day of June."""


@dataclass
class Clock:
    """The hotel's time."""

    now: datetime = datetime(2030, 5, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)


@dataclass
class Gateway:
    """The gateway as a process that many tests share, and its ledger as one of them sees it."""

    process: GatewayProcess
    before: int = 0

    @property
    def address(self) -> str:
        return self.process.url

    def start(self) -> None:
        """Bring it back to the same address."""
        self.process.start()

    def stop(self) -> None:
        """Kill it, as a crash would."""
        self.process.kill()

    def restart(self) -> None:
        """Start it again after it has died by itself."""
        self.process.wait()
        self.process.start()

    def ready_for_another_test(self) -> None:
        """Running, without faults, and its events counted from here."""
        self.start()
        self.faults(delay=0, lose_reply=0, error_reply=0, die_before=0, die_after=0)
        self.before += len(self.events())

    def faults(self, **faults: float) -> None:
        """What goes wrong with the next charges."""
        self.process.faults(**faults)

    def events(self) -> list[str]:
        """What the ledger got in this test, in order."""
        return [line["event"] for line in self.process.ledger()[self.before :]]


@dataclass
class FrontDesk:
    """The application with its database, as one client after another sees it."""

    settings: Settings
    clock: Clock
    gateway: Gateway
    name: str = field(default_factory=lambda: secrets.token_hex(4))
    keys: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.app = make_app(self.settings)
        self.parts: Parts = self.app.state.parts

    async def build(self, rooms: int = 1, overbooking: int = 0) -> None:
        """Make the tables and the house."""
        await self.parts.prepare()
        async with self.parts.database.writing() as session:
            session.add(Hotel(id="H1", name="Test", city="Ulm", blurb="Near the river."))
            await session.flush()
            session.add_all(
                RoomNight(
                    hotel_id="H1",
                    room_type="double",
                    night=FIRST + timedelta(days=day),
                    total_rooms=rooms,
                    booked_rooms=0,
                    overbooking_limit=overbooking,
                    price=Decimal(120),
                )
                for day in range(NIGHTS)
            )

    async def guest(self, name: str = "Ada") -> "Guest":
        """Somebody who has just signed in."""
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://hotel")
        assert (await client.post("/sign-in", json={"name": name})).status_code == 204
        return Guest(self, client)

    async def change_nights(self, **values: Any) -> None:
        """What a manager does: the same for every night."""
        async with self.parts.database.writing() as session:
            await session.execute(update(RoomNight).values(**values))

    async def sell_out(self, night: Night) -> None:
        async with self.parts.database.writing() as session:
            chosen = update(RoomNight).where(RoomNight.night == FIRST.replace(day=night))
            await session.execute(chosen.values(booked_rooms=RoomNight.total_rooms + RoomNight.overbooking_limit))

    async def end_leases(self) -> None:
        """What time does for those who were killed: nobody waits for it, and no lease has to be short."""
        async with self.parts.database.writing() as session:
            await session.execute(text("UPDATE semel_record SET lease_us = created_us WHERE status = 'running'"))

    async def forget_keys(self) -> None:
        """What time does to requests that have ended: their keys are kept no longer."""
        async with self.parts.database.writing() as session:
            await session.execute(
                text("UPDATE semel_record SET expires_us = 0 WHERE status IN ('completed', 'failed')")
            )

    async def booked(self) -> dict[Night, int]:
        """How many rooms are taken, in the nights in which there are any."""
        async with self.parts.database.reading() as session:
            nights = await session.scalars(select(RoomNight).order_by(RoomNight.night))
            return {night.night.day: night.booked_rooms for night in nights if night.booked_rooms}

    async def statuses(self) -> list[str]:
        """Of all reservations, in order."""
        async with self.parts.database.reading() as session:
            return list(await session.scalars(select(Reservation.status).order_by(Reservation.id)))

    async def payments(self) -> list[str]:
        """The statuses of all payments, in order."""
        async with self.parts.database.reading() as session:
            return list(await session.scalars(select(Payment.status).order_by(Payment.id)))


@dataclass
class Guest:
    """A signed-in client."""

    desk: FrontDesk
    client: httpx.AsyncClient

    def at(self, other: FrontDesk) -> "Guest":
        """The same browser, answered by another process."""
        other.name = self.desk.name
        transport = httpx.ASGITransport(other.app, raise_app_exceptions=False)
        return Guest(
            other, httpx.AsyncClient(transport=transport, base_url="http://hotel", cookies=self.client.cookies)
        )

    async def reserve(self, key: str | None = None, check_in: Night = 1, check_out: Night = 3) -> httpx.Response:
        stay = {"hotel_id": "H1", "room_type": "double", "check_in": f"2030-06-{check_in:02}"}
        stay["check_out"] = f"2030-06-{check_out:02}"
        return await self.client.post("/reservations", json=stay, headers={"Idempotency-Key": self._key(key)})

    async def confirm_details(self, reservation: str, **details: str) -> httpx.Response:
        given = {"guest_name": "Ada", "email": "ada@example.org", **details}
        return await self.client.post(f"/reservations/{reservation}/confirm-details", json=given)

    async def pay(self, reservation: str, key: str | None = None, card: str = "tok_ok") -> httpx.Response:
        headers = {"Payment-Idempotency-Key": self._key(key)}
        return await self.client.post(f"/reservations/{reservation}/pay", json={"card": card}, headers=headers)

    async def state(self, reservation: str) -> httpx.Response:
        return await self.client.get(f"/reservations/{reservation}/state")

    async def ready_to_pay(self, check_in: Night = 1, check_out: Night = 3) -> str:
        """A reservation with its details."""
        reservation = str((await self.reserve(None, check_in, check_out)).json()["id"])
        assert (await self.confirm_details(reservation)).status_code == 200
        return reservation

    def _key(self, key: str | None) -> str:
        """A key that no other test has: they share a gateway, which never forgets one."""
        return f"{self.desk.name}-{key or next(self.desk.keys)}"


def code_of(response: httpx.Response) -> str:
    """The code of a refusal."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    return str(response.json()["type"]).rpartition(":")[2]
