"""Requests by name: one key until the outcome is definite, one answer after it."""

from __future__ import annotations

import gzip
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from semel.client import INTENT
from semel.errors import KeyReused
from semel.stores.sqlite import SqliteStore
from semel.testing.clock import VirtualClock
from tests.client.conftest import Open
from tests.client.doors import Door, in_thread, until
from tests.client.service import CutBefore, Hold, Say, Service


def test_what_succeeded_is_answered_without_sending_byte_for_byte(door: Door, service: Service) -> None:
    first, second = (door.post(f"{service.url}/pay", "buy") for _ in range(2))
    assert (first.status, first.body, first.headers["x-number"]) == (
        second.status,
        second.body,
        second.headers["x-number"],
    )
    assert (first.replayed, second.replayed) == (False, True)
    assert len(service.seen) == 1


def test_an_answer_that_is_encoded_is_given_again_as_it_was(door: Door, service: Service) -> None:
    service.next("/pay", Say(200, {"Content-Encoding": "gzip"}, gzip.compress(b"long" * 100)))
    assert [door.post(f"{service.url}/pay", "buy").body for _ in range(2)] == [b"long" * 100] * 2


def test_a_cookie_is_not_given_again(door: Door, service: Service) -> None:
    service.next("/pay", Say(200, {"Set-Cookie": "sid=abc"}))
    assert ["set-cookie" in door.post(f"{service.url}/pay", "buy").headers for _ in range(2)] == [True, False]


def test_another_process_gets_the_same_answer(open_door: Open, service: Service) -> None:
    open_door().post(f"{service.url}/pay", "buy")
    assert open_door().post(f"{service.url}/pay", "buy").replayed


def test_clients_of_another_name_share_nothing(open_door: Open, service: Service) -> None:
    for name in ("a", "b"):
        open_door(name=name).post(f"{service.url}/pay", "buy")
    assert len(set(service.keys())) == 2


@pytest.mark.parametrize("status", [400, 402, 404, 410, 413, 422])
def test_a_refusal_is_given_once_and_the_next_call_has_a_new_key(door: Door, service: Service, status: int) -> None:
    service.next("/pay", Say(status))
    assert door.post(f"{service.url}/pay", "buy").status == status
    assert door.post(f"{service.url}/pay", "buy", b"corrected").status == 201
    assert len(set(service.keys())) == 2


def test_a_refusal_behind_a_try_that_may_have_run_keeps_the_key(door: Door, service: Service) -> None:
    service.next("/pay", CutBefore(), Say(404), Say(404))
    assert door.post(f"{service.url}/pay", "buy").status == 404
    assert door.post(f"{service.url}/pay", "buy").status == 201
    assert len(set(service.keys())) == 1
    assert service.effects["/pay"] == 1


def test_a_refusal_that_the_service_has_recorded_ends_the_key_even_so(door: Door, service: Service) -> None:
    service.next("/pay", CutBefore(), Say(402), Say(402, headers={"Idempotency-Replayed": "true"}))
    assert door.post(f"{service.url}/pay", "buy").status == 402
    assert door.post(f"{service.url}/pay", "buy", b"another card").status == 201
    assert len(set(service.keys())) == 2


@pytest.mark.parametrize(("before", "after"), [("mine-1", "mine-2"), (None, "mine-2"), ("mine-1", None)])
def test_another_explicit_key_does_not_replace_that_of_an_unfinished_intent(
    open_door: Open, service: Service, before: str | None, after: str | None
) -> None:
    door = open_door(tries=1)
    service.next("/pay", Say(500))
    for key in (before, after):
        headers = {INTENT: "buy"} if key is None else {INTENT: "buy", "Idempotency-Key": key}
        door.request("POST", f"{service.url}/pay", headers=headers)
    first, second = (seen.headers["idempotency-key"] for seen in service.asked())
    assert first == second


def test_another_body_under_an_unfinished_intent_is_refused(open_door: Open, service: Service) -> None:
    door = open_door(tries=1)
    service.next("/pay", Say(500))
    door.post(f"{service.url}/pay", "buy")
    with pytest.raises(KeyReused):
        door.post(f"{service.url}/pay", "buy", b"other")
    assert len(service.seen) == 1


