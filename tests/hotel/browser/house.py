"""A hotel for browsers: the gateway and one server as real processes, and what came of it, read from the database.

What always holds: what a test asks about the end is read from the database and from the gateway's ledger, never from a
page. Every guest has nights of their own, so that tests can share a house.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from http import HTTPStatus
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import sqlalchemy as sa
from playwright.sync_api import BrowserContext, Error, Page, Route, expect
from sqlalchemy import orm

from examples.hotel.tables import Payment, PaymentStatus, Reservation, RoomNight, Status
from tests.hotel.gateway_process import ROOT, GatewayProcess

DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
PATIENCE: Final = 120_000  # milliseconds, for a loaded machine; what is waited for comes at once or never
_PREPARE: Final = """
import asyncio
from examples.hotel.parts import opened
from examples.hotel.sample import add_sample
from examples.hotel.settings import Settings

async def main():
    settings = Settings.from_environment()
    async with opened(settings) as parts:
        await parts.prepare()
        await add_sample(parts.database, settings.clock)

asyncio.run(main())
"""


class House:
    """The hotel at `url`, on the database at `database`."""

    def __init__(self, folder: Path, database: str) -> None:
        self.gateway = GatewayProcess(folder / "ledger.jsonl")
        scheme, _, rest = database.partition("://")
        self._engine = sa.create_engine(f"{DRIVERS[scheme]}://{rest}")
        self._database = database
        self._server: subprocess.Popen[str] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._days = count(3, 2)

    def __enter__(self) -> Self:
        self.gateway.__enter__()
        subprocess.run([sys.executable, "-c", _PREPARE], cwd=ROOT, env=self._environment(), check=True)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self.gateway.__exit__(kind, error, traceback)
        self._engine.dispose()
        self._listener.close()

    def start(self) -> None:
        """Start the server on the same address."""
        fd = self._listener.fileno()
        self._server = subprocess.Popen(
            [sys.executable, "-m", "examples.hotel.serving", "--fd", str(fd)],
            cwd=ROOT,
            env=self._environment(),
            pass_fds=[fd],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == "ready\n"

    def kill(self) -> None:
        """End the server with SIGKILL, and its leases; those who connect wait until it is started again."""
        if self._server is not None:
            self._server.kill()
            with self._server:
                self._server.wait()
            self._server = None
            # A lease that ends by itself in a test would also end on a loaded machine, while its server is alive.
            with self._engine.begin() as connection:
                ending = "UPDATE semel_record SET lease_us = created_us WHERE status = 'running'"
                connection.execute(sa.text(ending))

    def nights(self) -> tuple[date, date]:
        """Two nights that no other guest was given."""
        first = datetime.now(UTC).date() + timedelta(days=next(self._days))
        return first, first + timedelta(days=2)

    def reservations(self, first: date) -> list[str]:
        """The statuses of all reservations that begin on a day."""
        with orm.Session(self._engine) as session:
            chosen = sa.select(Reservation.status).where(Reservation.check_in == first).order_by(Reservation.id)
            return [str(status) for status in session.scalars(chosen)]

    def booked(self, first: date) -> list[int]:
        """How many doubles of the first hotel are taken in the two nights from a day on."""
        with orm.Session(self._engine) as session:
            chosen = sa.select(RoomNight.booked_rooms).where(
                RoomNight.hotel_id == "H1",
                RoomNight.room_type == "double",
                RoomNight.night >= first,
                RoomNight.night < first + timedelta(days=2),
            )
            return list(session.scalars(chosen.order_by(RoomNight.night)))

    def charges(self, first: date) -> list[str]:
        """What the gateway's ledger says of the payments for reservations that begin on a day."""
        with orm.Session(self._engine) as session:
            chosen = sa.select(Payment.gateway_key).join(Reservation).where(Reservation.check_in == first)
            keys = set(session.scalars(chosen))
        return [line["event"] for line in self.gateway.ledger() if line["key"] in keys]

    def expire(self, first: date) -> None:
        """Let the time of a draft be over."""
        with orm.Session(self._engine) as session, session.begin():
            over = datetime.now(UTC) - timedelta(minutes=1)
            session.execute(sa.update(Reservation).where(Reservation.check_in == first).values(expires_at=over))

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOTEL_DATABASE": self._database,
            "HOTEL_GATEWAY": self.gateway.url,
            "HOTEL_LEASE_FOR": "120",
            "HOTEL_GATEWAY_TIMEOUT": "120",
            "HOTEL_RECONCILE_AFTER": "0.2",
            "HOTEL_SWEEP_EVERY": "0",
        }


