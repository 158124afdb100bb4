"""Taken up again: what a process left unfinished is sent by the next one, with the same key."""

from __future__ import annotations

import base64
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from semel import Semel
from semel.client.models import INTENT
from semel.errors import FailedBefore, KeyReused, KeyTooOld, LeaseLost
from semel.stores.sqlite import SqliteStore
from semel.testing.clock import VirtualClock
from tests.client.conftest import Open
from tests.client.doors import Door, in_thread, until
from tests.client.service import Hold, Say, Seen, Service

CANARIES = ("canary-token", "canary-cookie", "canary-header", "canary-user", "canary-password")


def left_open(door: Door, service: Service, **more: Any) -> None:
    """A request whose outcome is not known."""
    service.next("/pay", *([Say(500)] * 8))
    assert door.post(f"{service.url}/pay", **more).status == 500
    service.turns["/pay"].clear()


@pytest.mark.parametrize("intent", [None, "buy"])
def test_a_request_whose_process_died_is_sent_with_the_same_key(
    open_door: Open, service: Service, keys: Path, intent: str | None
) -> None:
    clock = VirtualClock()
    dead, alive = (open_door(SqliteStore(keys, clock=clock.store_clock)) for _ in range(2))
    hold = Hold()
    service.next("/pay", hold)
    call = in_thread(lambda: dead.post(f"{service.url}/pay", intent, b"body"))
    assert hold.arrived.wait(60)
    dead.lose_store()
    clock.advance(60)
    [resumed] = alive.resume()
    assert resumed.error is None
    assert resumed.response is not None
    assert (resumed.response.status, service.seen[1].body) == (201, b"body")
    hold.go.set()
    # The dead one may speak up once more: it has lost its lease, and says what was recorded.
    error = call.exception(60)
    assert isinstance(error, LeaseLost) if error is not None else call.result().replayed
    assert len(set(service.keys())) == 1
    assert service.effects["/pay"] == 1
    assert alive.pending() == []


def test_what_is_resumed_is_listed_first(open_door: Open, service: Service) -> None:
    door = open_door(tries=1)
    left_open(door, service, intent="buy", body=b"body")
    [pending] = door.pending()
    assert (pending.intent, pending.place) == ("buy", f"POST {service.url}/pay")
    assert pending.request is not None
    assert pending.request.body == b"body"


def test_resuming_twice_sends_once(open_door: Open, service: Service) -> None:
    left_open(open_door(tries=1), service)
    door = open_door()
    assert (len(door.resume()), len(door.resume())) == (1, 0)
    assert len(set(service.keys())) == 1


def test_an_error_of_one_does_not_keep_the_others_from_being_sent(open_door: Open, service: Service) -> None:
    door = open_door(tries=1)
    left_open(door, service, intent="old")
    left_open(door, service, intent="new")
    first, *_ = door.pending()
    service.always["/pay"] = Say(500)
    assert [each.response is not None for each in door.resume()] == [True, True]
    assert len(door.pending()) == 2
    assert door.forget(first.intent) == 1
    assert len(door.pending()) == 1


def test_what_the_client_adds_to_every_address_is_not_added_twice(open_door: Open, service: Service) -> None:
    door = open_door(tries=1, params={"tenant": "a"})
    service.always["/pay?x=1"] = service.always["/pay?tenant=a"] = service.always["/pay?x=1&tenant=a"] = Say(500)
    door.post(f"{service.url}/pay?x=1")
    [resumed] = door.resume()
    assert not isinstance(resumed.error, KeyReused)
    assert service.seen[0].path == service.seen[1].path
    assert len(set(service.keys())) == 1


def test_without_the_request_only_the_intent_is_known(open_door: Open, service: Service, keys: Path) -> None:
    door = open_door(tries=1, keep_request=False)
    left_open(door, service, intent="buy", body=b"private-body")
    [resumed] = door.resume()
    assert (resumed.pending.request, resumed.response, resumed.error) == (None, None, None)
    assert len(service.seen) == 1
    assert door.post(f"{service.url}/pay", "buy", b"private-body").status == 201
    assert len(set(service.keys())) == 1
    assert b"private-body" not in _on_disk(keys)


def test_a_forgotten_intent_takes_a_new_key(open_door: Open, service: Service) -> None:
    door = open_door(tries=1)
    left_open(door, service, intent="buy")
    assert (door.forget("buy"), door.forget("buy")) == (1, 0)
    assert door.post(f"{service.url}/pay", "buy", b"other").status == 201
    assert len(set(service.keys())) == 2


