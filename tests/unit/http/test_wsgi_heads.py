"""The WSGI middleware: when the head of an answer leaves, when it is all there is, and what lies below a mount."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from semel import Policy, Semel
from semel.http import Route
from tests.unit.http.wsgi_world import PLAIN, App, ask, environ, noting, served, status, under


@pytest.fixture
def semel() -> Iterator[Semel]:
    with Semel("memory://", policy=Policy(in_doubt="hold")) as engine:
        yield engine


def test_after_an_empty_chunk_an_application_may_begin_anew(semel: Semel) -> None:
    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [PLAIN])
        yield b""
        try:
            raise RuntimeError("none")
        except RuntimeError:
            start_response("404 Not Found", [PLAIN], sys.exc_info())
            yield b"none"

    middleware = under(app, semel)
    assert [(got.status, got.body) for got in (ask(middleware), ask(middleware))] == [(404, b"none")] * 2


def test_with_an_empty_chunk_that_is_written_nothing_leaves(semel: Semel) -> None:
    seen: list[Any] = []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [PLAIN])(b"")
        seen.append("written")
        return [b"done"]

    list(under(app, semel)(environ(), noting(seen, lambda: "begun")))
    assert seen == ["written", "begun"]


@pytest.mark.parametrize("head", ["103 Early Hints", "204 No Content", "304 Not Modified"])
def test_an_answer_without_a_body_is_complete_with_its_head(semel: Semel, head: str) -> None:
    seen: list[Any] = []
    app = App(status=head, headers=[], answer=lambda: iter([b"", b"a body that is none"]))
    under(app, semel)(environ(), noting(seen, lambda: status(semel)))
    assert seen == ["completed"]


def test_an_answer_that_cannot_be_recorded_for_its_headers_leaves_a_doubt(semel: Semel) -> None:
    app = App(headers=[("Location", None)])  # type: ignore[list-item]  # what it is about
    with pytest.raises(TypeError):
        served(under(app, semel), environ())
    assert status(semel) == "in_doubt"


def test_an_answer_whose_status_is_no_number_leaves_a_doubt(semel: Semel) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        served(under(App(status="fine"), semel), environ())
    assert status(semel) == "in_doubt"


def test_routes_lie_below_the_mount_and_problems_link_there(semel: Semel) -> None:
    app = App()
    got = ask(under(app, semel, required=True), None, SCRIPT_NAME="/api")
    assert (got.status, app.calls) == (400, [])
    assert got.header("link") == ['</api/.well-known/idempotency-policy>; rel="describedby"']


def test_the_policy_is_served_below_the_mount(semel: Semel) -> None:
    path = {"SCRIPT_NAME": "/api", "PATH_INFO": "/.well-known/idempotency-policy"}
    assert ask(under(App(), semel), None, b"", REQUEST_METHOD="GET", **path).status == 200


def test_a_rule_is_shown_the_whole_path_and_the_mount(semel: Semel) -> None:
    seen: list[Any] = []
    middleware = under(App(), semel, key=lambda request: seen.append((request.path, request.mount)))
    ask(middleware, None, SCRIPT_NAME="/api")
    assert seen == [("/api/orders", "/api")]


def test_where_an_application_is_mounted_its_root_may_have_no_path(semel: Semel) -> None:
    middleware = under(App(), semel, routes=[Route("/", required=True)])
    assert ask(middleware, None, SCRIPT_NAME="/api", PATH_INFO="").status == 400


@pytest.mark.parametrize("path", ["/orders/", "//orders", "/orders//"])
def test_slashes_do_not_lead_around_a_route(semel: Semel, path: str) -> None:
    app = App()
    assert (ask(under(app, semel, required=True), None, PATH_INFO=path).status, app.calls) == (400, [])
