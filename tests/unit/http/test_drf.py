"""The mixin for Django REST framework: the claim comes after authentication, permissions and throttling."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import models
from django.test import Client
from django.test.utils import isolate_apps
from django.urls import path
from django.utils.functional import SimpleLazyObject

from semel import SHARED, Policy, Semel
from semel.errors import UsageError
from semel.http.drf import IdempotencyMixin
from tests.unit.http.django_project import Effects, post, project

from rest_framework import exceptions, serializers  # isort: skip  # once Django is set up
from rest_framework.authentication import BaseAuthentication  # isort: skip
from rest_framework.parsers import JSONParser, MultiPartParser  # isort: skip
from rest_framework.permissions import BasePermission  # isort: skip
from rest_framework.renderers import JSONRenderer  # isort: skip
from rest_framework.response import Response  # isort: skip
from rest_framework.throttling import BaseThrottle  # isort: skip
from rest_framework.views import APIView  # isort: skip
from rest_framework.viewsets import ViewSet  # isort: skip


@dataclass(frozen=True)
class User:
    """Somebody who was authenticated."""

    pk: str
    is_authenticated: bool = True


class ByName(BaseAuthentication):  # type: ignore[misc]  # REST framework has no types
    """`Authorization: alice` is alice."""

    def authenticate(self, request: Any) -> tuple[User, None] | None:
        name = request.headers.get("Authorization", "alice")
        if name == "mallory":
            raise exceptions.AuthenticationFailed
        return None if name == "nobody" else (User(name), None)

    def authenticate_header(self, request: Any) -> str:
        return "Name"


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
def base(effects: Effects, semel: Semel) -> Any:
    """A view that counts what it does."""

    class Orders(IdempotencyMixin, APIView):  # type: ignore[misc]  # REST framework has no types
        idempotency = {"semel": semel}  # noqa: RUF012 - as users write it
        authentication_classes = (ByName,)
        renderer_classes = (JSONRenderer,)

        def post(self, request: Any, **kwargs: Any) -> Any:
            effects.happened.append(request.path)
            return Response({"effect": len(effects.happened)}, status=201)

    return Orders


def serving(view: Any, **given: Any) -> Any:
    return project(path("orders", view.as_view()), middleware=(), SEMEL={"scope": SHARED}, **given)


def test_a_view_runs_once_and_is_replayed(base: Any) -> None:
    with serving(base):
        first, again = post(), post()
    assert (first.content, again.content) == (b'{"effect":1}', b'{"effect":1}')
    assert again.headers["Content-Type"] == first.headers["Content-Type"] == "application/json"


def test_the_key_belongs_to_the_user(base: Any) -> None:
    with serving(base):
        answers = [post(headers={"Authorization": name}).content for name in ("alice", "bob", "alice")]
    assert answers == [b'{"effect":1}', b'{"effect":2}', b'{"effect":1}']


@pytest.fixture
def own_models() -> Iterator[None]:
    """Models of a test are unknown to all others."""
    with isolate_apps():
        yield


class Guest(User):
    """Of another kind, and with ids of its own."""


def model(label: str, **given: Any) -> Any:
    """A user model, without a database."""
    app, _, name = label.partition(".")
    meta = type("Meta", (), {"app_label": app, **given.pop("meta", {})})
    bases = given.pop("bases", (models.Model,))
    return type(name, bases, {"__module__": __name__, "Meta": meta, "is_authenticated": True, **given})


def asked_by(base: Any, *users: Any) -> list[bytes]:
    """What each of these is answered, one after the other, under one key."""
    answers = []
    for user in users:

        class Signed(BaseAuthentication):  # type: ignore[misc]  # REST framework has no types
            def authenticate(self, request: Any, user: Any = user) -> Any:
                return user, None

        view = type("Orders", (base,), {"authentication_classes": (Signed,), "idempotency": base.idempotency})
        with serving(view):
            answers.append(post().content)
    return answers


def test_users_of_two_classes_with_one_id_do_not_share_keys(base: Any) -> None:
    one, other, again = asked_by(base, User("1"), Guest("1"), User("1"))
    assert one == again != other, "the answer of one was given to the other"


@pytest.mark.usefixtures("own_models")
def test_users_of_two_models_with_one_id_do_not_share_keys(base: Any) -> None:
    staff, customer = model("staff.User"), model("shop.User")
    one, other, again = asked_by(base, staff(pk=1), customer(pk=1), staff(pk=1))
    assert one == again != other, "the answer of one was given to the other"


@pytest.mark.usefixtures("own_models")
def test_a_user_is_one_however_the_object_was_made(base: Any) -> None:
    plain = model("staff.User")
    proxy = model("staff.Manager", bases=(plain,), meta={"proxy": True})
    users = plain(pk=1), proxy(pk=1), SimpleLazyObject(lambda: plain(pk=1))
    assert len(set(asked_by(base, *users))) == 1, "one user has several scopes"


@pytest.mark.usefixtures("own_models")
def test_a_user_that_was_never_saved_is_nobody(base: Any, effects: Effects) -> None:
    assert b"not-authenticated" in asked_by(base, model("staff.User")())[0]
    assert effects.happened == []


def test_nobody_is_401_and_nothing_runs(base: Any, effects: Effects) -> None:
    with serving(base):
        answer = post(headers={"Authorization": "nobody"})
    assert (answer.status_code, answer.json()["type"]) == (401, "urn:semel:problem:not-authenticated")
    assert effects.happened == []


def test_another_scope_may_be_given(base: Any) -> None:
    class Shared(base):  # type: ignore[misc]  # made by a fixture
        idempotency = {**base.idempotency, "scope": SHARED}  # noqa: RUF012

    with serving(Shared):
        answers = [post(headers={"Authorization": name}).content for name in ("alice", "bob")]
    assert answers == [b'{"effect":1}', b'{"effect":1}']


def test_a_user_who_lost_the_right_gets_403_and_no_replay(base: Any) -> None:
    allowed = [True, False]

    class May(BasePermission):  # type: ignore[misc]  # REST framework has no types
        def has_permission(self, request: Any, view: Any) -> bool:
            return allowed.pop(0)

    base.permission_classes = (May,)
    with serving(base):
        assert (post().status_code, post().status_code) == (201, 403)


def test_a_failed_authentication_is_not_stored(base: Any, semel: Semel) -> None:
    with serving(base):
        assert post(headers={"Authorization": "mallory"}).status_code == 401
    assert list(semel.records()) == []


def test_a_throttled_request_is_not_stored(base: Any, semel: Semel) -> None:
    class Never(BaseThrottle):  # type: ignore[misc]  # REST framework has no types
        def allow_request(self, request: Any, view: Any) -> bool:
            return False

    base.throttle_classes = (Never,)
    with serving(base):
        assert post().status_code == 429
    assert list(semel.records()) == []


def test_a_key_is_required_where_the_view_says_so(base: Any, effects: Effects) -> None:
    class Required(base):  # type: ignore[misc]  # made by a fixture
        idempotency = {**base.idempotency, "required": True}  # noqa: RUF012

    with serving(Required):
        assert post(key=None).status_code == 400
    assert effects.happened == []


class Order(serializers.Serializer):  # type: ignore[misc]  # REST framework has no types
    """What a body must hold."""

    amount = serializers.IntegerField()


def test_a_body_that_is_not_valid_is_400_and_not_kept(base: Any, effects: Effects) -> None:
    class Validating(base):  # type: ignore[misc]  # made by a fixture
        def post(self, request: Any) -> Any:
            super().post(request)
            Order(data=request.data).is_valid(raise_exception=True)

    with serving(Validating):
        assert (post().status_code, post().status_code, len(effects.happened)) == (400, 400, 2)


@pytest.mark.parametrize(("status", "times"), [(404, 1), (503, 2)])
def test_an_error_of_the_framework_counts_by_its_status(base: Any, effects: Effects, status: int, times: int) -> None:
    class Refusing(base):  # type: ignore[misc]  # made by a fixture
        def post(self, request: Any) -> Any:
            super().post(request)
            error = exceptions.APIException()
            error.status_code = status
            raise error

    with serving(Refusing):
        assert (post().status_code, post().status_code) == (status, status)
    assert len(effects.happened) == times


def test_another_error_follows_the_policy_by_its_class(base: Any, effects: Effects) -> None:
    class Failing(base):  # type: ignore[misc]  # made by a fixture
        def post(self, request: Any) -> Any:
            super().post(request)
            raise Final

    with serving(Failing):
        assert b"Server Error" in post().content
        assert post().json()["type"] == "urn:semel:problem:failed-before"


class Declined(Final, exceptions.APIException):  # type: ignore[misc]  # REST framework has no types
    """Final, although the framework makes 400 of it."""

    status_code = 400


def test_of_what_the_framework_answers_to_an_error_the_policy_comes_first(base: Any, effects: Effects) -> None:
    class Declining(base):  # type: ignore[misc]  # made by a fixture
        def post(self, request: Any) -> Any:
            super().post(request)
            raise Declined

    with serving(Declining):
        first, again = post(), post()
    assert (first.status_code, again.content, len(effects.happened)) == (400, first.content, 1)


def test_the_view_finds_its_attempt(base: Any, semel: Semel) -> None:
    class Deriving(base):  # type: ignore[misc]  # made by a fixture
        def post(self, request: Any) -> Any:
            return Response(semel.current().derive("next"))

    with serving(Deriving):
        assert len(post().json()) == 64


def test_what_a_permission_reads_of_the_body_is_compared_all_the_same(base: Any) -> None:
    class Reads(BasePermission):  # type: ignore[misc]  # REST framework has no types
        def has_permission(self, request: Any, view: Any) -> bool:
            return request.data is not None

    base.permission_classes = (Reads,)
    with serving(base):
        assert (post(body='{"a": 1}').status_code, post(body='{"a": 2}').status_code) == (201, 422)


def test_a_body_over_the_limit_is_413(base: Any, effects: Effects) -> None:
    class Small(base):  # type: ignore[misc]  # made by a fixture
        idempotency = {**base.idempotency, "max_body": 5}  # noqa: RUF012

    with serving(Small):
        assert post(body='{"a": 1}').status_code == 413
    assert effects.happened == []


def test_an_upload_can_be_read_by_the_view(base: Any) -> None:
    class Uploads(base):  # type: ignore[misc]  # made by a fixture
        parser_classes = (MultiPartParser, JSONParser)

        def post(self, request: Any) -> Any:
            return Response(request.data["file"].read().decode())

    with serving(Uploads):
        answer = Client().post("/orders", {"file": io.BytesIO(b"xyz")}, headers={"Idempotency-Key": "k1"})
    assert answer.json() == "xyz"


def test_other_methods_pass(base: Any, effects: Effects) -> None:
    base.get = base.post
    with serving(base):
        for _ in range(2):
            Client().get("/orders", headers={"Idempotency-Key": "k1"})
    assert len(effects.happened) == 2


def test_a_view_set_names_the_pattern_of_its_url(semel: Semel, effects: Effects) -> None:
    class Orders(IdempotencyMixin, ViewSet):  # type: ignore[misc]  # REST framework has no types
        idempotency = {"semel": semel}  # noqa: RUF012
        authentication_classes = (ByName,)

        def pay(self, request: Any, number: int) -> Any:
            effects.happened.append(request.path)
            return Response()

    view = Orders.as_view({"post": "pay"})
    with project(path("orders/<int:number>/pay", view), middleware=(), SEMEL={"scope": SHARED}):
        statuses = [post(f"/orders/{number}/pay").status_code for number in (1, 1, 2)]
    assert (statuses, effects.happened) == ([200, 200, 200], ["/orders/1/pay", "/orders/2/pay"])
    assert {record.key.operation for record in semel.records()} == {"POST /orders/<int:number>/pay"}


def test_with_the_middleware_a_key_is_claimed_once(base: Any, semel: Semel) -> None:
    with project(path("orders", base.as_view()), SEMEL={"semel": semel, "scope": SHARED}):
        assert (post().content, post().content) == (b'{"effect":1}', b'{"effect":1}')
    assert [record.key.operation for record in semel.records()] == ["POST /orders"]


def test_the_policy_document_names_the_view(base: Any, semel: Semel) -> None:
    with project(path("orders", base.as_view()), SEMEL={"semel": semel, "scope": SHARED, "routes": []}):
        routes = Client().get("/.well-known/idempotency-policy").json()["routes"]
    assert [route["path"] for route in routes] == ["/orders"]


def test_what_cannot_be_so_is_said_at_the_class() -> None:
    with pytest.raises(UsageError, match="no setting 'needed'"):
        type("Orders", (IdempotencyMixin, APIView), {"idempotency": {"needed": True}})


def test_the_middleware_does_without_rest_framework() -> None:
    program = "import sys, semel.http.django; sys.exit('rest_framework' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
