"""The exchange without any framework: what each profile and setting makes of the same request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from semel import SHARED, Policy, Semel
from semel.core.flow import run
from semel.core.key import Key
from semel.engine.engine import engine_of
from semel.errors import (
    InDoubt,
    InProgress,
    LeaseLost,
    RecordUnreadable,
    SchemaOutdated,
    SemelError,
    StoreUnavailable,
    UsageError,
)
from semel.http import Route
from semel.http.exchange import Exchange, Forward, Open, PassThrough, ReadBody, Respond, RunApp, scope_of
from semel.http.policy_document import document, openapi
from semel.http.problem import PROFILES, of
from semel.http.request import Headers, Request, State
from semel.http.response import NEVER, REPLAYED, Answered, Response
from semel.http.route import RouteOptions, Routes, Settings, settings_of

NOW = datetime.now(UTC)


class Server:
    """A framework of the test's own: everything is at hand."""

    def __init__(self, *, semel: Semel | None = None, **settings: Any) -> None:
        self.semel = semel or Semel("memory://")
        self._exchange = Exchange(engine_of(self.semel), SHARED, [Route("/pay", **settings)], "/policy", {})
        self.route = self._exchange.routes.every[0]

    def ask(
        self, body: bytes = b'{"a": 1}', answer: int = 201, error: Exception | None = None, **headers: Any
    ) -> Response | int:
        """What is sent: ours, or the status of the application's own answer."""
        lines = [(name.replace("_", "-"), value) for name, value in headers.items()]
        asked = Request("POST", "/pay", "", Headers([("content-type", "application/json"), *lines]), State({}))
        verdict = run(self._exchange.handle(asked, self.route), lambda wanted: self._perform(wanted, body))
        match verdict:
            case PassThrough():
                return answer
            case Respond(response):
                return response
            case RunApp():
                return self._answered(verdict, answer, error)

    def _perform(self, wanted: Any, body: bytes) -> Any:
        match wanted:
            case ReadBody():
                return body
            case Open():
                return self.semel.open(wanted.key, **wanted.settings())
        raise AssertionError(wanted)

    def _answered(self, run_app: RunApp, status: int, error: Exception | None) -> Response | int:
        answer = Answered(status, [("Location", "/1")], b"ok")
        verdict = run(self._exchange.on_response(run_app, answer, error), run_app.perform)
        return status if isinstance(verdict, Forward) else verdict.response


def status_of(found: Response | int) -> int:
    return found if isinstance(found, int) else found.status


def header(found: Response | int, name: str) -> str | None:
    assert isinstance(found, Response)
    return dict(found.headers).get(name)


@pytest.mark.parametrize(
    ("profile", "name", "marker"),
    [
        ("ietf", "Idempotency_Key", "Idempotency-Replayed"),
        ("stripe-v1", "Idempotency_Key", "Idempotent-Replayed"),
        ("stripe-v2", "Idempotency_Key", "Idempotent-Replayed"),
        ("paypal", "PayPal_Request_Id", "Idempotency-Replayed"),
    ],
)
def test_a_profile_has_its_header_and_its_mark(profile: str, name: str, marker: str) -> None:
    server = Server(profile=profile)
    key: dict[str, Any] = {name: "k"}
    assert server.ask(**key) == 201
    assert header(server.ask(**key), marker) == "true"


@pytest.mark.parametrize(("profile", "status"), [("ietf", 422), ("stripe-v1", 400), ("stripe-v2", 400)])
def test_a_profile_has_its_status_for_another_request(profile: str, status: int) -> None:
    server = Server(profile=profile)
    server.ask(Idempotency_Key="k")
    assert status_of(server.ask(b'{"a": 2}', Idempotency_Key="k")) == status


@pytest.mark.parametrize(("profile", "replayed"), [("ietf", False), ("stripe-v1", True), ("stripe-v2", False)])
def test_a_profile_says_whether_failures_are_kept(profile: str, replayed: bool) -> None:
    server = Server(profile=profile)
    server.ask(answer=500, Idempotency_Key="k")
    assert isinstance(server.ask(answer=500, Idempotency_Key="k"), Response) is replayed


def oasis(**changes: str) -> dict[str, Any]:
    return {"Repeatability_Request_ID": "k", "Repeatability_First_Sent": format_datetime(NOW, usegmt=True), **changes}


def test_oasis_wants_the_time_of_the_first_try() -> None:
    assert status_of(Server(profile="oasis").ask(Repeatability_Request_ID="k")) == 400


def test_oasis_replays_within_the_window() -> None:
    server = Server(profile="oasis")
    assert server.ask(**oasis()) == 201
    assert header(server.ask(**oasis()), "Repeatability-Result") == "accepted"


@pytest.mark.parametrize("away", [timedelta(days=-2), timedelta(days=2)], ids=["past", "future"])
def test_oasis_tells_whoever_comes_from_outside_the_window_to_start_over(away: timedelta) -> None:
    sent = format_datetime(NOW + away, usegmt=True)
    answer = Server(profile="oasis").ask(**oasis(Repeatability_First_Sent=sent))
    assert isinstance(answer, Response)
    assert (answer.status, header(answer, "Repeatability-Result")) == (412, "rejected")
    assert b"start over" in answer.body


