"""Starlette under the ASGI middleware; authentication is a middleware outside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route as Path

from semel import AsyncSemel
from semel.http import Route
from semel.http.asgi import IdempotencyMiddleware
from tests.http import shop

semel = AsyncSemel(shop.store_url(), policy=shop.policy())


class Authentication:
    """Leaves the caller in the state, and refuses who has lost the right."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Look at the Authorization header."""
        if scope["type"] == "http":
            caller = shop.caller_of(dict(scope["headers"]).get(b"authorization", b"").decode())
            scope.setdefault("state", {})["caller"] = caller
            if not shop.may(caller):
                await PlainTextResponse("forbidden", status_code=403)(scope, receive, send)
                return
        await self.app(scope, receive, send)


async def answered(request: Request) -> Response:
    body = await request.body()
    derived = semel.current().derive("step") if request.url.path == "/derived" else ""
    reply = await run_in_threadpool(shop.answer, request.url.path, request.url.query, body, derived)
    response = Response(reply.body, reply.status)
    for name, value in reply.headers:
        response.headers.append(name, value)
    return response


async def streamed(request: Request) -> Response:
    await request.body()
    path = request.url.path
    return StreamingResponse(_chunks(path), media_type=shop.stream_type(path))


async def _chunks(path: str) -> AsyncIterator[bytes]:
    async for chunk in iterate_in_threadpool(shop.chunks(path)):
        yield chunk


async def effects(request: Request) -> Response:
    return PlainTextResponse(str(shop.effects()))


METHODS = ["POST", "PUT", "PATCH", "DELETE", "GET"]


def site(*inner: Middleware) -> Starlette:
    """The application, with further middleware between semel's and the views."""
    keys = Middleware(
        IdempotencyMiddleware,
        semel=semel,
        scope=lambda request: request.state.caller,
        routes=[*(Route(path, **given) for path, given in shop.route_settings().items()), Route("/**")],
    )
    return Starlette(
        routes=[
            Path("/effects", effects),
            *(Path(path, answered, methods=METHODS) for path in shop.PATHS),
            *(Path(path, streamed, methods=METHODS) for path in shop.STREAMS),
        ],
        middleware=[Middleware(Authentication), keys, *inner],
    )


app = site()