@dataclass
class Guest:
    """Somebody with a browser, who wants one room for two nights."""

    house: House
    context: BrowserContext
    page: Page
    first: date
    last: date
    lost: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        """The page of this stay's rooms."""
        return f"{self.house.url}/?hotel=H1&from={self.first}&to={self.last}"

    def choose(self) -> None:
        """Go to the page with the button."""
        self.page.goto(self.address)
        self.page.get_by_role("link", name="Book Double").click()
        self.can_press("#reserve")

    def can_press(self, button: str, page: Page | None = None) -> None:
        """Wait until the page's script is there: until then a button is disabled, and a key pressed goes nowhere."""
        expect((page or self.page).locator(button)).to_be_enabled(timeout=PATIENCE)

    def reserve(self) -> None:
        """Click, and see the draft."""
        self.page.locator("#reserve").click()
        self.sees("STARTED")

    def ready_to_pay(self) -> None:
        """All up to the payment."""
        self.choose()
        self.reserve()
        self.page.locator("#email").fill("ada@example.org")
        self.page.locator("#confirm-details").click()
        self.sees("DETAILS_CONFIRMED")

    def sees(self, status: str, page: Page | None = None) -> None:
        """Wait for the page of a reservation with this status."""
        expect((page or self.page).locator(f'#reservation[data-status="{status}"]')).to_be_visible(timeout=PATIENCE)

    def has(self, *, reservations: list[str], booked: int, charges: list[str]) -> None:
        """What there is of this stay, in the database and in the ledger."""
        house = self.house
        found = house.reservations(self.first), house.booked(self.first), house.charges(self.first)
        assert found == (reservations, [booked, booked], charges)

    def paid_once(self, page: Page | None = None) -> None:
        """The page tells it, and so do the database and the ledger."""
        self.sees(Status.CONFIRMED, page)
        self.has(reservations=[Status.CONFIRMED], booked=1, charges=[PaymentStatus.CHARGED.lower()])

    def drafted_once(self) -> None:
        """One draft, and nothing held or paid."""
        led = self.page.locator("#reserved:visible")
        expect(self.page.locator('#reservation[data-status="STARTED"]').or_(led)).to_be_visible(timeout=PATIENCE)
        if led.count():  # a page that was left behind may have been told first: then this one shows the way
            led.click()
        self.sees(Status.STARTED)
        self.has(reservations=[Status.STARTED], booked=0, charges=[])

    def lose_replies(self, path: str, number: int) -> None:
        """The server answers, and the answer is lost on its way to the browser; so often."""

        def lose(route: Route) -> None:
            if route.request.method == "POST" and len(self.lost) < number:
                answer = route.fetch(timeout=PATIENCE)
                self.lost.append(f"{answer.status} {_key_of(route)}")
                route.abort("connectionreset")
            else:
                route.fallback()

        self.page.route(path, lose)

    def hold(self, path: str, page: Page | None = None) -> list[Route]:
        """Hold the requests for a path, before they reach the server; they come in as they are made."""
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        (page or self.page).route(path, hold)
        return held

    def let_go(self, path: str, held: list[Route], page: Page | None = None) -> None:
        """Let requests go on that were held, and hold no more; those of a page that is gone went with it."""
        (page or self.page).unroute(path)
        for route in held:
            with suppress(Error):
                route.continue_()

    def go_back(self) -> None:
        """Press the back button; a page that is just leaving by itself may be faster."""
        with suppress(Error):
            self.page.go_back()

    def reserve_unheard(self) -> None:
        """Click; the server makes the reservation, and its answer never arrives."""
        held = self.hold("**/reservations")
        self.page.locator("#reserve").click()
        self.until(lambda: bool(held))
        assert held[0].fetch(timeout=PATIENCE).status == HTTPStatus.CREATED
        self.page.unroute("**/reservations")

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the browser's events come in until something has happened."""
        for _ in range(PATIENCE // 20):
            if condition():
                return
            self.page.wait_for_timeout(20)
        raise AssertionError("what was waited for did not happen")


def _key_of(route: Route) -> str:
    headers = route.request.headers
    return headers.get("payment-idempotency-key") or headers.get("idempotency-key") or ""
