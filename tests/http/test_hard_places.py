"""The hard places, over real sockets: cut uploads, clients that leave, framing, many processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.http.asking import Asker, new_key
from tests.http.conftest import Start
from tests.http.wire import Wire, head

pytestmark = [pytest.mark.slow, pytest.mark.covering]

BODY = b'{"amount": 10}'
JSON = "Content-Type: application/json"


@pytest.fixture
def wire(asker: Asker) -> Iterator[Wire]:
    """A connection to the site."""
    wire = Wire(asker.running.port)
    yield wire
    wire.close()


def test_an_upload_cut_off_in_the_middle_is_never_executed(asker: Asker, wire: Wire) -> None:
    key, before = new_key(), asker.running.effects()
    wire.send(head("POST", "/orders", JSON, f"Idempotency-Key: {key}", length=len(BODY)) + BODY[:5])
    wire.finish()
    wire.end()  # the server has closed: it is done with this request
    assert asker.running.effects() == before
    assert asker.ask("/orders", key, body=BODY).status_code == 201


def test_a_chunked_upload_cut_off_in_the_middle_is_never_executed(asker: Asker, wire: Wire) -> None:
    key, before = new_key(), asker.running.effects()
    chunked = head("POST", "/orders", JSON, f"Idempotency-Key: {key}", "Transfer-Encoding: chunked")
    wire.send(chunked + b"5\r\n" + BODY[:5] + b"\r\n")
    wire.finish()
    wire.end()
    assert asker.running.effects() == before
    assert asker.ask("/orders", key, body=BODY).status_code == 201


def test_a_client_that_leaves_after_the_body_does_not_stop_the_handler(asker: Asker, wire: Wire) -> None:
    key, before = new_key(), asker.running.effects()
    wire.send(head("POST", "/slow", JSON, f"Idempotency-Key: {key}", length=len(BODY)) + BODY)
    visitor = asker.running.gate.visitor()
    wire.close()
    again = asker.later("/slow", key, body=BODY)
    visitor.go()
    assert again.result().status_code == 201
    assert again.result().headers["idempotency-replayed"] == "true"
    assert asker.running.effects() == before + 1


def test_a_connection_can_be_used_again_after_a_replay(asker: Asker, wire: Wire) -> None:
    for path in ("/empty", "/empty", "/null", "/null", "/binary", "/binary"):
        wire.send(head("POST", path, f"Idempotency-Key: of-{path[1:]}-{id(wire)}", length=0))
        assert wire.answer().status in (200, 204)


def test_a_replay_without_content_says_nothing_of_its_length(asker: Asker, wire: Wire) -> None:
    key = new_key()
    asker.ask("/empty", key, body=b"")
    wire.send(head("POST", "/empty", f"Idempotency-Key: {key}", length=0))
    answer = wire.answer()
    assert (answer.status, answer.header("transfer-encoding")) == (204, [])
    assert answer.header("content-length") in ([], ["0"])


def test_header_lines_of_a_replay_stand_as_they_stood(asker: Asker, wire: Wire) -> None:
    key = new_key()
    lines = []
    for _ in range(2):
        wire.send(head("POST", "/headers", f"Idempotency-Key: {key}", length=0))
        lines.append(wire.answer().header("link"))
    assert lines[0] == lines[1]


def test_the_policy_has_a_head(asker: Asker, wire: Wire) -> None:
    wire.send(head("HEAD", "/.well-known/idempotency-policy"))
    assert wire.answer(bodyless=True).status == 200
    wire.send(head("GET", "/.well-known/idempotency-policy"))
    assert wire.answer().status == 200


def test_a_body_over_the_limit_is_413_and_nothing_runs(asker: Asker) -> None:
    before = asker.running.effects()
    answer = asker.ask("/echo", new_key(), body=b"x" * 100_001, content_type="text/plain")
    assert answer.status_code == 413
    assert asker.running.effects() == before


def test_a_duplicate_is_409_with_a_time_to_come_back_where_it_may_not_wait(asker: Asker) -> None:
    key = new_key()
    first = asker.later("/busy", key)
    visitor = asker.running.gate.visitor()
    answer = asker.ask("/busy", key)
    visitor.go()
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:semel:problem:in-progress")
    assert int(answer.headers["retry-after"]) >= 1
    assert first.result().status_code == 201


@pytest.mark.parametrize("name", ["starlette-uvicorn", "flask-gunicorn"])
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_fifty_duplicates_over_four_processes_run_once(start: Start, name: str, store: str) -> None:
    site = start(name, store, workers=4)
    asker, key = Asker(site), new_key()
    first = asker.later("/slow", key)
    visitor = site.gate.visitor()
    others = [asker.later("/slow", key) for _ in range(49)]
    visitor.go()
    answers = Counter(answer.result().content for answer in (first, *others))
    assert list(answers.values()) == [50]
    assert site.effects() == 1
    assert site.gate.is_empty()
