"""Django with views that are awaited, under semel's middleware; authentication is a middleware above it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from asgiref.sync import markcoroutinefunction, sync_to_async
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

from semel import AsyncSemel
from tests.http import shop
from tests.http.apps.django_site import configure, sent

semel = shop.make_engine(AsyncSemel)

configure(__name__, semel)


class Authentication:
    """Leaves the caller with the request, and refuses who has lost the right."""

    async_capable = True
    sync_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], Awaitable[HttpResponse]]) -> None:
        self.get_response = get_response
        markcoroutinefunction(self)

    async def __call__(self, request: Any) -> Any:
        """Look at the Authorization header."""
        request.caller = shop.caller_of(request.headers.get("Authorization", ""))
        if not shop.may(request.caller):
            return HttpResponse("forbidden", status=403, content_type="text/plain")
        return await self.get_response(request)


async def answered(request: Any) -> HttpResponse:
    derived = semel.current().derive("step") if request.path == "/derived" else ""
    answer = sync_to_async(shop.answer, thread_sensitive=False)
    return sent(await answer(request.path, request.META["QUERY_STRING"], request.body, derived))


async def streamed(request: Any) -> StreamingHttpResponse:
    chunks = shop.async_chunks if request.path in shop.ENDLESS else _chunks
    return StreamingHttpResponse(chunks(request.path), headers=shop.stream_headers(request.path))


async def _chunks(path: str) -> AsyncIterator[bytes]:
    chunks = shop.chunks(path)
    while (chunk := await sync_to_async(lambda: next(chunks, None), thread_sensitive=False)()) is not None:
        yield chunk


async def effects(request: Any) -> HttpResponse:
    return HttpResponse(str(shop.effects()), content_type="text/plain")


urlpatterns = [
    path("effects", effects),
    *(path(name.removeprefix("/"), answered) for name in shop.PATHS),
    *(path(name.removeprefix("/"), streamed) for name in shop.STREAMS),
]
app = get_asgi_application()
