"""Keys for any ASGI application.

What always holds: requests without a key, and everything that is not HTTP, pass untouched. With a key the application
is called once its whole body is there, in a task that no disconnecting client stops. Its answer reaches the client
unchanged; the last byte of it leaves only after the outcome was recorded, and background work starts after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from semel.core.flow import arun
from semel.core.key import Shared
from semel.engine.aio import AsyncEngine
from semel.http.asgi_call import App, Call, Gone, Receive, Scope, SendMessage, send_response
from semel.http.asgi_tasks import Tasks
from semel.http.exchange import Answer, Go, Pass, Undone
from semel.http.front import DESCRIBED_AT, Front, demand
from semel.http.request import RawHeaders, Request, State, below
from semel.http.route import Given, Route
from semel.http.route import Scope as ScopeRule


class IdempotencyMiddleware:
    """Runs each keyed request once.

    Args:
        app: the application.
        semel: the engine, an `AsyncSemel`.
        scope: from the request to whom the key belongs, taken from authenticated state; None means not authenticated.
            `SHARED` opts out.
        routes: which requests carry keys; without it, every POST and PATCH that carries one.
        described_at: where the policy document is served; None: nowhere.
        settings: what holds for every route that says nothing else; see `Route`.
    """

    def __init__(
        self,
        app: App,
        *,
        semel: AsyncEngine,
        scope: ScopeRule | Shared,
        routes: Iterable[Route] | None = None,
        described_at: str | None = DESCRIBED_AT,
        **settings: Unpack[Given],
    ) -> None:
        engine = demand(semel, AsyncEngine, "An ASGI application", "AsyncSemel")
        self.app = app
        self._front = Front(engine, scope, routes, described_at, settings)
        self._tasks = Tasks()
        self._methods = self._front.routes.methods
        self._find = self._front.routes.find
        self._described_at = described_at or "\0"  # the end of no path

    async def __call__(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        """Take a request, or hand it on."""
        # In the order of how often it is so: what carries no key pays for no more than these comparisons.
        if scope["type"] == "http":
            method = scope["method"].upper()  # some servers leave it as it was sent, and some frameworks do not mind
            if method in self._methods:
                route = self._find(method, _below(scope))
                if route is not None:
                    await self._exchanged(route, Call(self.app, scope, receive, send, self._front))
                    return
            elif scope["path"].endswith(self._described_at):
                document = self._front.described(method, _below(scope))
                if document is not None:
                    await send_response(document, send, head=method == "HEAD")
                    return
        await self.app(scope, receive, send)

    async def _exchanged(self, route: Route, call: Call) -> None:
        try:
            verdict = await arun(self._front.exchange(_request(call.scope), route), call.perform)
        except Gone:
            return  # the client left before its request was whole: nothing ran, and nobody is there to be told
        except BaseException as error:
            await call.undo(error)
            raise
        match verdict:
            case Pass():
                await call.passed_on()
            case Answer(response):
                await call.undo(Undone("another answer is sent"))
                await call.answer(response)
            case Go():
                await self._tasks.shielded(call.run(verdict), call.client_left)


def _below(scope: Scope) -> str:
    mount = scope.get("root_path")
    return below(scope["path"], mount) if mount else scope["path"]


def _request(scope: Scope) -> Request:
    query = scope.get("query_string", b"").decode("latin-1")
    headers, mount = RawHeaders(scope["headers"]), scope.get("root_path", "")
    return Request(scope["method"].upper(), scope["path"], query, headers, _Left(scope), scope, b"", mount)


class _Left(State):
    """What authentication has left: Starlette's `request.state`, and `request.user` and `request.auth` beside it."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def _values(self) -> Mapping[str, Any]:  # type: ignore[override]  # put together only where a rule asks
        known = {name: self._scope[name] for name in ("user", "auth", "session") if name in self._scope}
        return {**known, **self._scope.get("state", {})}
