"""Django with views that are called, under semel's middleware; authentication is a middleware above it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

from semel import Semel
from semel.http import Route
from tests.http import shop

semel = Semel(shop.store_url(), policy=shop.policy())

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        MIDDLEWARE=[f"{__name__}.Authentication", "semel.http.django.IdempotencyMiddleware"],
        SEMEL={
            "semel": semel,
            "scope": lambda request: request.native.caller,
            "routes": [*(Route(path, **given) for path, given in shop.route_settings().items()), Route("/**")],
        },
    )


class Authentication:
    """Leaves the caller with the request, and refuses who has lost the right."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        """Look at the Authorization header."""
        request.caller = shop.caller_of(request.headers.get("Authorization", ""))
        if not shop.may(request.caller):
            return HttpResponse("forbidden", status=403, content_type="text/plain")
        return self.get_response(request)


def sent(reply: shop.Reply) -> HttpResponse:
    """As Django sends it: one value for each header, except for cookies."""
    response = HttpResponse(reply.body, status=reply.status)
    del response.headers["Content-Type"]
    for name, value in reply.headers:
        if name == "Set-Cookie":
            response.set_cookie(*value.split("=", 1))
        else:
            known = response.headers.get(name)
            response.headers[name] = value if known is None else f"{known}, {value}"
    return response


def answered(request: Any) -> HttpResponse:
    derived = semel.current().derive("step") if request.path == "/derived" else ""
    return sent(shop.answer(request.path, request.META["QUERY_STRING"], request.body, derived))


def streamed(request: Any) -> StreamingHttpResponse:
    return StreamingHttpResponse(shop.chunks(request.path), content_type=shop.stream_type(request.path))


def effects(request: Any) -> HttpResponse:
    return HttpResponse(str(shop.effects()), content_type="text/plain")


urlpatterns = [
    path("effects", effects),
    *(path(name.removeprefix("/"), answered) for name in shop.PATHS),
    *(path(name.removeprefix("/"), streamed) for name in shop.STREAMS),
]
app = get_wsgi_application()
