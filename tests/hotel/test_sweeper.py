"""The sweeper ends what nobody came back for, always as the gateway says."""

import asyncio
import os
import subprocess
import sys
from typing import Any

import httpx
import pytest

from examples.hotel.gateway_client import Charge, Gateway, GatewaySilent
from examples.hotel.sweeper import Report, sweep, sweep_for_ever
from tests.hotel.conftest import Build
from tests.hotel.front_desk import FrontDesk, Guest, code_of

pytestmark = pytest.mark.anyio


async def _charged_unseen(desk: FrontDesk) -> tuple[Guest, str]:
    """A guest whose charge was made, whose reply was lost, and who has not come back."""
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    desk.gateway.faults(lose_reply=1)
    assert (await guest.pay(reservation, "k")).status_code == 503
    return guest, reservation


async def _never_charged(desk: FrontDesk) -> tuple[Guest, str]:
    """A guest whose payment never reached the gateway, and who has not come back."""
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    desk.gateway.stop()
    assert (await guest.pay(reservation, "k")).status_code == 503
    desk.gateway.start()
    return guest, reservation


async def test_a_hold_that_was_charged_is_confirmed(any_desk: FrontDesk) -> None:
    guest, reservation = await _charged_unseen(any_desk)
    any_desk.clock.advance(minutes=3)
    assert await sweep(any_desk.parts) == Report(confirmed=1)
    assert (await any_desk.statuses(), await any_desk.booked()) == (["CONFIRMED"], {1: 1, 2: 1})
    assert (await any_desk.payments(), any_desk.gateway.events()) == (["CHARGED"], ["charged"])
    late = await guest.pay(reservation, "k")
    assert (late.status_code, late.json()["status"]) == (200, "CONFIRMED")
    assert late.json()["receipt"] == (await guest.state(reservation)).json()["receipt"] is not None


async def test_a_hold_that_was_never_charged_is_given_back_and_a_late_charge_refused(any_desk: FrontDesk) -> None:
    guest, reservation = await _never_charged(any_desk)
    any_desk.clock.advance(minutes=3)
    assert await sweep(any_desk.parts) == Report(given_back=1)
    assert (await any_desk.statuses(), await any_desk.booked()) == (["EXPIRED"], {})
    late = await guest.pay(reservation, "k")
    assert (late.status_code, code_of(late)) == (410, "expired")
    assert (await any_desk.payments(), any_desk.gateway.events()) == (["VOID"], ["closed"])


