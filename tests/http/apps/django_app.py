"""Django with views that are called, under semel's middleware; authentication is a middleware above it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

from semel import Semel
from tests.http import shop
from tests.http.apps.django_site import configure, sent

semel = shop.make_engine(Semel)

configure(__name__, semel)


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


def answered(request: Any) -> HttpResponse:
    derived = semel.current().derive("step") if request.path == "/derived" else ""
    return sent(shop.answer(request.path, request.META["QUERY_STRING"], request.body, derived))


def streamed(request: Any) -> StreamingHttpResponse:
    return StreamingHttpResponse(shop.chunks(request.path), headers=shop.stream_headers(request.path))


def effects(request: Any) -> HttpResponse:
    return HttpResponse(str(shop.effects()), content_type="text/plain")


urlpatterns = [
    path("effects", effects),
    *(path(name.removeprefix("/"), answered) for name in shop.PATHS),
    *(path(name.removeprefix("/"), streamed) for name in shop.STREAMS),
]
app = get_wsgi_application()
