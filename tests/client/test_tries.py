"""Asked again: when, how often, and always with the same key."""

from __future__ import annotations

from datetime import timedelta

import pytest

from semel.testing.clock import VirtualClock
from tests.client.conftest import Open
from tests.client.doors import LOST, Door, Requests, in_thread, until
from tests.client.service import CutBefore, CutInside, Say, Service, Turn

PROBLEM = {"Content-Type": "application/problem+json"}


@pytest.mark.parametrize(
    "turn",
    [CutBefore(), CutInside(), CutInside(chunked=True), Say(500), Say(503), Say(409), Say(429), Say(408), Say(425)],
    ids=repr,
)
def test_what_leaves_it_open_is_asked_again_with_the_same_key(door: Door, service: Service, turn: Turn) -> None:
    service.next("/pay", turn, turn)
    got = door.post(f"{service.url}/pay")
    assert (got.status, got.body) == (201, b'{"path": "/pay"}')
    assert len(service.keys()) == 3
    assert len(set(service.keys())) == 1
    assert service.effects["/pay"] == 1


def test_the_answer_of_a_later_try_is_not_called_a_replay(door: Door, service: Service) -> None:
    service.next("/pay", CutBefore())
    assert not door.post(f"{service.url}/pay").replayed


@pytest.mark.parametrize("status", [503, 429, 409])
def test_it_waits_as_long_as_the_service_says(open_door: Open, service: Service, status: int) -> None:
    clock = VirtualClock()
    door = open_door(clock=clock, lease_for=timedelta(hours=1), first_pause=timedelta(milliseconds=100))
    service.next("/pay", Say(status, {"Retry-After": "7"}))
    call = in_thread(lambda: door.post(f"{service.url}/pay"))
    until(lambda: len(service.seen) == 1 and 7.0 <= (clock.next_due(after=7.0) or 0) <= 7.06)
    clock.advance(6.9)
    assert len(service.seen) == 1
    clock.advance(0.2)
    assert call.result(60).status == 201
    assert len(set(service.keys())) == 1


def test_a_pause_that_is_longer_than_patience_is_not_begun(open_door: Open, service: Service) -> None:
    service.always["/pay"] = Say(503, {"Retry-After": "61"})
    assert open_door().post(f"{service.url}/pay").status == 503
    assert len(service.seen) == 1


def test_a_conflict_of_another_kind_is_given_at_once(door: Door, service: Service) -> None:
    service.next("/pay", Say(409, PROBLEM, b'{"type": "https://shop.example/sold-out"}'))
    assert door.post(f"{service.url}/pay").status == 409
    assert len(service.seen) == 1
    assert door.pending() == []


def test_an_outcome_that_the_service_does_not_know_is_given_at_once_and_kept(door: Door, service: Service) -> None:
    service.next("/pay", Say(409, PROBLEM, b'{"type": "urn:semel:problem:in-doubt"}'))
    assert door.post(f"{service.url}/pay").status == 409
    assert len(service.seen) == 1
    assert len(door.pending()) == 1


def test_tries_are_bounded_and_the_last_answer_is_given(open_door: Open, service: Service) -> None:
    service.always["/pay"] = Say(503, body=b"down")
    got = open_door(tries=3).post(f"{service.url}/pay")
    assert (got.status, got.body) == (503, b"down")
    assert len(service.seen) == 3


def test_the_librarys_own_error_is_raised_and_says_that_the_key_is_kept(open_door: Open, service: Service) -> None:
    door = open_door(tries=2)
    service.next("/pay", CutBefore(), CutBefore())
    with pytest.raises(LOST) as caught:
        door.post(f"{service.url}/pay", "buy")
    assert "ask again with Semel-Intent: buy" in caught.value.__notes__[0]
    assert door.post(f"{service.url}/pay", "buy").status == 201
    assert len(set(service.keys())) == 1


def test_what_was_never_connected_leaves_nothing_unfinished(open_door: Open, service: Service) -> None:
    door = open_door(tries=2)
    with pytest.raises(LOST) as caught:
        door.post("http://127.0.0.1:1/pay", "buy")
    assert not hasattr(caught.value, "__notes__")
    assert door.pending() == []


def test_an_intent_outlives_any_number_of_calls_that_never_connected(open_door: Open, service: Service) -> None:
    door = open_door(tries=1)
    for _ in range(20):
        with pytest.raises(LOST):
            door.post("http://127.0.0.1:1/pay", "buy")
    engine = door._engine  # type: ignore[attr-defined]
    if isinstance(door, Requests):  # the records are the same for every door; one that is not awaited can list them
        assert len(list(engine.records(business_key="buy"))) == 1


def test_cookies_of_an_answer_reach_the_session(door: Door, service: Service) -> None:
    service.next("/login", Say(200, {"Set-Cookie": "sid=abc; Path=/"}))
    door.post(f"{service.url}/login")
    door.post(f"{service.url}/pay")
    assert service.seen[-1].headers["cookie"] == "sid=abc"


def test_a_redirect_keeps_method_and_gets_a_key_of_its_own(open_door: Open, service: Service) -> None:
    service.next("/old", Say(307, {"Location": f"{service.url}/new"}))
    got = open_door().post(f"{service.url}/old", "buy")
    if got.status == 307:  # httpx follows only when it is told to
        got = open_door(follow_redirects=True).post(f"{service.url}/old", "buy")
    assert got.status == 201
    assert len(service.keys("/old")) == 1
    assert set(service.keys("/old")).isdisjoint(service.keys("/new"))


def test_a_storm_of_calls_against_a_dead_service_stays_small(open_door: Open, service: Service) -> None:
    door = open_door(budget=10)
    service.always["/pay"] = Say(503)
    for _ in range(60):
        assert door.post(f"{service.url}/pay").status == 503
    assert 60 < len(service.seen) <= 60 + 10 + (60 + 10) // 9 + 1