def test_another_body_under_an_intent_that_succeeded_is_refused(door: Door, service: Service) -> None:
    door.post(f"{service.url}/pay", "buy")
    with pytest.raises(KeyReused):
        door.post(f"{service.url}/pay", "buy", b"other")
    assert len(service.seen) == 1


@pytest.mark.parametrize("status", [401, 403, 429])
def test_what_was_turned_away_may_be_asked_again_with_another_body(
    open_door: Open, service: Service, status: int
) -> None:
    door = open_door(tries=1)
    service.next("/pay", Say(status))
    door.post(f"{service.url}/pay", "buy")
    assert door.pending() == []
    assert door.post(f"{service.url}/pay", "buy", b"other").status == 201


def test_a_sign_in_that_is_needed_behind_a_lost_try_keeps_the_key(door: Door, service: Service) -> None:
    service.next("/pay", CutBefore(), Say(401))
    assert door.post(f"{service.url}/pay", "buy").status == 401
    assert door.post(f"{service.url}/pay", "buy").status == 201
    assert service.effects["/pay"] == 1


def test_the_same_intent_at_another_address_is_another_request(door: Door, service: Service) -> None:
    door.post(f"{service.url}/pay", "buy")
    door.post(f"{service.url}/ship", "buy")
    assert len(set(service.keys())) == 2


def test_one_in_doubt_keeps_its_key_when_the_refusals_before_it_have_expired(
    open_door: Open, service: Service, keys: Path
) -> None:
    clock = VirtualClock()
    place = SqliteStore(keys, clock=clock.store_clock)
    service.next("/pay", Say(402), CutBefore())
    first = open_door(place, tries=1, retention=timedelta(days=9))
    assert first.post(f"{service.url}/pay", "buy").status == 402
    with pytest.raises(Exception):  # noqa: B017, PT011 - each library has its own
        first.post(f"{service.url}/pay", "buy")
    clock.advance(25 * 3600)
    second = open_door(SqliteStore(keys, clock=clock.store_clock), retention=timedelta(days=9))
    assert second.post(f"{service.url}/pay", "buy").status == 201
    assert service.keys()[1] == service.keys()[2]
    assert service.effects["/pay"] == 1


def test_two_at_once_are_one_request(open_door: Open, service: Service) -> None:
    hold = Hold()
    service.next("/pay", hold)
    doors = [open_door(), open_door()]
    first = in_thread(lambda: doors[0].post(f"{service.url}/pay", "buy"))
    assert hold.arrived.wait(60)
    second = in_thread(lambda: doors[1].post(f"{service.url}/pay", "buy"))
    third = in_thread(lambda: doors[0].post(f"{service.url}/pay", "buy"))
    hold.go.set()
    answers = [call.result(60) for call in (first, second, third)]
    assert {answer.body for answer in answers} == {b'{"path": "/pay"}'}
    assert sorted(answer.replayed for answer in answers) == [False, True, True]
    assert len(service.seen) == 1


def test_many_threads_of_one_client_have_keys_of_their_own(open_door: Open, service: Service) -> None:
    door, barrier = open_door(), threading.Barrier(8)

    def post() -> int:
        barrier.wait(60)
        return door.post(f"{service.url}/pay").status

    calls = [in_thread(post) for _ in range(8)]
    assert [call.result(60) for call in calls] == [201] * 8
    assert len(set(service.keys())) == 8


def test_a_refusal_to_one_makes_the_other_ask_for_itself(open_door: Open, service: Service) -> None:
    arrived, go = threading.Event(), threading.Event()

    def on_arrival(_: object) -> None:
        if len(service.seen) == 1:
            arrived.set()
            go.wait(60)

    service.on_arrival = on_arrival
    service.next("/pay", Say(402))
    doors = [open_door(), open_door()]
    first = in_thread(lambda: doors[0].post(f"{service.url}/pay", "buy"))
    assert arrived.wait(60)
    second = in_thread(lambda: doors[1].post(f"{service.url}/pay", "buy"))
    until(lambda: len(doors[1].pending()) == 1)
    go.set()
    assert (first.result(60).status, second.result(60).status) == (402, 201)
    assert len(set(service.keys())) == 2
