"""Drafts and details: the price is locked, nothing is held, and a repeated request makes nothing new."""

import asyncio

import pytest

from tests.hotel.front_desk import FrontDesk, code_of

pytestmark = pytest.mark.anyio


async def test_a_draft_has_its_price_and_holds_no_room(any_desk: FrontDesk) -> None:
    response = await (await any_desk.guest()).reserve()
    draft = response.json()
    assert (response.status_code, response.headers["location"]) == (201, "/reservations/R001")
    assert (draft["id"], draft["status"], draft["confirmed"]) == ("R001", "STARTED", False)
    assert (draft["price"], draft["nights"], draft["expires_at"]) == ("240.00", 2, "2030-05-01T12:15:00+00:00")
    assert await any_desk.booked() == {}


async def test_many_clicks_make_one_reservation(any_desk: FrontDesk) -> None:
    guest = await any_desk.guest()
    replies = await asyncio.gather(*(guest.reserve("k") for _ in range(10)))
    assert {(reply.status_code, reply.json()["id"]) for reply in replies} == {(201, "R001")}
    assert await any_desk.statuses() == ["STARTED"]


async def test_the_same_key_with_other_dates_is_422(desk: FrontDesk) -> None:
    guest = await desk.guest()
    await guest.reserve("k", check_out=3)
    assert (await guest.reserve("k", check_out=4)).status_code == 422


async def test_the_same_key_of_two_guests_is_two_reservations(desk: FrontDesk) -> None:
    first, second = await desk.guest(), await desk.guest()
    assert [(await guest.reserve("k")).json()["id"] for guest in (first, second)] == ["R001", "R002"]


async def test_a_request_without_a_key_is_refused(desk: FrontDesk) -> None:
    guest = await desk.guest()
    assert (await guest.client.post("/reservations", json={})).status_code == 400
    assert await desk.statuses() == []


async def test_nights_that_are_not_offered_are_refused(desk: FrontDesk) -> None:
    response = await (await desk.guest()).reserve(check_in=9, check_out=12)
    assert (response.status_code, code_of(response)) == (404, "not-found")


@pytest.mark.parametrize(("check_in", "check_out"), [(3, 3), (3, 2)])
async def test_a_stay_has_at_least_one_night(desk: FrontDesk, check_in: int, check_out: int) -> None:
    response = await (await desk.guest()).reserve(check_in=check_in, check_out=check_out)
    assert (response.status_code, code_of(response)) == (400, "malformed")


async def test_a_stay_at_the_end_of_all_calendars_is_refused(desk: FrontDesk) -> None:
    stay = {"hotel_id": "H1", "room_type": "double", "check_in": "9999-12-20", "check_out": "9999-12-25"}
    guest = await desk.guest()
    response = await guest.client.post("/reservations", json=stay, headers={"Idempotency-Key": "k"})
    assert (response.status_code, code_of(response)) == (404, "not-found")


async def test_text_that_no_database_can_keep_is_refused(any_desk: FrontDesk) -> None:
    guest = await any_desk.guest()
    stay = {"hotel_id": "H\x001", "room_type": "double", "check_in": "2030-06-01", "check_out": "2030-06-02"}
    replies = [await guest.client.post("/reservations", json=stay, headers={"Idempotency-Key": "k"})]
    reservation = (await guest.reserve()).json()["id"]
    replies.append(await guest.confirm_details(reservation, guest_name="Ada\x00"))
    replies.append(await guest.confirm_details(reservation, email="ada\x00@example.org"))
    assert [(reply.status_code, code_of(reply)) for reply in replies] == [(400, "malformed")] * 3


async def test_a_stay_does_not_begin_in_the_past(desk: FrontDesk) -> None:
    desk.clock.advance(minutes=40 * 24 * 60)
    guest = await desk.guest()
    assert (await guest.reserve(check_in=1, check_out=3)).status_code == 400


async def test_confirming_details_twice_answers_the_state_as_it_is(any_desk: FrontDesk) -> None:
    guest = await any_desk.guest()
    reservation = (await guest.reserve()).json()["id"]
    first = await guest.confirm_details(reservation, guest_name="Ada")
    again = await guest.confirm_details(reservation, guest_name="Eve")
    assert (first.status_code, first.json()["status"]) == (200, "DETAILS_CONFIRMED")
    assert (again.status_code, again.json()) == (200, first.json())


async def test_details_of_an_expired_draft_are_refused(desk: FrontDesk) -> None:
    guest = await desk.guest()
    reservation = (await guest.reserve()).json()["id"]
    desk.clock.advance(minutes=15)
    response = await guest.confirm_details(reservation)
    assert (response.status_code, code_of(response)) == (410, "expired")
    assert (await guest.state(reservation)).json()["status"] == "EXPIRED"


@pytest.mark.parametrize("email", ["", "ada", "a b@c"])
async def test_details_need_an_address_to_write_to(desk: FrontDesk, email: str) -> None:
    guest = await desk.guest()
    reservation = (await guest.reserve()).json()["id"]
    assert code_of(await guest.confirm_details(reservation, email=email)) == "malformed"


async def test_the_reservation_of_somebody_else_is_not_there(desk: FrontDesk) -> None:
    owner, other = await desk.guest(), await desk.guest()
    reservation = await owner.ready_to_pay()
    replies = [await other.state(reservation), await other.confirm_details(reservation), await other.pay(reservation)]
    assert [(reply.status_code, code_of(reply)) for reply in replies] == [(404, "not-found")] * 3
    assert (await owner.state(reservation)).json()["status"] == "DETAILS_CONFIRMED"


@pytest.mark.parametrize("page", ["", "/state"])
async def test_what_can_be_the_number_of_nothing_is_not_found(any_desk: FrontDesk, page: str) -> None:
    guest = await any_desk.guest()
    assert (await guest.client.get(f"/reservations/%00{page}")).status_code == 404
