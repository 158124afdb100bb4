"""Paying: every way a payment can end, and what is held, charged and said in each."""

import asyncio

import pytest

from tests.hotel.conftest import Build
from tests.hotel.front_desk import FrontDesk, code_of

pytestmark = pytest.mark.anyio


async def test_a_paid_reservation_is_confirmed(any_desk: FrontDesk) -> None:
    guest = await any_desk.guest()
    response = await guest.pay(await guest.ready_to_pay())
    paid = response.json()
    assert (response.status_code, paid["status"], paid["confirmed"]) == (200, "CONFIRMED", True)
    assert paid["receipt"]
    assert (await any_desk.payments(), any_desk.gateway.events()) == (["CHARGED"], ["charged"])


async def test_the_day_of_check_out_is_not_a_night(any_desk: FrontDesk) -> None:
    guest = await any_desk.guest()
    for check_in, check_out in ((1, 3), (3, 4)):
        assert (await guest.pay(await guest.ready_to_pay(check_in, check_out))).status_code == 200
    assert await any_desk.booked() == {1: 1, 2: 1, 3: 1}


async def test_many_clicks_on_pay_charge_once(any_desk: FrontDesk) -> None:
    guest = await any_desk.guest()
    reservation = await guest.ready_to_pay()
    replies = await asyncio.gather(*(guest.pay(reservation, "k") for _ in range(5)))
    assert len({reply.content for reply in replies}) == 1
    assert (any_desk.gateway.events(), await any_desk.booked()) == (["charged"], {1: 1, 2: 1})


async def test_the_price_is_honoured_after_the_rate_has_changed(desk: FrontDesk) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    await desk.change_nights(price=999)
    assert (await guest.pay(reservation)).json()["price"] == "240.00"
    assert desk.gateway.process.ledger()[-1]["amount"] == "240.00"


async def test_a_draft_is_not_paid_at_minute_16(desk: FrontDesk) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    desk.clock.advance(minutes=16)
    response = await guest.pay(reservation)
    assert (response.status_code, code_of(response)) == (410, "expired")
    assert (await desk.booked(), desk.gateway.events()) == ({}, [])


async def test_one_sold_out_night_aborts_all(any_desk: FrontDesk) -> None:
    guest = await any_desk.guest()
    reservation = await guest.ready_to_pay(1, 5)
    await any_desk.sell_out(3)
    response = await guest.pay(reservation)
    assert (response.status_code, code_of(response)) == (409, "sold-out")
    assert response.json()["nights"] == ["2030-06-03"]
    assert (await any_desk.booked(), await any_desk.payments()) == ({3: 1}, [])


async def test_the_key_of_a_sold_out_night_may_ask_again(desk: FrontDesk) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    await desk.sell_out(2)
    assert (await guest.pay(reservation, "k")).status_code == 409
    await desk.change_nights(booked_rooms=0)
    assert (await guest.pay(reservation, "k")).status_code == 200


async def test_rooms_are_sold_up_to_the_overbooking_limit(build: Build, any_database: str) -> None:
    desk = await build(any_database, rooms=2, overbooking=1)
    guest = await desk.guest()
    reservations = [await guest.ready_to_pay() for _ in range(5)]
    replies = await asyncio.gather(*(guest.pay(reservation) for reservation in reservations))
    assert sorted(reply.status_code for reply in replies) == [200, 200, 200, 409, 409]
    assert (await desk.booked(), desk.gateway.events()) == ({1: 3, 2: 3}, ["charged"] * 3)


async def test_a_declined_card_gives_the_rooms_back_and_another_one_works(any_desk: FrontDesk) -> None:
    guest = await any_desk.guest()
    reservation = await guest.ready_to_pay()
    declined = await guest.pay(reservation, "first", "tok_declined")
    assert (declined.status_code, code_of(declined)) == (402, "declined")
    assert (await any_desk.booked(), await any_desk.statuses()) == ({}, ["DETAILS_CONFIRMED"])
    assert (await guest.pay(reservation, "second")).status_code == 200
    assert await any_desk.payments() == ["DECLINED", "CHARGED"]


async def test_a_declined_payment_is_replayed(desk: FrontDesk) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    first, again = [await guest.pay(reservation, "k", "tok_declined") for _ in range(2)]
    assert (again.content, again.headers["idempotency-replayed"]) == (first.content, "true")
    assert desk.gateway.events() == ["declined"]


async def test_a_declined_payment_whose_key_is_forgotten_is_declined_again(any_desk: FrontDesk) -> None:
    guest = await any_desk.guest()
    reservation = await guest.ready_to_pay()
    assert code_of(await guest.pay(reservation, "k", "tok_declined")) == "declined"
    await any_desk.forget_keys()
    again = await guest.pay(reservation, "k")
    assert (again.status_code, code_of(again)) == (402, "declined")
    assert (any_desk.gateway.events(), await any_desk.booked()) == (["declined"], {})


async def test_a_payment_whose_key_is_forgotten_is_not_made_again(desk: FrontDesk) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    assert (await guest.pay(reservation, "k")).status_code == 200
    await desk.forget_keys()
    again = await guest.pay(reservation, "k")
    assert (again.status_code, code_of(again)) == (409, "illegal-transition")
    assert (desk.gateway.events(), await desk.booked()) == (["charged"], {1: 1, 2: 1})


async def test_paying_before_the_details_is_refused(desk: FrontDesk) -> None:
    guest = await desk.guest()
    response = await guest.pay((await guest.reserve()).json()["id"])
    assert (response.status_code, code_of(response)) == (409, "illegal-transition")


async def test_paying_again_with_another_key_is_refused(desk: FrontDesk) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    await guest.pay(reservation)
    response = await guest.pay(reservation)
    assert (response.status_code, code_of(response)) == (409, "illegal-transition")
    assert desk.gateway.events() == ["charged"]


async def test_another_key_waits_while_a_payment_runs(desk: FrontDesk) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    desk.gateway.faults(lose_reply=1)
    assert (await guest.pay(reservation, "first")).status_code == 503
    response = await guest.pay(reservation, "second")
    assert (response.status_code, code_of(response)) == (409, "payment-running")
    assert int(response.headers["retry-after"]) > 0


async def test_details_cannot_be_confirmed_into_a_paid_reservation(desk: FrontDesk) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    await guest.pay(reservation)
    response = await guest.confirm_details(reservation, guest_name="Eve")
    assert (response.json()["status"], response.json()["guest_name"]) == ("CONFIRMED", "Ada")