@pytest.mark.parametrize("given", ["yesterday", "2026-01-01", "01 Jan 2020 99999999999999999999:00:00 GMT"])
def test_oasis_refuses_what_is_no_date(given: str) -> None:
    assert status_of(Server(profile="oasis").ask(**oasis(Repeatability_First_Sent=given))) == 400


@pytest.mark.parametrize("status", [409, 425, 429])
def test_a_route_chooses_the_status_while_running(status: int) -> None:
    found = of(InProgress("running", retry_after=timedelta(seconds=2.2)), PROFILES["ietf"], status).response(None)
    assert (found.status, dict(found.headers)["Retry-After"]) == (status, "3")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StoreUnavailable("down"), 503),
        (LeaseLost("lost"), 503),
        (RecordUnreadable("new"), 503),
        (SchemaOutdated("old"), 503),
        (InDoubt("held", reference="r"), 409),
    ],
)
def test_an_error_has_its_status(error: SemelError, status: int) -> None:
    assert of(error, PROFILES["ietf"]).status == status


@pytest.mark.parametrize("meaning", ["final", "retry", "unknown"])
def test_a_route_says_what_a_status_means(meaning: str) -> None:
    given: Any = {f"{meaning}_statuses": {299}}
    assert settings_of(given).meaning(299) == meaning


def test_another_header_can_be_named() -> None:
    server = Server(header="Payment-Idempotency-Key")
    server.ask(Payment_Idempotency_Key="k")
    assert isinstance(server.ask(Payment_Idempotency_Key="k"), Response)


def test_a_short_key_is_refused_where_a_length_is_asked_for() -> None:
    assert status_of(Server(min_key_length=16).ask(Idempotency_Key="short")) == 400


def test_excluded_members_do_not_count() -> None:
    server = Server(ignore_fields=["sent_at"])
    server.ask(b'{"a": 1, "sent_at": 1}', Idempotency_Key="k")
    assert isinstance(server.ask(b'{"a": 1, "sent_at": 2}', Idempotency_Key="k"), Response)


def test_raw_bodies_count_by_their_bytes() -> None:
    server = Server(compare="bytes")
    server.ask(b'{"a": 1}', Idempotency_Key="k")
    assert status_of(server.ask(b'{"a":1}', Idempotency_Key="k")) == 422


def test_further_headers_are_replayed_by_choice() -> None:
    assert "x-total" in settings_of({"replay_headers": ["X-Total"]}).allowed


def test_what_is_never_replayed_is_in_no_list() -> None:
    assert not REPLAYED & NEVER


def test_a_browser_is_shown_the_marks_of_a_replay() -> None:
    server = Server()
    server.ask(Idempotency_Key="k")
    shown = header(server.ask(Idempotency_Key="k", Origin="https://shop"), "Access-Control-Expose-Headers")
    assert shown == "Idempotency-Replayed, Idempotency-Expires"


@pytest.mark.parametrize(
    "wrong",
    [
        {"methods": {"GET"}},
        {"methods": "POST"},
        {"methods": ()},
        {"profile": "acme"},
        {"header": "a b"},
        {"in_progress_status": 500},
        {"compare": "words"},
        {"keep_response": "none"},
        {"min_key_length": 0},
        {"max_body": -1},
        {"replay_headers": ["Set-Cookie"]},
        {"ignore_fields": ["a..b"]},
        {"final_statuses": {500}, "retry_statuses": {500}},
        {"policy": "none"},
        {"key": "header"},
        {"transaction": "session"},
        {"colour": "blue"},
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_so_is_refused_when_it_is_made(wrong: Any) -> None:
    with pytest.raises(UsageError, match="nothing was set up"):
        Route("/pay", **wrong)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("requird", "Did you mean 'required'?"),
        ("min_key_lenght", "Did you mean 'min_key_length'?"),
        ("final_status", "Did you mean 'final_statuses'?"),
        ("shortest", "min_key_length="),
        ("raw", 'compare="bytes"'),
        ("exclude", "ignore_fields="),
        ("stored", "final_statuses="),
        ("retried", "retry_statuses="),
        ("doubtful", "unknown_statuses="),
        ("running", "in_progress_status="),
        ("described_at", "policy_path="),
        ("store", "keep_response=False"),
        ("challenge", "www_authenticate="),
        ("within", "transaction="),
        ("keep_for", "policy=Policy(keep_for=…)"),
        ("scope", "given to the middleware"),
        ("colour", "It has about, after_disconnect, compare,"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_one_that_was_meant(wrong: str, named: str) -> None:
    given: Any = {wrong: 1}
    with pytest.raises(UsageError, match=r"A route has no setting .*; nothing was set up") as refused:
        Route("/pay", **given)
    assert named in str(refused.value)


@pytest.mark.parametrize("path", ["pay", "/a/**/b"])
def test_a_path_that_cannot_be_a_route_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="nothing was set up"):
        Route(path)


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("/pay", "/pay", True),
        ("/pay", "/pay/", True),
        ("/pay/", "/pay", True),
        ("/pay", "//pay", True),
        ("/pay", "/pays", False),
        ("/orders/*/pay", "/orders/7/pay", True),
        ("/orders/*/pay", "/orders/7/8/pay", False),
        ("/orders/*", "/orders/", False),
        ("/orders/*", "/orders/7/", True),
        ("/hooks/**", "/hooks/a/b", True),
        ("/a.b", "/axb", False),
    ],
)
def test_a_pattern_fits(pattern: str, path: str, fits: bool) -> None:
    assert Route(pattern).fits(path) is fits


