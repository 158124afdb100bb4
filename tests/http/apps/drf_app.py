"""Django REST framework with semel's mixin; authentication and permission are the framework's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from semel import Semel
from tests.http import shop

semel = shop.make_engine(Semel)

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        INSTALLED_APPS=["rest_framework"],
        MIDDLEWARE=["semel.http.django.IdempotencyMiddleware"],  # serves the policy document
        SEMEL={"semel": semel, "scope": lambda request: None, "routes": []},
        REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "UNAUTHENTICATED_TOKEN": None},
    )
app = get_wsgi_application()

from django.http import HttpResponse, StreamingHttpResponse  # noqa: E402 - once the settings are there
from django.urls import path  # noqa: E402
from rest_framework.authentication import BaseAuthentication  # noqa: E402
from rest_framework.permissions import BasePermission  # noqa: E402
from rest_framework.views import APIView  # noqa: E402

from semel.http.drf import IdempotencyMixin  # noqa: E402
from tests.http.apps.django_site import sent  # noqa: E402


@dataclass(frozen=True)
class Caller:
    """A user of the shop."""

    pk: str
    is_authenticated: bool = True


class Authentication(BaseAuthentication):  # type: ignore[misc]  # REST framework has no types
    """Looks at the Authorization header."""

    def authenticate(self, request: Any) -> tuple[Caller, None] | None:
        name = shop.caller_of(request.headers.get("Authorization", ""))
        return None if name is None else (Caller(name), None)


class HasTheRight(BasePermission):  # type: ignore[misc]  # REST framework has no types
    """Refuses who has lost the right."""

    def has_permission(self, request: Any, view: Any) -> bool:
        return shop.may(getattr(request.user, "pk", None))


class Shop(IdempotencyMixin, APIView):  # type: ignore[misc]  # REST framework has no types
    """Every path that answers."""

    authentication_classes = (Authentication,)
    permission_classes = (HasTheRight,)

    def post(self, request: Any) -> Any:
        derived = semel.current().derive("step") if request.path == "/derived" else ""
        body = request._request.body
        return sent(shop.answer(request.path, request.META["QUERY_STRING"], body, derived))

    get = put = patch = delete = post


class Streams(Shop):
    """Every path that streams."""

    def post(self, request: Any) -> Any:
        return StreamingHttpResponse(shop.chunks(request.path), headers=shop.stream_headers(request.path))

    get = put = patch = delete = post


def effects(request: Any) -> HttpResponse:
    return HttpResponse(str(shop.effects()), content_type="text/plain")


def view_of(name: str) -> Any:
    """The view of a path, with the settings that the shop has for it."""
    given = shop.route_settings().get(name, shop.route_settings().get("/**", {}))
    kind = Streams if name in shop.STREAMS else Shop
    made: Any = type(kind.__name__, (kind,), {"idempotency": given})
    return made.as_view()


urlpatterns = [
    path("effects", effects),
    *(path(name.removeprefix("/"), view_of(name)) for name in (*shop.PATHS, *shop.STREAMS)),
]
