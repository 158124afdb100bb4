"""The pages: the right words for each status, text that stays text, and nobody sees what is somebody else's."""

import re

import httpx
import pytest
from sqlalchemy import update

from examples.hotel.tables import Payment, PaymentStatus, Reservation, Status
from tests.hotel.front_desk import FrontDesk, Guest

pytestmark = pytest.mark.anyio

STAY = "hotel=H1&from=2030-06-01&to=2030-06-03"
BOOK = f"/book?{STAY}&type=double&visit=visit-0001"


async def page(guest: Guest, address: str) -> str:
    """The text of a page that has to be there."""
    response = await guest.client.get(address)
    assert response.status_code == 200, response.text
    return response.text


async def set_status(desk: FrontDesk, reservation: str, status: Status) -> None:
    """Put a reservation where only a payment under way would bring it."""
    async with desk.parts.database.writing() as session:
        row = await session.get_one(Reservation, reservation)
        row.status = status


async def stranger(desk: FrontDesk) -> httpx.AsyncClient:
    """Somebody who has not signed in."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(desk.app), base_url="http://hotel")


async def test_a_stranger_is_asked_for_a_name(desk: FrontDesk) -> None:
    response = await (await stranger(desk)).get("/")
    assert '<label for="name">Your name</label>' in response.text
    assert "What the server saw" not in response.text


@pytest.mark.parametrize("address", [BOOK, "/reservations/R001"])
async def test_a_stranger_is_sent_to_the_sign_in(desk: FrontDesk, address: str) -> None:
    response = await (await stranger(desk)).get(address)
    assert (response.status_code, response.headers["location"]) == (303, "/")


async def test_home_shows_price_and_rooms_left_for_each_night_and_the_total(desk: FrontDesk) -> None:
    text = await page(await desk.guest(), f"/?{STAY}")
    rows = re.findall(
        r'<th scope="row">(\w+ \d+ Jun 2030)</th><td class="number">([\d.]+)</td>\s*<td[^>]*>(\w+)<', text
    )
    assert rows == [("Sat 1 Jun 2030", "120.00", "1"), ("Sun 2 Jun 2030", "120.00", "1")]
    assert '<td class="number total">240.00</td>' in text


async def test_a_room_sold_out_in_one_night_cannot_be_booked(desk: FrontDesk) -> None:
    await desk.sell_out(2)
    text = await page(await desk.guest(), f"/?{STAY}")
    assert "Sold out for these dates" in text
    assert "/book?" not in text


async def test_every_look_at_a_room_is_another_visit(desk: FrontDesk) -> None:
    guest = await desk.guest()
    found = [re.findall(r"visit=([\w-]+)", await page(guest, f"/?{STAY}")) for _ in range(2)]
    assert [len(visits) for visits in found] == [1, 1]
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("dates", "words"),
    [
        ("from=2030-06-03&to=2030-06-03", "Leave at least one day after you arrive."),
        ("from=2030-04-30&to=2030-05-02", "The day of arrival has passed."),
        ("from=2030-06-01&to=2030-07-01", "A stay has at most 28 nights."),
    ],
)
async def test_dates_that_cannot_be_are_explained(desk: FrontDesk, dates: str, words: str) -> None:
    assert words in await page(await desk.guest(), f"/?hotel=H1&{dates}")


@pytest.mark.parametrize("dates", ["from=soon&to=later", "from=9999-12-31", "to=0001-01-01", "hotel=H9"])
async def test_what_cannot_be_read_does_no_harm(desk: FrontDesk, dates: str) -> None:
    assert "Choose a hotel and dates" in await page(await desk.guest(), f"/?{dates}")


async def test_home_leads_back_to_an_open_draft(desk: FrontDesk) -> None:
    guest = await desk.guest()
    await guest.reserve()
    text = await page(guest, "/")
    assert "You have an open draft, R001:" in text
    assert '<a class="button" href="/reservations/R001">Continue' in text


async def test_home_does_not_show_a_draft_of_somebody_else(desk: FrontDesk) -> None:
    await (await desk.guest()).reserve()
    assert "R001" not in await page(await desk.guest("Bob"), "/")


async def test_home_does_not_show_a_draft_that_has_expired(desk: FrontDesk) -> None:
    guest = await desk.guest()
    await guest.reserve()
    desk.clock.advance(minutes=16)
    assert "R001" not in await page(guest, "/")


async def test_the_booking_page_carries_what_the_reservation_is_made_of(desk: FrontDesk) -> None:
    text = await page(await desk.guest(), BOOK)
    given = dict(re.findall(r'data-(visit|hotel|type|from|to)="([^"]*)"', text))
    assert given == {
        "visit": "visit-0001",
        "hotel": "H1",
        "type": "double",
        "from": "2030-06-01",
        "to": "2030-06-03",
    }
    assert "240.00 EUR" in text


@pytest.mark.parametrize("visit", ["", "&visit=", "&visit=short", "&visit=%22%3E%3Cscript%3E"])
async def test_a_booking_page_without_a_visit_gets_one(desk: FrontDesk, visit: str) -> None:
    guest = await desk.guest()
    response = await guest.client.get(f"/book?{STAY}&type=double{visit}")
    assert response.status_code == 303
    assert re.fullmatch(r"/book\?hotel=H1.*&type=double&visit=[\w-]{16}", response.headers["location"])


@pytest.mark.parametrize("wish", ["hotel=H9&type=double", "hotel=H1&type=palace"])
async def test_a_room_that_is_not_offered_has_no_booking_page(desk: FrontDesk, wish: str) -> None:
    guest = await desk.guest()
    response = await guest.client.get(f"/book?{wish}&from=2030-06-01&to=2030-06-03&visit=visit-0001")
    assert response.status_code == 404
    assert "This room is not offered for these dates." in response.text


async def test_started_says_that_nothing_is_confirmed_and_asks_who_comes(desk: FrontDesk) -> None:
    guest = await desk.guest()
    await guest.reserve()
    desk.clock.advance(minutes=1)
    text = await page(guest, "/reservations/R001")
    assert "Other guests can still take the room" in text
    assert 'role="timer" data-left="840">14:00<' in text
    assert 'id="details-form"' in text


async def test_details_confirmed_asks_for_a_card(desk: FrontDesk) -> None:
    guest = await desk.guest()
    await guest.ready_to_pay()
    text = await page(guest, "/reservations/R001")
    assert re.findall(r'name="card" value="(\w+)"', text) == ["tok_ok", "tok_declined", "tok_slow"]
    assert "ada@example.org" in text


async def test_paying_says_that_the_end_is_being_found_out(desk: FrontDesk) -> None:
    guest = await desk.guest()
    await guest.ready_to_pay()
    await set_status(desk, "R001", Status.PAYING)
    text = await page(guest, "/reservations/R001")
    assert "We are finding out how your payment ended." in text
    assert 'data-status="PAYING"' in text
    assert 'id="pay-form"' not in text


async def test_confirmed_shows_the_receipt(desk: FrontDesk) -> None:
    guest = await desk.guest()
    await guest.ready_to_pay()
    receipt = (await guest.pay("R001")).json()["receipt"]
    text = await page(guest, "/reservations/R001")
    assert "Reservation R001 is confirmed and paid." in text
    assert f'<code id="receipt">{receipt}</code>' in text


async def test_expired_leads_to_a_new_start_before_the_sweeper_has_come_by(desk: FrontDesk) -> None:
    guest = await desk.guest()
    await guest.reserve()
    desk.clock.advance(minutes=15)
    text = await page(guest, "/reservations/R001")
    assert "Reservation R001 has expired" in text
    assert 'href="/?hotel=H1&amp;from=2030-06-01&amp;to=2030-06-03"' in text


async def test_expired_says_that_money_was_given_back_where_it_was(desk: FrontDesk) -> None:
    guest = await desk.guest()
    await guest.ready_to_pay()
    desk.gateway.stop()
    await guest.pay("R001")
    await set_status(desk, "R001", Status.EXPIRED)
    never = await page(guest, "/reservations/R001")
    async with desk.parts.database.writing() as session:
        await session.execute(update(Payment).values(status=PaymentStatus.REFUNDED))
    refunded = await page(guest, "/reservations/R001")
    assert ("have not been charged" in never, "was given back" in never) == (True, False)
    assert ("have not been charged" in refunded, "was given back" in refunded) == (False, True)


@pytest.mark.parametrize("status", list(Status))
async def test_a_page_is_drawn_for_the_status_that_the_api_tells(desk: FrontDesk, status: Status) -> None:
    guest = await desk.guest()
    await guest.ready_to_pay()
    await set_status(desk, "R001", status)
    text = await page(guest, "/reservations/R001")
    assert f'data-status="{(await guest.state("R001")).json()["status"]}"' in text


async def test_a_reservation_of_somebody_else_is_not_found(desk: FrontDesk) -> None:
    await (await desk.guest()).reserve()
    bob = await desk.guest("Bob")
    theirs, nobodys = [await bob.client.get(f"/reservations/{number}") for number in ("R001", "R999")]
    assert (theirs.status_code, theirs.text) == (404, nobodys.text)


async def test_names_are_escaped_wherever_they_are_shown(desk: FrontDesk) -> None:
    guest = await desk.guest("<script>alert(1)</script>")
    await guest.reserve()
    await guest.confirm_details("R001", guest_name="<img src=x onerror=alert(1)>")
    texts = [await page(guest, address) for address in ("/", BOOK, "/reservations/R001")]
    assert ["&lt;script&gt;alert(1)" in text for text in texts] == [True, True, True]
    assert "&lt;img src=x" in texts[-1]
    assert not any("<script>" in text or "<img src=x" in text for text in texts)


async def test_every_page_forbids_scripts_and_styles_of_its_own(desk: FrontDesk) -> None:
    guest = await desk.guest()
    await guest.reserve()
    for address in ("/", BOOK, f"/book?{STAY}&type=double", "/reservations/R001", "/reservations/R999"):
        response = await guest.client.get(address)
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", response.text)


async def test_what_a_page_loads_is_there(desk: FrontDesk) -> None:
    guest = await desk.guest()
    await guest.reserve()
    wanted: set[str] = set()
    for address in ("/", BOOK, "/reservations/R001"):
        wanted.update(re.findall(r'(?:src|href)="(/static/[^"]+)"', await page(guest, address)))
    for address in sorted(wanted):
        wanted.update(await imported(guest, address))
    assert "/static/once/once.js" in wanted
    assert {(await guest.client.get(address)).status_code for address in wanted} == {200}


async def imported(guest: Guest, address: str) -> set[str]:
    """What a module imports, and what that imports in turn, one folder deep."""
    if not address.endswith(".js"):
        return set()
    found: set[str] = set()
    waiting = [address]
    while waiting:
        folder, text = waiting[-1].rpartition("/")[0], await page(guest, waiting.pop())
        names = re.findall(r'^(?:import|export) .*from "([^"]+)";$', text, re.MULTILINE)
        new = {name if name.startswith("/") else f"{folder}/{name.removeprefix('./')}" for name in names} - found
        found |= new
        waiting += new
    return found


async def test_seen_tells_what_ran_and_what_was_replayed_the_newest_first(desk: FrontDesk) -> None:
    guest = await desk.guest()
    for _ in range(3):
        await guest.reserve("key-of-mine")
    seen = (await guest.client.get("/seen")).json()
    assert (seen["requests"], seen["ran"]) == (3, 1)
    assert [request["became"] for request in seen["latest"]] == ["replayed", "replayed", "ran"]
    assert {(request["path"], request["status"]) for request in seen["latest"]} == {("/reservations", 201)}
    assert {request["key"].endswith("key-of-mine") for request in seen["latest"]} == {True}


async def test_seen_calls_a_declined_card_ran_and_an_expired_draft_refused(desk: FrontDesk) -> None:
    guest = await desk.guest()
    await guest.ready_to_pay()
    await guest.pay("R001", card="tok_declined")
    desk.clock.advance(minutes=16)
    await guest.pay("R001")
    seen = (await guest.client.get("/seen")).json()["latest"]
    assert [(request["status"], request["became"]) for request in seen[:2]] == [(410, "refused"), (402, "ran")]


async def test_seen_shows_nobody_what_somebody_else_sent(desk: FrontDesk) -> None:
    await (await desk.guest()).reserve()
    bob = await desk.guest("Bob")
    seen = (await bob.client.get("/seen")).json()
    assert (seen["requests"], seen["ran"], seen["latest"]) == (0, 0, [])


async def test_seen_shows_a_stranger_nothing(desk: FrontDesk) -> None:
    await (await desk.guest()).reserve()
    response = await (await stranger(desk)).get("/seen")
    assert (response.status_code, response.json()["latest"]) == (401, [])