def test_the_first_route_that_fits_counts() -> None:
    routes = Routes.of([Route("/pay", required=True), Route("/**")], {}, Policy(), None)
    found = routes.find("POST", "/pay")
    assert found is not None
    assert found.settings.required


def test_settings_have_the_same_names_however_they_are_written() -> None:
    assert set(RouteOptions.__annotations__) == set(Settings.__dataclass_fields__)


def test_the_policy_document_tells_the_settings() -> None:
    routes = Routes.of(
        [Route("/pay", required=True, in_progress_status=425)], {}, Policy(keep_for=timedelta(days=2)), "/policy"
    )
    told = document(routes)
    assert (told.status, b'"retentionSeconds":172800' in told.body, b'"running":425' in told.body) == (200, True, True)


def test_the_policy_document_tells_what_a_file_declares_of_each_method(tmp_path: Path) -> None:
    file = tmp_path / "semel.toml"
    file.write_text(
        'store = "memory://"\n[operations]\nstrict = true\n[operations."POST /pay"]\nkeep_for = "P90D"\n'
        '[operations."PUT /pay"]\nkeep_for = "P30D"\nwhen_running = "reject"\n'
    )
    route = Route("/pay", methods={"POST", "PUT", "PATCH"})
    exchange = Exchange(engine_of(Semel.from_settings(file)), SHARED, [route], "/policy", {})
    told = exchange.policy_document("GET", "/policy")
    assert told is not None
    listed = msgspec.json.decode(told.body)["routes"]
    assert [(route["methods"], route["retentionSeconds"], route["waitsSeconds"]) for route in listed] == [
        (["PATCH"], 86_400, 10.0),
        (["POST"], 90 * 86_400, 10.0),
        (["PUT"], 30 * 86_400, 0),
    ]


def test_the_first_try_may_be_as_old_as_what_a_file_declares(tmp_path: Path) -> None:
    file = tmp_path / "semel.toml"
    file.write_text('store = "memory://"\n[operations."POST /pay"]\nkeep_for = "P90D"\n')
    for semel, status in ((Semel("memory://"), 412), (Semel.from_settings(file), 201)):
        server = Server(profile="oasis", semel=semel)
        sent = format_datetime(NOW - timedelta(days=80), usegmt=True)
        answered = server.ask(Repeatability_Request_ID="k", Repeatability_First_Sent=sent)
        assert (answered.status if isinstance(answered, Response) else answered) == status


def test_the_openapi_extension_tells_the_same() -> None:
    route = Routes.of([Route("/pay", required=True)], {}, Policy(), None).every[0]
    assert openapi(route)["x-idempotency"]["required"] is True


class Declined(Exception):
    """In the policy: final."""


class Busy(Exception):
    """In the policy: nothing happened."""


@pytest.mark.parametrize(("error", "replayed"), [(Declined(), True), (Busy(), False), (RuntimeError(), False)])
def test_the_policy_for_an_exception_comes_before_the_status_of_its_answer(error: Exception, replayed: bool) -> None:
    server = Server(policy=Policy(final_errors=(Declined,), retry_errors=(Busy,)))
    server.ask(answer=400, error=error, Idempotency_Key="k")
    assert isinstance(server.ask(answer=400, error=error, Idempotency_Key="k"), Response) is replayed


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, [201, 201, 201]), ({"compare_host": True}, [201, 201, 422])],
    ids=["by default", "where the route says so"],
)
def test_a_key_under_another_host_is_another_request_by_choice(settings: Any, expected: list[int]) -> None:
    server = Server(**settings)
    hosts = ("a.example", "A.Example", "b.example")
    assert [status_of(server.ask(idempotency_key="k", host=host)) for host in hosts] == expected


UUID_TEXT = "12345678-1234-5678-1234-567812345678"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, "1", True),
        (UUID(UUID_TEXT), UUID_TEXT, True),
        (("user", 1), ("user", "1"), False),
        (("user", 1), ("client", 1), False),
        (1, (1,), False),
        (1, 2, False),
    ],
    ids=repr,
)
def test_a_number_and_its_text_are_one_scope_but_not_in_tuples(one: Any, other: Any, same: bool) -> None:
    keys = [Key.of("k", operation="POST /pay", scope=scope_of(who)) for who in (one, other)]
    assert (keys[0].digest == keys[1].digest) is same
