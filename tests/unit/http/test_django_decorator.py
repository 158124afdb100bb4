"""The decorator of Django views: settings of its own, with the middleware or without it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, assert_type

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.template.response import SimpleTemplateResponse
from django.test import Client, RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from semel import SHARED, AsyncSemel, Policy, Semel
from semel.errors import UsageError
from semel.http.django import idempotent
from tests.unit.http.django_project import SEMEL, Effects, apost, post, project


class Final(Exception):
    """Stored."""


@pytest.fixture
def effects() -> Effects:
    return Effects()


@pytest.fixture
def semel() -> Iterator[Semel]:
    with Semel("memory://", policy=Policy(final_errors=(Final,))) as semel:
        yield semel


@pytest.fixture
def chosen(semel: Semel) -> dict[str, Any]:
    return {"semel": semel, "scope": "SHARED"}


def without_middleware(*patterns: Any, **given: Any) -> Any:
    return project(*patterns, middleware=(), **given)


def raising(error: Exception) -> Any:
    raise error


def test_it_works_without_the_middleware(effects: Effects, chosen: dict[str, Any]) -> None:
    with without_middleware(path("orders", idempotent(effects.view)), SEMEL=chosen):
        assert (post().content, post().content) == (b"effect 1", b"effect 1")


def test_it_takes_engine_and_scope_by_itself(effects: Effects, semel: Semel) -> None:
    view = idempotent(semel=semel, scope=SHARED)(effects.view)
    with without_middleware(path("orders", view)):
        assert (post().content, post().content) == (b"effect 1", b"effect 1")


def test_its_settings_win_over_those_of_the_middleware(effects: Effects, chosen: dict[str, Any]) -> None:
    view = idempotent(required=True)(effects.view)
    with project(path("orders", view), SEMEL={**chosen, "required": False}):
        assert post(key=None).status_code == 400


def test_the_middleware_s_settings_hold_where_it_says_nothing(effects: Effects, chosen: dict[str, Any]) -> None:
    with project(path("orders", idempotent(effects.view)), SEMEL={**chosen, "required": True}):
        assert post(key=None).status_code == 400


def test_with_the_middleware_a_key_is_claimed_once(effects: Effects, chosen: dict[str, Any], semel: Semel) -> None:
    with project(path("orders", idempotent(effects.view)), SEMEL=chosen):
        assert (post().content, post().content) == (b"effect 1", b"effect 1")
    assert [record.key.operation for record in semel.records()] == ["POST /orders"]


class OtherUrls:
    """Chooses the URLs of a request below semel's middleware."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        request.urlconf = request.META["urls"]
        return self.get_response(request)


def test_a_view_that_the_middleware_cannot_see_is_claimed_once(
    effects: Effects, chosen: dict[str, Any], semel: Semel
) -> None:
    urls = (path("orders", idempotent(effects.view)),)
    with project(middleware=(SEMEL, f"{__name__}.OtherUrls"), SEMEL=chosen):
        assert post(urls=urls).status_code == 201
    assert [record.key.operation for record in semel.records()] == ["POST /**"]


def test_the_path_is_part_of_the_key_where_the_url_has_parameters(effects: Effects, chosen: dict[str, Any]) -> None:
    with without_middleware(path("orders/<int:number>", idempotent(effects.view)), SEMEL=chosen):
        assert (post("/orders/1").content, post("/orders/2").content) == (b"effect 1", b"effect 2")


def test_other_methods_pass(effects: Effects, chosen: dict[str, Any]) -> None:
    with without_middleware(path("orders", idempotent(effects.view)), SEMEL=chosen):
        Client().get("/orders", headers={"Idempotency-Key": "k1"})
        Client().get("/orders", headers={"Idempotency-Key": "k1"})
    assert len(effects.happened) == 2


def test_it_can_be_called_without_django_s_handler(effects: Effects, semel: Semel) -> None:
    view = idempotent(semel=semel, scope=SHARED)(effects.view)
    with without_middleware():
        for _ in range(2):
            view(RequestFactory().post("/orders", headers={"Idempotency-Key": "k1"}))
    assert len(effects.happened) == 1


def test_an_error_follows_the_policy_and_is_raised(effects: Effects, chosen: dict[str, Any]) -> None:
    view = idempotent(effects.answering(lambda: raising(Final())))
    with without_middleware(path("orders", view), SEMEL=chosen):
        assert b"Server Error" in post().content
        assert post().json()["type"] == "urn:semel:problem:failed-before"


def test_a_page_that_is_not_found_is_kept(effects: Effects, chosen: dict[str, Any]) -> None:
    view = idempotent(effects.answering(lambda: raising(Http404())))
    with without_middleware(path("orders", view), SEMEL=chosen):
        first, again = post(), post()
    assert (first.status_code, again.content, len(effects.happened)) == (404, first.content, 1)


def test_of_a_page_the_policy_comes_before_its_status(effects: Effects, chosen: dict[str, Any]) -> None:
    view = idempotent(policy=Policy(retry_errors=(Http404,)))(effects.answering(lambda: raising(Http404())))
    with without_middleware(path("orders", view), SEMEL=chosen):
        assert (post().status_code, post().status_code, len(effects.happened)) == (404, 404, 2)


@pytest.mark.anyio
async def test_of_a_page_of_an_awaited_view_the_policy_comes_before_its_status(effects: Effects) -> None:
    async def view(request: Any) -> HttpResponse:
        effects.view(request)
        raise PermissionDenied

    async with AsyncSemel("memory://", policy=Policy(final_errors=(PermissionDenied,))) as semel:
        with without_middleware(path("orders", idempotent(view)), SEMEL={"semel": semel, "scope": SHARED}):
            assert ((await apost()).status_code, (await apost()).status_code) == (403, 403)
    assert len(effects.happened) == 1


