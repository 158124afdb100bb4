"""The server as an ASGI application: admin API, metrics, health and sign-in, alone or mounted in another one."""

from __future__ import annotations

import html
import importlib.metadata
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from semel.api import AsyncSemel, Semel
from semel.core.flow import Flow, ask
from semel.core.operations import Read
from semel.errors import SemelError, UsageError
from semel.events import Consumer
from semel.server.access import Permission, User
from semel.server.actions import make_actions
from semel.server.api.document import openapi_document
from semel.server.api.protection import Protection, check_site, read_bounded
from semel.server.api.routes import Api, problem, refused_response
from semel.server.api.signin import Anybody, ByApplication, ByToken, FindUser, SignIn
from semel.server.api.views import Health
from semel.server.api.way_back import way_back
from semel.server.attention import AttentionFinder
from semel.server.engines import perform
from semel.server.tokens import Tokens
from semel.telemetry.attention import Attention

WriteMetrics = Callable[[], Awaitable[tuple[bytes, str]]]
"""Gives the metrics as text, and the media type of it."""
_SIGN_IN: Final = """<!doctype html><html lang="en-GB"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>Sign in · semel</title><link rel="icon" href="{root}/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{root}/static/console.css"></head>
<body><main class="page sign-in"><div class="card"><div class="head"><h1>Sign in to semel</h1></div>
<form class="inside" method="post"><p class="soft" role="status">{message}</p><div class="field">
<label for="token">Token</label><input id="token" type="password" name="token" autocomplete="off" required autofocus>
</div><div class="buttons"><button class="primary" type="submit">Sign in</button></div></form></div></main></body>
</html>"""
_SIGN_IN_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",  # with none at all a browser does not say which site a form is of
}
_NO_TOKEN: Final = "Every action is written down under the name of the token."  # noqa: S105 - a sentence


def make_app(
    semel: Semel | AsyncSemel,
    *,
    user: FindUser | None = None,
    tokens: Tokens | None = None,
    anybody: bool = False,
    consumers: Iterable[Consumer[Any]] = (),
    metrics: WriteMetrics | None = None,
    open_metrics: bool = False,
    hosts: Collection[str] | None = None,
    pages: Callable[[Api], Sequence[BaseRoute]] | None = None,
    background: Callable[[Api], AbstractAsyncContextManager[None]] | None = None,
) -> Starlette:
    """The operators' server as an application.

    Args:
        semel: the engine whose records are looked after.
        user: says who sent a request; for an application that knows its users.
        tokens: where the users' tokens are kept; for a server of its own.
        anybody: everybody who reaches it is an admin. Exactly one of the three has to be given.
        consumers: consumers whose dead letters can be redriven here.
        metrics: writes the metrics; None: there are none.
        open_metrics: whether metrics are shown without signing in.
        hosts: the names that the server answers to; None: to any.
        pages: further routes, which come after those of the API.
        background: what runs as long as the server does.

    Raises:
        UsageError: not exactly one way to know users is given.
    """
    sign_in = _sign_in_of(user, tokens, anybody=anybody)
    api = Api(make_actions(semel, consumers=consumers, tokens=tokens), sign_in)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        try:
            if background is None:
                yield
            else:
                async with background(api):
                    yield
        finally:
            await api.runner.close()

    app = Starlette(
        routes=[
            *_open_routes(api),
            Route("/metrics", _metrics(api, metrics, is_open=open_metrics), name="metrics"),
            *(_session_routes(sign_in) if isinstance(sign_in, ByToken) else ()),
            *api.routes(),
            *(() if pages is None else pages(api)),
        ],
        middleware=[Middleware(Protection, hosts=hosts)],
        lifespan=lifespan,
    )
    app.state.api = api
    return app


def _sign_in_of(user: FindUser | None, tokens: Tokens | None, *, anybody: bool) -> SignIn:
    if (user is not None) + (tokens is not None) + anybody != 1:
        message = "make_app() needs one way to know its users: user=, tokens= or anybody=True; nothing was made."
        raise UsageError(message)
    if user is not None:
        return ByApplication(user)
    return Anybody() if tokens is None else ByToken(tokens)


