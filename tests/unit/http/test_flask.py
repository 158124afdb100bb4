"""The Flask extension, through Flask's own test client."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import flask
import pytest
from flask.testing import FlaskClient
from werkzeug.exceptions import Conflict
from werkzeug.test import TestResponse

from semel import AsyncSemel, Policy, Semel
from semel.engine.sync_engine import SyncCall
from semel.errors import LeaseLost, UsageError
from semel.http import Route
from semel.http.flask import Idempotency


class Final(Exception):
    """Stored, by policy."""


@pytest.fixture
def semel() -> Iterator[Semel]:
    with Semel("memory://", policy=Policy(final_errors=(Final,), in_doubt="hold")) as engine:
        yield engine


class Shop:
    """An application with one view at /orders, and what was done."""

    def __init__(self, semel: Semel, **settings: Any) -> None:
        self.calls: list[Any] = []
        self.app = flask.Flask("shop")
        self.app.testing = True
        settings.setdefault("routes", [Route("/orders")])
        self.keys = Idempotency(self.app, semel=semel, scope=lambda request: request.state.caller, **settings)
        self.app.before_request(self._authenticate)
        self.client: FlaskClient = self.app.test_client()

    def _authenticate(self) -> tuple[str, int] | None:
        flask.g.caller = flask.request.headers.get("X-Caller", "alice")
        return ("forbidden", 403) if flask.g.caller == "mallory" else None

    def view(self, view: Callable[[], Any]) -> None:
        """What /orders does; each call is counted."""

        def counted() -> Any:
            self.calls.append(flask.request.path)
            return view()

        self.app.add_url_rule("/orders", "orders", counted, methods=["POST", "PUT", "GET"])

    def ask(self, path: str = "/orders", key: str | None = "k-1", method: str = "POST", **given: Any) -> TestResponse:
        """Ask once."""
        headers = {**given.pop("headers", {}), **({} if key is None else {"Idempotency-Key": key})}
        if method != "GET" and not given:
            given = {"json": {"amount": 10}}
        return self.client.open(path, method=method, headers=headers, **given)


@pytest.fixture
def shop(semel: Semel) -> Shop:
    return Shop(semel)


def status(semel: Semel) -> str | None:
    """What the record of the key says, if there is one."""
    record = semel.read("k-1", operation="POST /orders", scope="alice")
    return None if record is None else record.status


def test_a_request_runs_once_and_is_replayed(shop: Shop) -> None:
    shop.view(lambda: ({"id": 1}, 201, {"Location": "/orders/1", "Set-Cookie": "a=b"}))
    first, again = shop.ask(), shop.ask()
    assert shop.calls == ["/orders"]
    assert (first.status_code, first.headers["Set-Cookie"]) == (201, "a=b")
    assert (again.status_code, again.data, again.headers["Location"]) == (201, first.data, "/orders/1")
    assert (again.headers["Idempotency-Replayed"], "Set-Cookie" in again.headers) == ("true", False)


@pytest.mark.parametrize(("key", "method"), [(None, "POST"), ("k-1", "GET"), ("k-1", "PUT")])
def test_what_carries_no_key_or_has_no_route_passes(shop: Shop, key: str | None, method: str) -> None:
    shop.view(lambda: "done")
    assert [shop.ask(key=key, method=method).text for _ in range(2)] == ["done", "done"]
    assert len(shop.calls) == 2


def test_who_lost_the_right_gets_no_replay(shop: Shop) -> None:
    shop.view(lambda: "secret")
    shop.ask()
    assert shop.ask(headers={"X-Caller": "mallory"}, json={"amount": 10}).status_code == 403


def test_keys_of_two_callers_are_two(shop: Shop) -> None:
    shop.view(lambda: flask.g.caller)
    assert [shop.ask(headers={"X-Caller": name}, json={}).text for name in ("alice", "bob")] == ["alice", "bob"]


def test_a_replay_goes_through_the_functions_after_the_request(shop: Shop) -> None:
    shop.view(lambda: "done")
    shop.app.after_request(_traced)
    assert [shop.ask().headers["X-Trace"], shop.ask().headers["X-Trace"]] == ["here", "here"]


def _traced(response: flask.Response) -> flask.Response:
    response.headers["X-Trace"] = "here"
    return response


def test_the_extension_can_be_given_the_application_later(semel: Semel) -> None:
    app = flask.Flask("later")
    keys = Idempotency(semel=semel, scope=lambda _: "alice")
    numbers = iter("12")
    app.add_url_rule("/orders", "orders", lambda: next(numbers), methods=["POST"])
    keys.init_app(app)
    client, head = app.test_client(), {"Idempotency-Key": "k-1"}
    assert [client.post("/orders", headers=head).text for _ in range(2)] == ["1", "1"]
    assert app.extensions["semel"] is keys


def test_an_application_takes_one_extension(semel: Semel, shop: Shop) -> None:
    with pytest.raises(UsageError, match="already"):
        Idempotency(shop.app, semel=semel, scope=lambda _: "alice")


def test_other_engines_are_refused() -> None:
    with pytest.raises(UsageError, match="needs semel=Semel"):
        Idempotency(semel=AsyncSemel("memory://"), scope=lambda _: "a")  # type: ignore[arg-type]


def test_a_view_may_be_a_coroutine_function(semel: Semel, shop: Shop) -> None:
    async def order() -> str:
        shop.calls.append(semel.current().number)
        return "done"

    shop.app.add_url_rule("/orders", "orders", order, methods=["POST"])
    assert ([shop.ask().text, shop.ask().text], shop.calls) == (["done", "done"], [1])


def test_a_view_finds_its_json(shop: Shop) -> None:
    shop.view(lambda: {"json": flask.request.json, "data": flask.request.get_data(as_text=True)})
    assert shop.ask().json == {"json": {"amount": 10}, "data": '{"amount": 10}'}


def test_a_view_finds_its_form_and_files(shop: Shop) -> None:
    shop.view(lambda: flask.request.form["name"] + flask.request.files["file"].read().decode())
    form = {"name": "one ", "file": (io.BytesIO(b"two"), "file.txt")}
    assert shop.ask(data=form).text == "one two"


def test_a_form_that_authentication_has_read_is_still_compared(shop: Shop) -> None:
    shop.app.before_request(lambda: flask.g.setdefault("token", flask.request.form["token"]) and None)
    shop.view(lambda: flask.request.form["token"])
    answers = [shop.ask(data={"token": token}) for token in ("a", "a", "b")]
    assert [answer.status_code for answer in answers] == [200, 200, 422]
    assert (answers[0].text, shop.calls) == ("a", ["/orders"])


def test_a_body_over_the_limit_is_refused(semel: Semel) -> None:
    shop = Shop(semel, max_body=3)
    shop.view(lambda: "done")
    assert (shop.ask(data=b"1234").status_code, shop.ask(data=b"123").status_code) == (413, 200)


def test_a_body_that_was_cut_off_runs_nothing(semel: Semel, shop: Shop) -> None:
    shop.view(lambda: "done")
    answer = shop.ask(data=b"{", environ_overrides={"CONTENT_LENGTH": "10"})
    assert (answer.status_code, shop.calls, status(semel)) == (400, [], None)


def raising(error: BaseException) -> Callable[[], Any]:
    return lambda: _raise(error)


def _raise(error: BaseException) -> Any:
    raise error


def test_an_http_exception_is_an_answer_by_its_status(shop: Shop) -> None:
    shop.view(raising(Conflict()))
    assert [shop.ask().status_code, shop.ask().status_code, len(shop.calls)] == [409, 409, 1]


def test_what_has_an_error_handler_is_an_answer_by_its_status(shop: Shop) -> None:
    shop.app.register_error_handler(KeyError, lambda error: ("try again", 429))
    shop.view(raising(KeyError()))
    assert [shop.ask().status_code, shop.ask().text, len(shop.calls)] == [429, "try again", 2]


@pytest.mark.parametrize(
    ("error", "told"), [(Final("no"), "failed"), (RuntimeError("?"), "in_doubt"), (KeyboardInterrupt(), "in_doubt")]
)
def test_another_error_is_recorded_by_policy_and_raised(
    semel: Semel, shop: Shop, error: BaseException, told: str
) -> None:
    shop.view(raising(error))
    with pytest.raises(type(error)):
        shop.ask()
    assert status(semel) == told


def test_a_refused_settlement_is_a_problem(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def settle(opened: SyncCall[Any], value: Any) -> Any:
        opened.abandon(RuntimeError("lost"))
        raise LeaseLost("somebody else has it")

    monkeypatch.setattr(SyncCall, "finish", settle)
    shop.view(lambda: "done")
    answer = shop.ask()
    assert (answer.status_code, answer.content_type) == (503, "application/problem+json")


def test_a_view_that_lost_its_lease_is_a_problem(shop: Shop) -> None:
    shop.view(raising(LeaseLost("this attempt lost its lease", reference="r")))
    answer = shop.ask()
    assert (answer.status_code, answer.content_type) == (503, "application/problem+json")


def streaming(*chunks: str) -> Callable[[], flask.Response]:
    return lambda: flask.Response(iter(chunks), content_type="text/event-stream")


def test_a_stream_passes_as_it_comes_and_its_end_is_held(semel: Semel, shop: Shop) -> None:
    shop.view(streaming("one", "two"))
    chunks = shop.ask().iter_encoded()
    assert [(next(chunks), status(semel)), (next(chunks), status(semel))] == [(b"one", "running"), (b"two", "running")]
    assert (next(chunks, None), status(semel)) == (None, "completed")
    assert shop.ask().data == b"onetwo"


def test_a_stream_may_keep_the_context_of_its_request(semel: Semel, shop: Shop) -> None:
    def chunks() -> Iterator[str]:
        yield flask.request.path
        yield str(semel.current().number)

    shop.view(lambda: flask.Response(flask.stream_with_context(chunks())))
    assert [shop.ask().data, shop.ask().data] == [b"/orders1", b"/orders1"]


def test_a_client_that_leaves_a_stream_stops_nothing(semel: Semel, shop: Shop) -> None:
    shop.view(streaming("one", "two", "three"))
    answer = shop.ask()
    next(iter(answer.iter_encoded()))
    answer.close()
    assert (status(semel), shop.ask().data, len(shop.calls)) == ("completed", b"onetwothree", 1)


def test_a_file_is_sent_and_replayed(shop: Shop) -> None:
    file = io.BytesIO(b"x" * 20_000)
    shop.view(lambda: flask.send_file(file, "application/pdf"))
    with shop.ask() as first:
        assert first.data == b"x" * 20_000
    assert (file.closed, shop.ask().data) == (True, first.data)


def test_what_a_stream_closes_is_closed_once(shop: Shop) -> None:
    closed: list[str] = []
    response = flask.Response(iter(["one"]))
    response.call_on_close(lambda: closed.append("closed"))
    shop.view(lambda: response)
    with shop.ask() as answer:
        assert answer.data == b"one"
    assert closed == ["closed"]


def test_a_view_under_once_takes_keys_at_every_method_that_changes_something(semel: Semel) -> None:
    shop = Shop(semel, routes=[])

    @shop.keys.once(required=True)
    def view(name: str) -> str:
        shop.calls.append(name)
        return name

    shop.app.add_url_rule("/things/<name>", "things", view, methods=["PUT", "GET"])
    assert shop.ask("/things/a", None, "PUT").status_code == 400
    assert shop.ask("/things/a", None, "GET").status_code == 200
    assert [shop.ask(f"/things/{name}", "k-1", "PUT").text for name in "bbc"] == ["b", "b", "c"]
    assert shop.calls == ["a", "b", "c"]


def test_a_view_under_once_goes_before_the_routes(semel: Semel) -> None:
    shop = Shop(semel, routes=[Route("/**", header="Other-Key")])
    shop.app.add_url_rule("/pay", "pay", shop.keys.once(header="Pay-Key")(lambda: "paid"), methods=["POST"])
    replayed = [shop.ask("/pay", None, headers={"Pay-Key": "k-1"}, json={}).headers for _ in range(2)][1]
    assert replayed["Idempotency-Replayed"] == "true"


def test_a_setting_that_cannot_be_is_refused_at_the_view(shop: Shop) -> None:
    with pytest.raises(UsageError, match="profile"):
        shop.keys.once(profile="none")


def test_the_policy_names_routes_and_views(semel: Semel, shop: Shop) -> None:
    for rule in ("/things/<int:number>/pay", "/files/<path:name>"):
        shop.app.add_url_rule(rule, rule, shop.keys.once()(lambda **_: "done"), methods=["POST"])
    answer = shop.client.get("/.well-known/idempotency-policy")
    paths = [route["path"] for route in answer.get_json()["routes"]]
    assert (paths, answer.content_type) == (["/things/*/pay", "/files/**", "/orders"], "application/json")
    head = shop.client.head("/.well-known/idempotency-policy")
    assert (head.status_code, head.data) == (200, b"")
