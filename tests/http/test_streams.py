"""Streams without an end, over real sockets: nobody stops listening for nothing, and every one of them ends."""

from __future__ import annotations

import json

import pytest

from tests.http.asking import Asker, new_key
from tests.http.conftest import Start
from tests.http.sites import SITES
from tests.http.wire import Wire, head

pytestmark = [pytest.mark.slow, pytest.mark.covering]

KEPT = 1000
NOT_KEPT = "urn:semel:problem:response-not-kept"
LENGTH = "urn:semel:problem:response-length"
IDENTITY = (("Accept-Encoding", "identity"),)  # who packs an answer sets its length anew
IN_PARTS = ("stacked_app",)  # middleware that sends every answer in parts, before its end is known
AWAITED = [name for name, site in SITES.items() if site.server != "gunicorn"]


def begin(port: int, path: str, key: str, least: int = 1) -> Wire:
    """A client that has asked, and has the beginning of its answer."""
    wire = Wire(port)
    wire.send(head("POST", path, f"Idempotency-Key: {key}", length=0))
    status, _ = wire.start()
    assert status == 200
    wire.read(least)
    return wire


def assert_is_done_and_not_kept(asker: Asker, path: str, key: str) -> None:
    again = asker.ask(path, key, body=b"")
    assert (again.status_code, again.json()["type"]) == (409, NOT_KEPT)


def test_a_stream_of_which_nothing_is_kept_ends_when_its_client_leaves(asker: Asker) -> None:
    key, before = new_key(), asker.running.effects()
    begin(asker.running.port, "/endless", key, 2 * KEPT).close()
    assert asker.running.gate.hear() == "stopped"
    assert_is_done_and_not_kept(asker, "/endless", key)
    assert asker.running.effects() == before + 1


def test_a_stream_that_goes_on_without_its_client_ends_once_it_is_too_large(asker: Asker) -> None:
    key = new_key()
    begin(asker.running.port, "/endless", key).close()
    assert asker.running.gate.hear() == "stopped"
    assert_is_done_and_not_kept(asker, "/endless", key)


def test_a_stream_that_goes_on_without_its_client_ends_after_a_while(asker: Asker) -> None:
    key = new_key()
    begin(asker.running.port, "/ticking", key).close()
    assert asker.running.gate.hear() == "stopped"
    assert_is_done_and_not_kept(asker, "/ticking", key)


def test_a_stream_ends_at_max_runtime_and_its_client_is_cut_off(asker: Asker) -> None:
    key = new_key()
    wire = begin(asker.running.port, "/lasting", key)
    assert asker.running.gate.hear() == "stopped"
    assert not wire.end().endswith(b"0\r\n\r\n"), "the client was told that it has everything"
    wire.close()
    assert_is_done_and_not_kept(asker, "/lasting", key)


def test_a_stream_that_has_an_end_is_kept_although_its_client_left(asker: Asker) -> None:
    key = new_key()
    wire = begin(asker.running.port, "/events", key)
    visitor = asker.running.gate.visitor()
    wire.close()
    again = asker.later("/events", key, body=b"")
    visitor.go()
    assert again.result().content == b"data: one\n\ndata: two\n\ndata: three\n\n"
    assert again.result().headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize("name", AWAITED)
def test_a_stream_that_only_waits_is_stopped_where_it_is_awaited(start: Start, name: str) -> None:
    asker, key = Asker(start(name)), new_key()
    begin(asker.running.port, "/silent", key).close()
    assert asker.running.gate.hear() == "stopped"
    assert_is_done_and_not_kept(asker, "/silent", key)


@pytest.mark.parametrize("name", SITES)
def test_a_server_that_is_told_to_end_ends_once_the_client_of_a_stream_has_left(start: Start, name: str) -> None:
    site = start(name)
    wire = begin(site.port, "/endless", new_key(), 2 * KEPT)
    site.terminate()
    wire.close()
    assert site.gate.hear() == "stopped"
    site.wait()


@pytest.mark.parametrize(("path", "promised"), [("/short", 20), ("/long", 7)])
def test_a_stream_that_contradicts_its_length_is_cut_off_and_never_replayed(
    asker: Asker, path: str, promised: int
) -> None:
    key, before = new_key(), asker.running.effects()
    wire = begin(asker.running.port, path, key)
    rest = wire.end()
    wire.close()
    assert 1 + len(rest) < promised, f"the client has all the bytes that it was promised: {rest!r}"
    assert_is_done_and_not_kept(asker, path, key)
    assert asker.running.effects() == before + 1


@pytest.mark.parametrize("given", [9, 11, 0])
def test_an_answer_that_contradicts_its_length_is_500_and_never_replayed(asker: Asker, given: int) -> None:
    key, before = new_key(), asker.running.effects()
    path = f"/length?given={given}"
    wire = Wire(asker.running.port)
    wire.send(head("POST", path, f"Idempotency-Key: {key}", "Connection: close", length=0))
    status, headers = wire.start()
    body = wire.end()
    wire.close()
    if asker.running.site.app in IN_PARTS and given > 10:
        assert len(body) < int(dict(headers)["content-length"]), "it had begun to leave, and is not cut off"
    else:
        assert (status, json.loads(body)["type"]) == (500, LENGTH)
    assert_is_done_and_not_kept(asker, path, key)
    assert asker.running.effects() == before + 1


def test_an_answer_that_says_nothing_happened_and_contradicts_its_length_may_be_asked_for_again(asker: Asker) -> None:
    key, before = new_key(), asker.running.effects()
    answers = [asker.ask("/length?given=9&code=422", key, headers=IDENTITY) for _ in range(2)]
    assert [(answer.status_code, answer.json()["type"]) for answer in answers] == [(500, LENGTH)] * 2
    assert asker.running.effects() == before + 2


def test_an_answer_of_the_length_that_it_says_is_kept(asker: Asker) -> None:
    key, path = new_key(), "/length?given=10"
    assert asker.ask(path, key).content == asker.ask(path, key).content == b"1234567890"
