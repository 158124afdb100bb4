"""A server is killed in the middle of a payment; another takes it over, and the card is charged once."""

import asyncio
from pathlib import Path

import httpx
import pytest

from examples.hotel.sweeper import Report, sweep
from tests.hotel.front_desk import FrontDesk, Guest
from tests.hotel.killing import intercepting, serving

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def _pay_and_be_killed(desk: FrontDesk, folder: Path, *, charged: bool) -> tuple[Guest, str]:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    async with (
        intercepting(desk.gateway, passes_on=charged) as gateway,
        serving(desk, gateway.address, folder) as server,
    ):
        browser = server.guest(guest)
        paying = asyncio.create_task(browser.pay(reservation, "k"))
        await server.killed_once(gateway.arrived)
        with pytest.raises(httpx.TransportError):
            await paying
        await browser.client.aclose()
    await desk.end_leases()
    return guest, reservation


@pytest.mark.covering
@pytest.mark.parametrize("charged", [False, True], ids=["before-the-charge", "after-the-charge"])
async def test_a_killed_server_is_taken_over_and_charges_once(
    any_desk: FrontDesk, tmp_path: Path, charged: bool
) -> None:
    guest, reservation = await _pay_and_be_killed(any_desk, tmp_path, charged=charged)
    assert await any_desk.statuses() == ["PAYING"]
    response = await guest.pay(reservation, "k")
    assert (response.status_code, response.json()["status"]) == (200, "CONFIRMED")
    assert (any_desk.gateway.events(), await any_desk.booked()) == (["charged"], {1: 1, 2: 1})


@pytest.mark.parametrize(
    ("charged", "ends"),
    [(False, (Report(given_back=1), ["closed"], {})), (True, (Report(confirmed=1), ["charged"], {1: 1, 2: 1}))],
    ids=["before-the-charge", "after-the-charge"],
)
async def test_when_nobody_comes_back_the_sweeper_ends_it(
    desk: FrontDesk, tmp_path: Path, charged: bool, ends: object
) -> None:
    await _pay_and_be_killed(desk, tmp_path, charged=charged)
    desk.clock.advance(minutes=3)
    assert (await sweep(desk.parts), desk.gateway.events(), await desk.booked()) == ends
