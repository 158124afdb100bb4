"""The gateway fails in every way it can, and the same key ends well: one charge, or none and the rooms given back."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.hotel import paying
from semel.errors import TransactionAborted
from tests.hotel.conftest import Build
from tests.hotel.front_desk import FrontDesk, code_of

pytestmark = pytest.mark.anyio


class Killed(BaseException):
    """Nothing of the application gets to see it."""


async def test_a_lost_reply_is_asked_for_and_not_charged_again(any_desk: FrontDesk) -> None:
    guest = await any_desk.guest()
    reservation = await guest.ready_to_pay()
    any_desk.gateway.faults(lose_reply=1)
    lost = await guest.pay(reservation, "k")
    assert (lost.status_code, code_of(lost)) == (503, "gateway-unavailable")
    any_desk.gateway.faults(die_before=1)  # whoever charges instead of asking gets no answer
    assert (await guest.pay(reservation, "k")).json()["status"] == "CONFIRMED"
    assert any_desk.gateway.events() == ["charged"]


async def test_a_gateway_that_stalls_is_asked_what_became_of_the_charge(build: Build, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/hotel.db"
    desk = await build(database, gateway_timeout=timedelta(seconds=0.2))
    patient = await build(database, made=False)
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    desk.gateway.faults(delay=600)
    stalled = await guest.pay(reservation, "k")
    assert (stalled.status_code, code_of(stalled)) == (503, "gateway-unavailable")
    assert "retry-after" in stalled.headers
    desk.gateway.faults(delay=0)  # the charge that was given up goes through after all
    assert (await guest.at(patient).pay(reservation, "k")).json()["status"] == "CONFIRMED"
    assert desk.gateway.events() == ["charged"]


async def test_while_the_gateway_is_down_the_client_is_told_to_come_back(desk: FrontDesk) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    desk.gateway.stop()
    for _ in range(2):
        response = await guest.pay(reservation, "k")
        assert (response.status_code, int(response.headers["retry-after"])) == (503, 1)
    assert (await desk.statuses(), await desk.booked()) == (["PAYING"], {1: 1, 2: 1})
    desk.gateway.start()
    assert (await guest.pay(reservation, "k")).json()["status"] == "CONFIRMED"
    assert desk.gateway.events() == ["charged"]


@pytest.mark.parametrize("fault", ["die_before", "die_after"])
async def test_a_gateway_that_dies_in_the_middle_charges_once(desk: FrontDesk, fault: str) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    desk.gateway.faults(**{fault: 1})
    assert (await guest.pay(reservation, "k")).status_code == 503
    desk.gateway.restart()
    assert (await guest.pay(reservation, "k")).status_code == 200
    assert desk.gateway.events() == ["charged"]


async def test_a_declined_reply_that_was_lost_gives_the_rooms_back(desk: FrontDesk) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()
    desk.gateway.faults(lose_reply=1)
    assert (await guest.pay(reservation, "k", "tok_declined")).status_code == 503
    assert (await guest.pay(reservation, "k", "tok_declined")).status_code == 402
    assert (await desk.booked(), desk.gateway.events()) == ({}, ["declined"])


async def test_a_request_cut_off_before_it_settles_goes_on_behind_the_charge(
    desk: FrontDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()

    async def killed(*arguments: object) -> bool:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(paying, "settle", killed)
        with pytest.raises(Killed):
            await guest.pay(reservation, "k")
    desk.gateway.stop()  # the charge is known to semel: nobody has to be asked
    assert (await guest.pay(reservation, "k")).json()["status"] == "CONFIRMED"
    assert desk.gateway.events() == ["charged"]


async def test_a_transaction_that_the_database_gave_up_is_run_again_by_the_same_key(
    desk: FrontDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = await desk.guest()
    reservation = await guest.ready_to_pay()

    async def aborted(*arguments: object) -> None:
        raise TransactionAborted("a deadlock, say")

    with monkeypatch.context() as patched:
        patched.setattr(paying, "_move", aborted)
        response = await guest.pay(reservation, "k")
    assert (response.status_code, code_of(response), response.headers["retry-after"]) == (503, "try-again", "1")
    assert await desk.booked() == {}
    assert (await guest.pay(reservation, "k")).status_code == 200


@pytest.mark.parametrize("step", ["hold", "confirm"])
async def test_a_transaction_that_the_database_gave_up_once_is_run_again_by_the_same_request(
    any_desk: FrontDesk, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    guest = await any_desk.guest()
    reservation = await guest.ready_to_pay()
    moves: list[object] = []
    move, before = paying._move, 0 if step == "hold" else 1

    async def aborted(*arguments: Any) -> None:
        moves.append(arguments)
        await move(*arguments)
        if len(moves) == before + 1:
            raise TransactionAborted("a deadlock, say")

    monkeypatch.setattr(paying, "_move", aborted)
    assert (await guest.pay(reservation, "k")).json()["status"] == "CONFIRMED"
    assert len(moves) == 3
    assert await any_desk.booked() == {1: 1, 2: 1}
    assert any_desk.gateway.events() == ["charged"]


async def test_a_hold_that_is_cut_off_holds_nothing(any_desk: FrontDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = await any_desk.guest()
    reservation = await guest.ready_to_pay()

    async def killed(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(paying, "_move", killed)
        with pytest.raises(Killed):
            await guest.pay(reservation, "k")
    assert (await any_desk.booked(), await any_desk.payments()) == ({}, [])
    assert (await guest.pay(reservation, "k")).status_code == 200
    assert await any_desk.booked() == {1: 1, 2: 1}


async def test_another_process_can_finish_what_one_began(build: Build, any_database: str) -> None:
    first = await build(any_database)
    second = await build(any_database, made=False)
    guest = await first.guest()
    reservation = await guest.ready_to_pay()
    first.gateway.faults(lose_reply=1)
    assert (await guest.pay(reservation, "k")).status_code == 503
    assert (await guest.at(second).pay(reservation, "k")).json()["status"] == "CONFIRMED"
    assert first.gateway.events() == ["charged"]