def test_what_is_being_sent_cannot_be_forgotten(open_door: Open, service: Service) -> None:
    hold = Hold()
    service.next("/pay", hold)
    door = open_door()
    call = in_thread(lambda: door.post(f"{service.url}/pay", "buy"))
    assert hold.arrived.wait(60)
    assert open_door().forget("buy") == 0
    hold.go.set()
    assert call.result(60).status == 201


def test_an_explicit_key_is_sent_again_as_it_was(open_door: Open, service: Service) -> None:
    door = open_door(tries=1)
    left_open(door, service, Idempotency_Key="mine-1")
    [resumed] = door.resume()
    assert resumed.response is not None
    assert [seen.headers["idempotency-key"] for seen in service.seen] == ["mine-1", "mine-1"]


def test_no_credential_is_on_disk_and_those_of_the_next_client_are_sent(
    open_door: Open, service: Service, keys: Path
) -> None:
    door = open_door(tries=1)
    service.always["/pay"] = Say(500)
    url = service.url.replace("//", "//canary-user:canary-password@")
    secrets = {"Authorization": "Bearer canary-token", "Cookie": "sid=canary-cookie", "X-Api-Key": "canary-header"}
    door.request("POST", f"{service.url}/pay", b"kept-body", secrets)
    door.request("POST", f"{url}/pay", b"kept-body", {INTENT: "with user"})
    written = _on_disk(keys)
    assert b"kept-body" in written
    assert [canary for canary in CANARIES if canary.encode() in written] == []
    service.always.clear()
    for each in open_door(headers={"Authorization": "Bearer next"}).resume():
        assert each.response is not None
    assert [seen.headers["authorization"] for seen in service.seen[2:]] == ["Bearer next"] * 2
    assert base64.b64encode(b"canary-user:canary-password").decode() in service.seen[1].headers["authorization"]


def test_headers_that_describe_the_body_are_kept(open_door: Open, service: Service) -> None:
    door = open_door(tries=1, keep_headers=["X-Tenant"])
    left_open(door, service, Content_Type="application/json", X_Tenant="t-1", X_Other="o-1")
    door.resume()
    again = service.seen[1].headers
    assert (again["content-type"], again["x-tenant"], again.get("x-other")) == ("application/json", "t-1", None)


@pytest.mark.parametrize("told", [True, False], ids=["by the policy document", "by the setting"])
def test_a_key_that_the_service_may_have_forgotten_is_not_sent_again(
    open_door: Open, service: Service, *, told: bool
) -> None:
    time = [1_000_000.0]
    service.policy = _policy(60) if told else Say(404)
    door = open_door(tries=1, now=lambda: time[0], retention=timedelta(hours=9) if told else timedelta(seconds=60))
    left_open(door, service, intent="buy")
    time[0] += 59
    [resumed] = door.resume()
    assert isinstance(resumed.error, KeyTooOld)
    assert "first sent 59 seconds ago, and the service remembers keys for 60" in str(resumed.error)
    assert len(service.asked()) == 1
    assert len(door.pending()) == 1
    assert door.forget("buy") == 1


def test_a_key_that_the_service_remembers_longer_than_assumed_is_sent_again(open_door: Open, service: Service) -> None:
    time = [1_000_000.0]
    service.policy = _policy(7200)
    door = open_door(tries=1, now=lambda: time[0], retention=timedelta(seconds=60))
    left_open(door, service, intent="buy")
    time[0] += 3600
    [resumed] = door.resume()
    assert resumed.response is not None
    assert resumed.response.status == 201
    assert service.seen[-1].key == service.seen[0].key


def test_the_first_send_counts_and_not_the_last(open_door: Open, service: Service) -> None:
    time = [1_000_000.0]
    door = open_door(tries=1, now=lambda: time[0], retention=timedelta(seconds=100))
    service.always["/pay"] = Say(500)
    door.post(f"{service.url}/pay", "buy")
    time[0] += 60
    door.post(f"{service.url}/pay", "buy")
    time[0] += 60
    with pytest.raises(KeyTooOld):
        door.post(f"{service.url}/pay", "buy")
    assert len(service.asked()) == 2


