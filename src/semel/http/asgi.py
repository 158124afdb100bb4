"""Keys for any ASGI application.

What always holds: requests without a key, and everything that is not HTTP, pass untouched. With a key the application
is called once its whole body is there, in a task that no disconnecting client stops. Its answer reaches the client
unchanged; the last byte of it leaves only after the outcome was recorded, and background work starts after that.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any, Final, Unpack

from semel.core.flow import arun
from semel.core.key import Shared
from semel.engine.aio import AsyncEngine
from semel.engine.opened import AsyncOpened
from semel.http.asgi_call import App, Call, Gone, Receive, Scope, SendMessage, send_response
from semel.http.exchange import Answer, Go, Open, Pass, ReadBody, Undone, WhoAsks
from semel.http.front import DESCRIBED_AT, Front, demand
from semel.http.request import RawHeaders, Request, State
from semel.http.response import Response
from semel.http.route import Given, Route
from semel.http.route import Scope as ScopeRule

_log: Final = logging.getLogger("semel")


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
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        """Take a request, or hand it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        method, path = scope["method"], scope["path"]
        route = self._front.find(method, path)
        if route is not None:
            await self._exchanged(route, Call(self.app, scope, receive, send, self._front))
            return
        document = self._front.described(method, path)
        if document is None:
            await self.app(scope, receive, send)
        else:
            await send_response(document, send, head=method == "HEAD")

    async def _exchanged(self, route: Route, call: Call) -> None:
        async with AsyncExitStack() as stack:

            async def perform(wanted: Any) -> Any:
                match wanted:
                    case WhoAsks(rule, request):
                        who = rule(request)
                        return await who if inspect.isawaitable(who) else who
                    case ReadBody(limit):
                        return await call.body(limit)
                    case Open():
                        return await self._opened(wanted, call, stack)
                raise AssertionError(wanted)

            try:
                verdict = await arun(self._front.exchange(_request(call.scope), route), perform)
            except Gone:
                return  # the client left before its request was whole: nothing ran, and nobody is there to be told
            if isinstance(verdict, Answer):
                # Nothing ran in the transaction of the request, if it has one; what was read in it is let go.
                undone = Undone("another answer is sent")
                await stack.__aexit__(type(undone), undone, None)
            task = self._started(call.run(verdict, stack.pop_all())) if isinstance(verdict, Go) else None
        match verdict:
            case Pass():
                await call.passed_on()
            case Answer(response):
                await call.answer(response)
        if task is not None:
            await asyncio.shield(task)

    def _started(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task of its own: a server may cancel that of the request when the client leaves, and the work goes on."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def _opened(self, wanted: Open, call: Call, stack: AsyncExitStack) -> AsyncOpened[Response]:
        engine, within = self._front.engine, wanted.route.settings.within
        if within is None:
            return await engine.open(wanted.key, **wanted.settings())
        call.transaction = await stack.enter_async_context(within(wanted.request))
        return await engine.within(call.transaction).open(wanted.key, **wanted.settings())

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Whoever waits for the task gets the error; if the client has left, nobody does.
            _log.debug("a keyed request ended with %s", type(error).__name__)


def _request(scope: Scope) -> Request:
    query = scope.get("query_string", b"").decode("latin-1")
    return Request(scope["method"], scope["path"], query, RawHeaders(scope["headers"]), State(_state(scope)), scope)


def _state(scope: Scope) -> Any:
    """What authentication has left: Starlette's `request.state`, and `request.user` and `request.auth` beside it."""
    state = scope.get("state", {})
    known = {name: scope[name] for name in ("user", "auth", "session") if name in scope}
    return {**known, **state} if known else state
