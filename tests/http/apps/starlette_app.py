"""Starlette under the ASGI middleware; authentication is a middleware outside it."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route as Path

from semel.http import Route
from semel.http.asgi import IdempotencyMiddleware
from tests.http import shop
from tests.http.apps.starlette_views import answered, semel, streamed


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