def test_a_document_that_could_not_be_had_is_asked_for_again(open_door: Open, service: Service) -> None:
    time = [1_000_000.0]
    door = open_door(tries=1, now=lambda: time[0], retention=timedelta(hours=9))
    left_open(door, service, intent="buy")
    service.policy, service.always["/pay"] = Say(503), Say(503)
    time[0] += 10
    [resumed] = door.resume()
    assert resumed.response is not None
    service.policy = _policy(60)
    service.always.clear()
    time[0] += 60
    [resumed] = door.resume()
    assert isinstance(resumed.error, KeyTooOld)
    assert len(service.asked()) == 2


def test_a_clock_that_was_set_back_makes_no_key_young_again(open_door: Open, service: Service) -> None:
    time = [1_000_000.0]
    door = open_door(tries=1, now=lambda: time[0], retention=timedelta(hours=1))
    left_open(door, service, intent="buy")
    time[0] -= 7200
    [resumed] = door.resume()
    assert isinstance(resumed.error, KeyTooOld)
    assert "this clock has not reached yet" in str(resumed.error)
    assert len(service.asked()) == 1


def test_one_call_does_not_go_on_past_the_retention(open_door: Open, service: Service) -> None:
    clock, service.policy = VirtualClock(), _policy(600)
    door = open_door(
        clock=clock,
        now=lambda: 1_000_000.0 + clock.monotonic(),
        give_up_after=timedelta(hours=2),
        lease_for=timedelta(days=9),
    )
    service.next("/pay", Say(500, {"Retry-After": "3600"}))
    call = in_thread(lambda: door.post(f"{service.url}/pay", "buy"))
    until(lambda: len(service.seen) == 1 and 3600 <= (clock.next_due(after=3600) or 0) <= 3601)
    clock.advance(3601)
    assert isinstance(call.exception(60), KeyTooOld)
    assert len(service.asked()) == 1


@pytest.mark.parametrize("ended", ["refused", "forgotten", "done"])
def test_what_somebody_else_has_ended_meanwhile_is_not_sent(open_door: Open, service: Service, ended: str) -> None:
    first, second = open_door(tries=1), open_door(tries=1)
    service.always["/other"] = Say(500)
    first.post(f"{service.url}/other", "the one before")
    left_open(first, service, intent="buy")
    service.always["/other"] = Say(200)
    asked = len(service.asked("/pay"))

    def end(seen: Seen) -> None:
        if seen.path == "/other":
            service.next("/pay", Say(402, {"Idempotency-Replayed": "true"}))
            if ended == "forgotten":
                first.forget("buy")
            elif ended == "refused":
                assert first.post(f"{service.url}/pay", "buy").status == 402
            else:
                service.turns["/pay"].clear()
                assert first.post(f"{service.url}/pay", "buy").status == 201

    service.on_arrival = end
    _, resumed = second.resume()
    service.turns["/pay"].clear()
    assert len(service.asked("/pay")) == asked + (ended != "forgotten")
    if ended == "done":
        assert resumed.response is not None
        assert resumed.response.replayed
    else:
        assert isinstance(resumed.error, FailedBefore)


def test_what_another_process_was_told_has_not_run_is_not_sent(open_door: Open, service: Service) -> None:
    arrived, go = threading.Event(), threading.Event()
    first, second = open_door(tries=1), open_door(tries=1)
    service.always["/other"] = Say(500)
    first.post(f"{service.url}/other")
    service.always["/pay"], service.always["/other"] = Say(429), Say(200)

    def end(seen: Seen) -> None:
        if seen.path == "/pay":
            arrived.set()
            go.wait(60)
        else:  # the request before it is being resumed, so this one is on the list
            go.set()
            assert call.result(60).status == 429

    service.on_arrival = end
    call = in_thread(lambda: first.post(f"{service.url}/pay"))
    assert arrived.wait(60)
    _, resumed = second.resume()
    assert isinstance(resumed.error, FailedBefore)
    assert len(service.asked("/pay")) == 1


def test_inside_a_handler_it_is_sent_with_its_own_key_too(open_door: Open, service: Service, tmp_path: Path) -> None:
    door = open_door(tries=1)
    left_open(door, service)
    with Semel(tmp_path / "jobs.db") as semel:
        assert semel.run("nightly", lambda: len(door.resume()), operation="resume", fingerprint=None).value == 1
    assert door.pending() == []
    assert len(set(service.keys())) == 1


def _policy(seconds: int) -> Say:
    body = b'{"routes": [{"path": "/pay", "methods": ["POST"], "retentionSeconds": %d}]}' % seconds
    return Say(200, {"Content-Type": "application/json"}, body)


def _on_disk(keys: Path) -> bytes:
    return b"".join(file.read_bytes() for file in keys.parent.glob(f"{keys.name}*"))