def _open_routes(api: Api) -> list[Route]:
    """What is answered to anybody: nothing of it is about a record."""

    async def openapi(request: Request) -> Response:
        del request
        return Response(_document(), media_type="application/json")

    async def health(request: Request) -> Response:
        del request
        try:
            await perform(api.actions.semel, _ask_store())
        except SemelError:
            return problem(503, "The store did not answer.", "unavailable")
        return Response(msgspec.json.encode(Health("ok")), media_type="application/json")

    return [Route("/openapi.json", openapi, name="openapi"), Route("/health", health, name="health")]


@cache
def _document() -> bytes:
    """The OpenAPI document; made when it is first asked for, because few ask."""
    return msgspec.json.encode(openapi_document(_version()))


def _ask_store() -> Flow[Any]:
    return (yield from ask(Read(bytes(32), operation="")))


def _version() -> str:
    try:
        return importlib.metadata.version("semel")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _metrics(api: Api, write: WriteMetrics | None, *, is_open: bool) -> Callable[[Request], Awaitable[Response]]:
    async def metrics(request: Request) -> Response:
        try:
            if not is_open:
                user = await api.user_of(request)
                if isinstance(user, Response):
                    return user
                api.actions.demand_everywhere(user, Permission.LIST)
            if write is None:
                return problem(404, "No metrics are collected here.", "not_found")
            text, kind = await write()
        except SemelError as error:
            return refused_response(error)
        return Response(text, media_type=kind)

    return metrics


def _session_routes(sign_in: ByToken) -> list[Route]:
    """A page for browsers, which have no other way to show a token."""

    def page(request: Request, message: str, code: int = 200) -> Response:
        text = _SIGN_IN.format(message=message, root=html.escape(request.scope.get("root_path", "")))
        return HTMLResponse(text, code, headers=_SIGN_IN_HEADERS)

    async def show(request: Request) -> Response:
        return page(request, _NO_TOKEN)

    async def open_session(request: Request) -> Response:
        try:
            check_site(request, by_browser=True)
            form = parse_qs((await read_bounded(request)).decode("utf-8", "replace"))
            secret = form.get("token", [""])[0].strip()
            user = await sign_in.look_up(request, secret)
        except SemelError as error:
            return refused_response(error)
        if user is None:
            return page(request, "This token is unknown, expired or revoked.", 401)
        response = RedirectResponse(way_back(request), 303)
        sign_in.open_session(request, response, secret)
        return response

    async def end_session(request: Request) -> Response:
        try:
            check_site(request, by_browser=True)
        except SemelError as error:
            return refused_response(error)
        response = RedirectResponse(request.scope.get("root_path", "") + "/sign-in", 303)
        sign_in.end_session(request, response)
        return response

    return [
        Route("/sign-in", show, name="sign_in"),
        Route("/sign-in", open_session, methods=["POST"], name="open_session"),
        Route("/sign-out", end_session, methods=["POST"], name="end_session"),
    ]


async def find_attention(finder: AttentionFinder, now: Callable[[], datetime]) -> list[Attention]:
    """What needs a person in all scopes, as the gauges take it; numbers of 0 say that it was looked for."""
    found = await finder.look()
    told = [
        Attention(
            kind="paused_batch" if need.kind == "paused_bulk" else need.kind,  # its operation tells them apart
            operation=need.operation,
            number=need.number,
            oldest_seconds=max(0.0, (found.at - need.oldest).total_seconds()),
            policy=need.policy,
        )
        for need in found.needs
    ]
    for operation, number, since in await finder.count_lapsed():
        age = max(0.0, (found.at - since).total_seconds())
        told.append(Attention(kind="lapsed", operation=operation, number=number, oldest_seconds=age))
    for stream, number, oldest in await finder.backlog():
        age = 0.0 if oldest is None else max(0.0, (now() - oldest).total_seconds())
        told.append(Attention(kind="outbox", operation=stream, number=number, oldest_seconds=age))
    return told


__all__ = ["User", "find_attention", "make_app"]
