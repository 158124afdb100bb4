"""Django as any ASGI application, under the ASGI middleware and without Django's own; views are called."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path

from semel import AsyncSemel
from semel.http import Route
from semel.http.asgi import IdempotencyMiddleware
from tests.http import shop
from tests.http.apps.django_site import sent
from tests.http.apps.starlette_app import Authentication

if not settings.configured:
    settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, MIDDLEWARE=[])

semel = shop.make_engine(AsyncSemel)


def answered(request: Any) -> HttpResponse:
    return sent(shop.answer(request.path, request.META["QUERY_STRING"], request.body))


def streamed(request: Any) -> StreamingHttpResponse:
    return StreamingHttpResponse(shop.chunks(request.path), content_type=shop.stream_type(request.path))


urlpatterns = [
    *(path(name.removeprefix("/"), answered) for name in shop.PATHS),
    *(path(name.removeprefix("/"), streamed) for name in shop.STREAMS),
]
app = Authentication(
    IdempotencyMiddleware(
        get_asgi_application(),
        semel=semel,
        scope=lambda request: request.state.caller,
        routes=[*(Route(path, **given) for path, given in shop.route_settings().items()), Route("/**")],
    )
)
