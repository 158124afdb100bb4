"""The WSGI middleware before the application runs; the standard library's validator stands on both sides of it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any
from wsgiref.validate import validator

import pytest

from semel import AsyncSemel, Policy, Semel
from semel.errors import UsageError
from semel.http import Route
from semel.http.wsgi import IdempotencyMiddleware
from tests.unit.http.wsgi_world import (
    PLAIN,
    App,
    Final,
    Got,
    ask,
    environ,
    served,
    status,
    under,
)


@pytest.fixture
def semel() -> Iterator[Semel]:
    with Semel("memory://", policy=Policy(final_errors=(Final,), in_doubt="hold")) as engine:
        yield engine


def test_a_request_runs_once_and_is_replayed(semel: Semel) -> None:
    app = App(headers=[PLAIN, ("Location", "/orders/1"), ("Set-Cookie", "a=b")])
    middleware = under(validator(app), semel)
    first, again = ask(middleware), ask(middleware)
    assert app.calls == [b"{}"]
    assert (first.status, first.body, first.headers) == (201, b"done", app.headers)
    assert (again.status, again.body, again.header("location")) == (201, b"done", ["/orders/1"])
    assert (again.header("idempotency-replayed"), again.header("set-cookie")) == (["true"], [])


@pytest.mark.parametrize(
    "given", [{"key": None}, {"REQUEST_METHOD": "GET"}, {"PATH_INFO": "/elsewhere"}, {"REQUEST_METHOD": "OPTIONS"}]
)
def test_what_carries_no_key_or_has_no_route_passes_untouched(semel: Semel, given: dict[str, Any]) -> None:
    seen: list[object] = []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        seen.extend((environ, start_response, environ["wsgi.input"]))
        return result

    result = [b"as it is"]
    given = environ(**given)
    start, source = Got().start, given["wsgi.input"]
    assert under(app, semel)(given, start) is result
    assert [seen[0] is given, seen[1], seen[2] is source] == [True, start, True]


def test_a_method_in_small_letters_is_the_same_method(semel: Semel) -> None:
    app = App()
    middleware = under(app, semel)
    for method in ("POST", "post"):
        assert served(middleware, environ(REQUEST_METHOD=method)).status == 201
    assert len(app.calls) == 1


def test_the_application_finds_the_same_environ_with_its_whole_body(semel: Semel) -> None:
    app = App()
    given = environ()
    served(under(app, semel), given)
    assert app.environ is given
    assert isinstance(given["wsgi.input"], io.BytesIO)


def test_other_engines_are_refused() -> None:
    with pytest.raises(UsageError, match="needs semel=Semel"):
        IdempotencyMiddleware(App(), semel=AsyncSemel("memory://"), scope=lambda _: "a")  # type: ignore[arg-type]


def test_a_scope_that_must_be_awaited_is_refused(semel: Semel) -> None:
    async def scope(request: Any) -> str:
        return "alice"

    app = App()
    with pytest.raises(UsageError, match="nothing ran"):
        served(IdempotencyMiddleware(app, semel=semel, scope=scope), environ())
    assert app.calls == []


def test_nobody_is_told_to_sign_in(semel: Semel) -> None:
    assert ask(under(App(), semel), caller=None).status == 401


def test_a_rule_that_finds_no_key_passes_the_body_on(semel: Semel) -> None:
    app = App()
    middleware = under(app, semel, key=lambda request: None)
    assert [ask(middleware, None).status, ask(middleware, None).status, app.calls] == [201, 201, [b"{}", b"{}"]]


@pytest.mark.parametrize("key", ["k-1,k-1", "k-1, k-2", '"a","b"', '"a", "a"'])
def test_header_lines_that_the_server_joined_are_refused(semel: Semel, key: str) -> None:
    app = App()
    assert (ask(under(app, semel), key).status, app.calls) == (400, [])


def test_the_same_key_under_another_mount_is_another_request(semel: Semel) -> None:
    middleware = under(App(), semel)
    assert ask(middleware, SCRIPT_NAME="/a").status == 201
    assert ask(middleware, SCRIPT_NAME="/b").status == 422


def test_paths_that_are_no_text_stay_apart(semel: Semel) -> None:
    middleware = under(App(), semel, routes=None)
    for path in ("/\xff", "/\xfe"):
        assert ask(middleware, PATH_INFO=path).header("idempotency-replayed") == []
        assert ask(middleware, PATH_INFO=path).header("idempotency-replayed") == ["true"]


def test_an_upload_that_was_cut_off_runs_nothing(semel: Semel) -> None:
    app = App()
    got = ask(under(app, semel), CONTENT_LENGTH="10")
    assert (got.status, b"body-incomplete" in got.body, app.calls, status(semel)) == (400, True, [], None)


def test_an_upload_that_breaks_runs_nothing(semel: Semel) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError("connection reset")

    app = App()
    given = environ()
    given["wsgi.input"] = Broken()
    assert served(under(app, semel), given).status == 400
    assert (app.calls, status(semel)) == ([], None)


@pytest.mark.parametrize("length", ["-1", "two", "1_0", "²", " 2", "9" * 30])
def test_a_length_that_is_no_number_is_refused(semel: Semel, length: str) -> None:
    app = App()
    assert served(under(app, semel), environ(CONTENT_LENGTH=length)).status == 400
    assert app.calls == []


def test_a_body_in_chunks_is_read_to_its_end(semel: Semel) -> None:
    app = App()
    chunked: dict[str, Any] = {
        "HTTP_TRANSFER_ENCODING": "chunked",
        "CONTENT_LENGTH": None,
        "wsgi.input_terminated": True,
    }
    assert ask(under(app, semel), body=b"[1]", **chunked).status == 201
    assert app.calls == [b"[1]"]
    assert "HTTP_TRANSFER_ENCODING" not in app.environ


def test_a_body_in_chunks_is_refused_where_its_end_cannot_be_told(semel: Semel) -> None:
    app = App()
    assert ask(under(app, semel), HTTP_TRANSFER_ENCODING="chunked", CONTENT_LENGTH=None).status == 411
    assert app.calls == []


@pytest.mark.parametrize("chunked", [{}, {"CONTENT_LENGTH": None, "wsgi.input_terminated": True}])
def test_a_body_over_the_limit_is_refused(semel: Semel, chunked: dict[str, Any]) -> None:
    app = App()
    middleware = under(app, semel, max_body=3)
    assert ask(middleware, body=b"1234", **chunked).status == 413
    assert ask(middleware, body=b"123", **chunked).status == 201
    assert app.calls == [b"123"]


@pytest.mark.parametrize("other", ["/\\xe9", "/\xc3\xa9", "/\xe8", "/\xef\xbf\xbd"], ids=ascii)
def test_paths_of_other_bytes_are_other_paths(semel: Semel, other: str) -> None:
    app = App()
    middleware = under(app, semel, routes=[Route("/**")])
    told = [ask(middleware, PATH_INFO=path) for path in ("/\xe9", other, "/\xe9", other)]
    assert [answer.status for answer in told] == [201] * 4, "bytes that are no UTF-8 are a path all the same"
    assert len(app.calls) == 2, f"{len(app.calls)} of two requests ran"