async def test_a_charge_that_slips_in_is_refunded(desk: FrontDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    guest, reservation = await _charged_unseen(desk)
    desk.clock.advance(minutes=3)

    async def not_yet(gateway: Gateway, key: str) -> None:
        """What the gateway said just before the charge arrived."""

    with monkeypatch.context() as patched:
        patched.setattr(Gateway, "find", not_yet)
        assert await sweep(desk.parts) == Report(given_back=1)
    assert (await guest.pay(reservation, "k")).status_code == 410
    assert (await desk.statuses(), await desk.booked(), await desk.payments()) == (["EXPIRED"], {}, ["REFUNDED"])
    assert desk.gateway.events() == ["charged", "refunded"]


async def test_a_payment_that_ends_while_its_charge_is_refunded_is_not_confirmed(
    any_desk: FrontDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest, reservation = await _charged_unseen(any_desk)
    any_desk.clock.advance(minutes=3)
    refund = Gateway.refund
    answers: list[httpx.Response] = []

    async def not_yet(gateway: Gateway, key: str) -> None:
        """What the gateway said just before the charge arrived."""

    async def refund_while_paying(gateway: Gateway, key: str) -> Charge:
        # The request got "charged" before this refund, and writes it down before the sweeper does its part.
        patched.setattr(Gateway, "find", find)
        answers.append(await guest.pay(reservation, "k"))
        return await refund(gateway, key)

    find = Gateway.find
    with monkeypatch.context() as patched:
        patched.setattr(Gateway, "find", not_yet)
        patched.setattr(Gateway, "refund", refund_while_paying)
        assert await sweep(any_desk.parts) == Report(given_back=1)
    assert [answer.status_code for answer in answers] == [410]
    assert (await any_desk.statuses(), await any_desk.payments()) == (["EXPIRED"], ["REFUNDED"])
    assert (await any_desk.booked(), any_desk.gateway.events()) == ({}, ["charged", "refunded"])


async def test_what_a_sweeper_that_died_has_begun_to_give_back_is_given_back_by_the_next(
    desk: FrontDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest, reservation = await _never_charged(desk)
    desk.clock.advance(minutes=3)

    async def unheard(gateway: Gateway, key: str) -> Charge:
        raise GatewaySilent

    with monkeypatch.context() as patched:
        patched.setattr(Gateway, "refund", unheard)
        assert await sweep(desk.parts) == Report(gateway_silent=1)
    # The charge is made in between; but the first sweeper has decided, and may have closed the key.
    assert (await guest.pay(reservation, "k")).status_code == 410
    assert (await desk.statuses(), await desk.booked()) == (["PAYING"], {1: 1, 2: 1})
    assert await sweep(desk.parts) == Report(given_back=1)
    assert (await desk.statuses(), await desk.booked(), await desk.payments()) == (["EXPIRED"], {}, ["REFUNDED"])
    assert desk.gateway.events() == ["charged", "refunded"]


async def test_a_declined_card_whose_reply_was_lost_leaves_the_draft(desk: FrontDesk) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    desk.gateway.faults(lose_reply=1)
    await guest.pay(reservation, "k", "tok_declined")
    desk.clock.advance(minutes=3)
    assert await sweep(desk.parts) == Report(given_back=1)
    assert (await desk.statuses(), await desk.booked()) == (["DETAILS_CONFIRMED"], {})
    assert (await guest.pay(reservation, "another")).status_code == 200


async def test_while_the_gateway_is_silent_the_rooms_stay_held(desk: FrontDesk) -> None:
    await _charged_unseen(desk)
    desk.clock.advance(minutes=3)
    desk.gateway.stop()
    assert await sweep(desk.parts) == Report(gateway_silent=1)
    assert (await desk.statuses(), await desk.booked()) == (["PAYING"], {1: 1, 2: 1})


async def test_a_hold_whose_time_is_not_over_is_left_alone(desk: FrontDesk) -> None:
    await _charged_unseen(desk)
    desk.clock.advance(minutes=1)
    assert await sweep(desk.parts) == Report()
    assert await desk.statuses() == ["PAYING"]


async def test_two_sweepers_at_once_give_rooms_back_once(build: Build, any_database: str) -> None:
    first = await build(any_database, rooms=3)
    second = await build(any_database, made=False)
    await (await first.guest()).pay(await (await first.guest()).ready_to_pay())  # somebody else's: 404, holds nothing
    paid = await first.guest()
    assert (await paid.pay(await paid.ready_to_pay())).status_code == 200
    await _never_charged(first)
    first.clock.advance(minutes=3)
    reports = await asyncio.gather(*(sweep(desk.parts) for desk in (first, second) * 2))
    assert sum(report.given_back for report in reports) == 1
    assert await first.booked() == {1: 1, 2: 1}


async def test_a_request_and_the_sweeper_at_once_confirm_once(build: Build, any_database: str) -> None:
    desk = await build(any_database)
    guest, reservation = await _charged_unseen(desk)
    desk.clock.advance(minutes=3)
    response, _ = await asyncio.gather(guest.pay(reservation, "k"), sweep(desk.parts))
    assert (response.status_code, await desk.payments(), await desk.booked()) == (200, ["CHARGED"], {1: 1, 2: 1})


async def test_drafts_expire(any_desk: FrontDesk) -> None:
    guest = await any_desk.guest()
    await guest.reserve()
    await guest.ready_to_pay()
    any_desk.clock.advance(minutes=14)
    await guest.reserve()
    any_desk.clock.advance(minutes=1)
    assert await sweep(any_desk.parts) == Report(drafts_expired=2)
    assert await any_desk.statuses() == ["EXPIRED", "EXPIRED", "STARTED"]


async def test_a_sweep_that_fails_is_followed_by_the_next(desk: FrontDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[int] = []
    twice = asyncio.Event()

    async def failing(parts: Any) -> Report:
        swept.append(1)
        if len(swept) == 2:
            twice.set()
        raise RuntimeError

    monkeypatch.setattr("examples.hotel.sweeper.sweep", failing)
    sweeping = asyncio.create_task(sweep_for_ever(desk.parts, desk.settings.reconcile_after))
    await asyncio.wait_for(twice.wait(), 60)
    sweeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sweeping


async def test_the_sweeper_can_be_run_by_hand(desk: FrontDesk) -> None:
    variables = {"HOTEL_DATABASE": desk.settings.database, "HOTEL_GATEWAY": desk.gateway.address}
    command = [sys.executable, "-m", "examples.hotel.sweeper"]
    process = await asyncio.to_thread(
        subprocess.run, command, env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    assert process.stdout == f"{Report()}\n"