def test_a_view_keeps_its_type() -> None:
    def view(request: str, /) -> int:
        return len(request)

    assert_type(idempotent(view), Callable[[str], int])
    assert_type(idempotent(required=True)(view), Callable[[str], int])


class Late(SimpleTemplateResponse):  # type: ignore[misc]  # Django has no types
    """Makes its bytes when it is rendered."""

    def __init__(self) -> None:
        super().__init__(template="")

    @property
    def rendered_content(self) -> str:
        return "late"


def test_a_response_that_is_rendered_late_is_kept_whole(effects: Effects, chosen: dict[str, Any]) -> None:
    with without_middleware(path("orders", idempotent(effects.answering(Late))), SEMEL=chosen):
        assert (post().content, post().content) == (b"late", b"late")


def test_below_a_check_of_rights_who_lost_the_right_gets_no_replay(effects: Effects, chosen: dict[str, Any]) -> None:
    allowed = [True, False]

    def checked(request: Any) -> None:
        if not allowed.pop(0):
            raise PermissionDenied

    with project(path("orders", decorator_from(checked)(idempotent(effects.view))), SEMEL=chosen):
        assert (post().status_code, post().status_code) == (201, 403)


def decorator_from(check: Any) -> Any:
    """As Django's own decorators for rights are made."""

    def decorator(view: Any) -> Any:
        @functools.wraps(view)
        def wrapper(request: Any, *args: Any, **kwargs: Any) -> Any:
            check(request)
            return view(request, *args, **kwargs)

        return wrapper

    return decorator


def test_a_class_is_decorated_at_dispatch(effects: Effects, chosen: dict[str, Any], semel: Semel) -> None:
    @method_decorator(idempotent(required=True), name="dispatch")
    class Orders(View):  # type: ignore[misc]  # Django has no types
        def post(self, request: Any) -> Any:
            return effects.view(request)

    with project(path("orders", Orders.as_view()), SEMEL=chosen):
        assert post(key=None).status_code == 400
        assert (post().content, post().content) == (b"effect 1", b"effect 1")


def test_a_class_is_decorated_at_one_method(effects: Effects, chosen: dict[str, Any]) -> None:
    class Orders(View):  # type: ignore[misc]  # Django has no types
        @method_decorator(idempotent(required=True))  # type: ignore[untyped-decorator]  # Django has no types
        def post(self, request: Any) -> Any:
            return effects.view(request)

    with project(path("orders", Orders.as_view()), SEMEL=chosen):
        assert post(key=None).status_code == 400
        assert (post().content, post().content) == (b"effect 1", b"effect 1")


def test_the_policy_document_names_the_view(effects: Effects, chosen: dict[str, Any]) -> None:
    view = idempotent(required=True)(effects.view)
    with project(path("orders/<int:number>", view), SEMEL={**chosen, "policy_path": "/keys", "routes": []}):
        routes = Client().get("/keys").json()["routes"]
    assert [(route["path"], route["required"]) for route in routes] == [("/orders/<int:number>", True)]


def test_what_cannot_be_so_is_said_at_the_view(effects: Effects) -> None:
    with pytest.raises(UsageError, match="no setting 'needed'"):
        idempotent(needed=True)


def test_an_awaited_view_has_no_transaction(effects: Effects) -> None:
    with pytest.raises(UsageError, match="plain def"):
        idempotent(transaction="default")(effects.awaited)


@pytest.mark.anyio
async def test_an_awaited_view_runs_once(effects: Effects) -> None:
    async with AsyncSemel("memory://") as semel:
        view = idempotent(semel=semel, scope=SHARED)(effects.awaited)
        with without_middleware(path("orders", view)):
            first, again = await apost(), await apost()
    assert (first.content, again.content) == (b"effect 1", b"effect 1")


@pytest.mark.anyio
async def test_an_awaited_view_may_answer_with_what_is_rendered_late() -> None:
    async def view(request: Any) -> Late:
        return Late()

    async with AsyncSemel("memory://") as semel:
        with without_middleware(path("orders", idempotent(view)), SEMEL={"semel": semel, "scope": SHARED}):
            first, again = await apost(), await apost()
    assert (first.content, again.content) == (b"late", b"late")


@pytest.mark.anyio
async def test_a_page_of_an_awaited_view_is_kept() -> None:
    async def view(request: Any) -> HttpResponse:
        raise Http404

    async with AsyncSemel("memory://") as semel:
        with without_middleware(path("orders", idempotent(view)), SEMEL={"semel": semel, "scope": SHARED}):
            first, again = await apost(), await apost()
    assert (first.status_code, again.headers["Idempotency-Replayed"]) == (404, "true")


@pytest.mark.anyio
async def test_a_class_of_awaited_methods_is_decorated_at_dispatch(effects: Effects) -> None:
    async with AsyncSemel("memory://") as semel:

        @method_decorator(idempotent(semel=semel, scope=SHARED), name="dispatch")
        class Orders(View):  # type: ignore[misc]  # Django has no types
            async def post(self, request: Any) -> Any:
                return effects.view(request)

        with without_middleware(path("orders", Orders.as_view())):
            first, again = await apost(), await apost()
    assert (first.content, again.content) == (b"effect 1", b"effect 1")


@pytest.mark.anyio
async def test_a_called_view_keeps_its_engine_in_an_awaited_chain(effects: Effects, semel: Semel) -> None:
    async with AsyncSemel("memory://") as other:
        view = idempotent(semel=semel, scope=SHARED)(effects.view)
        with project(path("orders", view), SEMEL={"semel": other, "scope": SHARED}):
            first, again = await apost(), await apost()
    assert (first.content, again.content) == (b"effect 1", b"effect 1")
