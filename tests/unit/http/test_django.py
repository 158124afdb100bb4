"""The Django middleware in a chain of its own: what reaches the view, what is stored, what is sent."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.test import Client, RequestFactory
from django.urls import path

from semel import Policy, Semel
from semel.errors import UsageError
from semel.http.django import IdempotencyMiddleware
from tests.unit.http.django_project import SEMEL, Effects, post, project


class Final(Exception):
    """Stored."""


class Retryable(Exception):
    """Nothing happened."""


@pytest.fixture
def effects() -> Effects:
    return Effects()


@pytest.fixture
def semel() -> Iterator[Semel]:
    policy = Policy(final_errors=(Final,), retry_errors=(Retryable,))
    with Semel("memory://", policy=policy) as semel:
        yield semel


@pytest.fixture
def chosen(semel: Semel) -> dict[str, Any]:
    return {"semel": semel, "scope": "SHARED"}


def raising(error: Exception) -> Any:
    raise error


def test_a_view_runs_once_and_is_replayed(effects: Effects, chosen: dict[str, Any]) -> None:
    with project(path("orders", effects.view), SEMEL=chosen):
        first, again = post(), post()
    assert (first.content, again.content) == (b"effect 1", b"effect 1")
    assert again.headers["Idempotency-Replayed"] == "true"


def test_the_scope_finds_the_attributes_of_the_request(effects: Effects, semel: Semel) -> None:
    middleware = IdempotencyMiddleware(effects.view, semel=semel, scope=lambda request: request.state.user)
    request = RequestFactory().post("/orders", headers={"Idempotency-Key": "k1"})
    request.user = "alice"
    with project():
        assert middleware(request).status_code == 201


@pytest.mark.parametrize("who", [1, UUID(int=1), "alice", ("acme", 1)], ids=["number", "uuid", "text", "tuple"])
def test_a_scope_may_be_a_primary_key(effects: Effects, semel: Semel, who: Any) -> None:
    with project(path("orders", effects.view), SEMEL={"semel": semel, "scope": lambda request: who}):
        assert post().status_code == 201


def test_a_scope_that_may_change_its_face_is_said(effects: Effects, semel: Semel) -> None:
    middleware = IdempotencyMiddleware(effects.view, semel=semel, scope=lambda request: object())
    with project(), pytest.raises(UsageError, match="something of type object"):
        middleware(RequestFactory().post("/orders", headers={"Idempotency-Key": "k1"}))


def test_an_attribute_that_nobody_left_is_missing(effects: Effects, semel: Semel) -> None:
    middleware = IdempotencyMiddleware(effects.view, semel=semel, scope=lambda request: request.state.get("user"))
    with project():
        assert middleware(RequestFactory().post("/orders", headers={"Idempotency-Key": "k1"})).status_code == 401


def test_an_awaited_scope_serves_a_called_view(effects: Effects, semel: Semel) -> None:
    async def scope(request: Any) -> str:
        return "alice"

    with project(path("orders", effects.view), SEMEL={"semel": semel, "scope": scope}):
        assert post().status_code == 201


def test_a_form_can_be_read_by_the_view(effects: Effects, chosen: dict[str, Any]) -> None:
    seen: list[Any] = []

    def view(request: Any) -> HttpResponse:
        seen.append((request.POST["name"], request.FILES["file"].read()))
        return HttpResponse()

    with project(path("orders", view), SEMEL=chosen):
        Client().post("/orders", {"name": "a", "file": io.BytesIO(b"xyz")}, headers={"Idempotency-Key": "k1"})
    assert seen == [("a", b"xyz")]


def test_a_body_over_django_s_limit_is_413(effects: Effects, chosen: dict[str, Any]) -> None:
    with project(path("orders", effects.view), SEMEL=chosen, DATA_UPLOAD_MAX_MEMORY_SIZE=10):
        answer = post(body=b"x" * 11, content_type="text/plain")
    assert (answer.status_code, effects.happened) == (413, [])
    assert "10 bytes" in answer.json()["detail"]


def test_a_body_over_the_route_s_limit_is_413(effects: Effects, chosen: dict[str, Any]) -> None:
    with project(path("orders", effects.view), SEMEL={**chosen, "max_body": 10}):
        answer = post(body=b"x" * 11, content_type="text/plain")
    assert (answer.status_code, effects.happened) == (413, [])


def test_a_body_that_is_shorter_than_it_said_runs_nothing(effects: Effects, chosen: dict[str, Any]) -> None:
    request = RequestFactory().post("/orders", headers={"Idempotency-Key": "k1"})
    request.META["CONTENT_LENGTH"] = "5"
    request._stream = io.BytesIO(b"abc")
    with project():
        answer = IdempotencyMiddleware(effects.view, **chosen)(request)
    assert (answer.status_code, effects.happened) == (400, [])


class _Broken(io.BytesIO):
    def read(self, *_: Any) -> bytes:
        raise OSError("gone")


def test_a_body_that_cannot_be_read_runs_nothing(effects: Effects, chosen: dict[str, Any]) -> None:
    request = RequestFactory().post("/orders", headers={"Idempotency-Key": "k1"})
    request.META["CONTENT_LENGTH"] = "5"
    request._stream = _Broken()
    with project():
        answer = IdempotencyMiddleware(effects.view, **chosen)(request)
    assert (answer.status_code, effects.happened) == (400, [])


def test_a_body_that_was_read_before_is_said(effects: Effects, chosen: dict[str, Any]) -> None:
    request = RequestFactory().post("/orders", b"abc", "text/plain", headers={"Idempotency-Key": "k1"})
    request.read()
    with project(), pytest.raises(UsageError, match="read as a stream"):
        IdempotencyMiddleware(effects.view, **chosen)(request)


def test_a_body_in_chunks_without_an_end_is_411(effects: Effects, chosen: dict[str, Any]) -> None:
    with project(path("orders", effects.view), SEMEL=chosen):
        answer = post(headers={"Transfer-Encoding": "chunked"})
    assert (answer.status_code, effects.happened) == (411, [])


def test_two_lines_of_a_key_are_told_apart_under_asgi() -> None:
    from django.test import AsyncRequestFactory

    from semel.http.django.adapters import request_of

    request = AsyncRequestFactory().post("/orders")
    request.scope["headers"] += [(b"idempotency-key", b"a"), (b"idempotency-key", b"b")]
    assert request_of(request).headers.all("Idempotency-Key") == ["a", "b"]


def test_a_final_error_is_stored_and_its_page_is_sent(effects: Effects, chosen: dict[str, Any]) -> None:
    with project(path("orders", effects.answering(lambda: raising(Final()))), SEMEL=chosen):
        first, again = post(), post()
    assert len(effects.happened) == 1
    assert b"Server Error" in first.content
    assert again.json()["type"] == "urn:semel:problem:failed-before"


@pytest.mark.parametrize("length", ["two", "-1", "1_0"])
def test_a_length_that_is_no_number_is_refused(effects: Effects, chosen: dict[str, Any], length: str) -> None:
    request = RequestFactory().post("/orders", headers={"Idempotency-Key": "k1"})
    request.META["CONTENT_LENGTH"] = length
    with project():
        answer = IdempotencyMiddleware(effects.view, **chosen)(request)
    assert (answer.status_code, effects.happened) == (400, [])


@pytest.mark.parametrize("error", [Retryable(), RuntimeError()], ids=["retryable", "unknown"])
def test_another_error_lets_it_run_again(error: Exception, effects: Effects, chosen: dict[str, Any]) -> None:
    with project(path("orders", effects.answering(lambda: raising(error))), SEMEL=chosen):
        assert (post().status_code, post().status_code, len(effects.happened)) == (500, 500, 2)


def test_not_found_counts_by_its_status(effects: Effects, chosen: dict[str, Any]) -> None:
    with project(path("orders", effects.answering(lambda: raising(Http404()))), SEMEL=chosen):
        first, again = post(), post()
    assert (first.status_code, again.content, len(effects.happened)) == (404, first.content, 1)


def test_permission_denied_is_not_kept(effects: Effects, chosen: dict[str, Any]) -> None:
    with project(path("orders", effects.answering(lambda: raising(PermissionDenied()))), SEMEL=chosen):
        assert (post().status_code, post().status_code, len(effects.happened)) == (403, 403, 2)


def test_the_view_finds_its_attempt(chosen: dict[str, Any], semel: Semel) -> None:
    with project(path("orders", lambda request: HttpResponse(semel.current().derive("next"))), SEMEL=chosen):
        assert len(post().content) == 64


def test_a_replay_without_a_content_type_has_none(effects: Effects, chosen: dict[str, Any]) -> None:
    def empty() -> HttpResponse:
        response = HttpResponse(status=204)
        del response.headers["Content-Type"]
        return response

    with project(path("orders", effects.answering(empty)), SEMEL=chosen):
        post()
        again = post()
    assert again.status_code == 204
    assert "Content-Type" not in again.headers
    assert "Content-Length" not in again.headers


def test_the_policy_document_is_served(effects: Effects, chosen: dict[str, Any]) -> None:
    with project(path("orders", effects.view), SEMEL={**chosen, "policy_path": "/keys"}):
        assert Client().get("/keys").json()["routes"][0]["path"] == "/**"


def test_a_mark_of_the_profile_stands_on_the_first_answer(effects: Effects, chosen: dict[str, Any]) -> None:
    now = format_datetime(datetime.now(UTC), usegmt=True)
    headers = {"Repeatability-Request-ID": "k1", "Repeatability-First-Sent": now}
    with project(path("orders", effects.view), SEMEL={**chosen, "profile": "oasis"}):
        answer = post(key=None, headers=headers)
    assert (answer.status_code, answer.headers["Repeatability-Result"]) == (201, "accepted")


def test_a_server_error_that_another_middleware_answered_counts_by_its_status(
    effects: Effects, chosen: dict[str, Any]
) -> None:
    view = effects.answering(lambda: raising(RuntimeError()))
    with project(path("orders", view), middleware=(f"{__name__}.Conflicts", SEMEL), SEMEL=chosen):
        assert (post().status_code, post().status_code, len(effects.happened)) == (409, 409, 1)


@pytest.mark.parametrize(("error", "status", "times"), [(Final(), 400, 1), (Retryable(), 409, 2)])
def test_of_what_another_middleware_answered_to_an_error_the_policy_comes_first(
    effects: Effects, chosen: dict[str, Any], error: Exception, status: int, times: int
) -> None:
    view = effects.answering(lambda: raising(error))
    middleware = (f"{__name__}.{'Conflicts' if status == 409 else 'Refuses'}", SEMEL)
    with project(path("orders", view), middleware=middleware, SEMEL=chosen):
        assert (post().status_code, post().status_code, len(effects.happened)) == (status, status, times)


class Conflicts:
    """Makes 409 of every error."""

    status = 409

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        return self.get_response(request)

    def process_exception(self, request: Any, exception: Exception) -> HttpResponse:
        return HttpResponse(status=self.status)


class Refuses(Conflicts):
    """Makes 400 of every error."""

    status = 400
