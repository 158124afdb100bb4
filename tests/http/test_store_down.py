"""The server of the store goes away under a running site: nothing runs twice, nobody is told what is not recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from tests.http.asking import Asker, new_key
from tests.http.sites import SITES, Running
from tests.servers.postgresql import PostgresqlServer

pytestmark = [pytest.mark.slow, pytest.mark.covering(shared=("site",))]  # each test starts its site anew

StartServer = Callable[..., AbstractContextManager[PostgresqlServer]]


@pytest.fixture(scope="module")
def server(start_postgresql: StartServer) -> Iterator[PostgresqlServer]:
    """A server that these tests may stop."""
    with start_postgresql() as server:
        yield server


@pytest.fixture(params=["starlette-uvicorn", "flask-gunicorn", "django-gunicorn"])
def site(request: pytest.FixtureRequest, server: PostgresqlServer, tmp_path: Path) -> Iterator[Running]:
    """A site over that server, which runs again afterwards."""
    running = Running(SITES[request.param], f"{server.new_database()}?connect_timeout=2", tmp_path)
    yield running
    if not server.is_alive:
        server.start()
    running.close()


def kind(answer: httpx.Response) -> tuple[int, str, str]:
    """Status, content type and name of a problem."""
    said = answer.json()["type"].removeprefix("urn:semel:problem:")
    return answer.status_code, answer.headers["content-type"], said


UNAVAILABLE = (503, "application/problem+json", "store-unavailable")
NOT_RECORDED = (503, "application/problem+json", "not-recorded")


def persistent(asker: Asker, path: str, key: str) -> httpx.Response:
    """The answer to one who comes back as long as the store is left alone."""
    while (answer := asker.ask(path, key)).status_code == 503 and kind(answer) == UNAVAILABLE:
        pass
    return answer


@pytest.mark.parametrize("used", [True, False], ids=["after a request", "from the start"])
def test_a_keyed_request_is_503_and_nothing_runs(asker: Asker, server: PostgresqlServer, used: bool) -> None:
    if used:
        asker.ask("/orders", new_key())
    before = asker.running.effects()
    server.stop()
    answer = asker.ask("/orders", new_key())
    assert kind(answer) == UNAVAILABLE
    assert int(answer.headers["retry-after"]) >= 1
    assert "nothing ran" in answer.json()["detail"]
    assert asker.running.effects() == before


def test_a_replay_is_503_too(asker: Asker, server: PostgresqlServer) -> None:
    key = new_key()
    asker.ask("/orders", key)
    server.stop()
    assert kind(asker.ask("/orders", key)) == UNAVAILABLE
    assert asker.running.effects() == 1


def test_a_request_without_a_key_passes(asker: Asker, server: PostgresqlServer) -> None:
    server.stop()
    assert asker.ask("/orders").status_code == 201
    assert asker.running.effects() == 1


def test_what_is_refused_without_the_store_is_refused_all_the_same(asker: Asker, server: PostgresqlServer) -> None:
    server.stop()
    assert kind(asker.ask("/required"))[2] == "key-missing"
    assert kind(asker.ask("/orders", '"open'))[2] == "key-malformed"


def test_once_the_server_is_back_the_same_key_runs_once(asker: Asker, server: PostgresqlServer) -> None:
    key = new_key()
    server.stop()
    asker.ask("/orders", key)
    server.start()
    first, again = persistent(asker, "/orders", key), asker.ask("/orders", key)
    assert (first.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    assert first.content == again.content
    assert asker.running.effects() == 1


def test_an_answer_from_before_is_replayed_once_the_server_is_back(asker: Asker, server: PostgresqlServer) -> None:
    key = new_key()
    first = asker.ask("/orders", key)
    server.restart()
    again = persistent(asker, "/orders", key)
    assert (again.status_code, again.content) == (201, first.content)
    assert asker.running.effects() == 1


def test_an_answer_that_could_not_be_recorded_is_not_sent(asker: Asker, server: PostgresqlServer) -> None:
    first = asker.later("/brief", new_key())
    visitor = asker.running.gate.visitor()
    server.stop()
    visitor.go()
    answer = first.result()
    assert kind(answer) == NOT_RECORDED
    assert int(answer.headers["retry-after"]) >= 1
    assert "location" not in answer.headers
    assert asker.running.effects() == 1


def test_the_retry_of_what_was_not_recorded_follows_the_policy(asker: Asker, server: PostgresqlServer) -> None:
    """This one says `rerun`, so the effect comes again, and from then on the answer is kept."""
    key = new_key()
    first = asker.later("/brief", key)
    visitor = asker.running.gate.visitor()
    server.stop()
    visitor.go()
    assert kind(first.result()) == NOT_RECORDED
    server.start()
    second = asker.threads.submit(persistent, asker, "/brief", key)
    asker.running.gate.visitor().go()
    assert second.result().json() == {"effect": 2}
    assert asker.ask("/brief", key).json() == {"effect": 2}
    assert asker.running.effects() == 2


def test_an_answer_is_recorded_if_the_server_is_back_before_the_lease_ends(
    asker: Asker, server: PostgresqlServer
) -> None:
    key = new_key()
    first = asker.later("/slow", key)
    visitor = asker.running.gate.visitor()
    server.stop()
    visitor.go()
    server.start()
    assert first.result().json() == {"effect": 1}
    assert persistent(asker, "/slow", key).headers["idempotency-replayed"] == "true"
    assert asker.running.effects() == 1


def test_a_duplicate_that_waits_while_the_server_restarts_never_runs_too(
    asker: Asker, server: PostgresqlServer
) -> None:
    """It gets the answer of the first, or is told that the store is away; then it may ask again."""
    key = new_key()
    first = asker.later("/slow", key)
    visitor = asker.running.gate.visitor()
    others = [asker.later("/slow", key) for _ in range(5)]
    server.restart()
    visitor.go()
    expected = first.result().content
    for other in others:
        answer = other.result()
        assert answer.content == expected if answer.status_code == 201 else kind(answer) == UNAVAILABLE
    assert persistent(asker, "/slow", key).content == expected
    assert asker.running.effects() == 1
    assert asker.running.gate.is_empty()
