"""The dependency that claims: who asks comes from dependencies, the body from the route class.

What always holds: it is set up completely when it is made, so that what is wrong is said before the first request. It
claims once in a request, however often it is asked for.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Final, Unpack

from fastapi import params
from starlette.requests import HTTPConnection

from semel.core.flow import arun
from semel.core.key import Shared
from semel.engine.async_engine import AsyncAttempt, AsyncCall, AsyncEngine, AsyncSemelBase
from semel.errors import InProgress, UsageError
from semel.http.asgi import Tasks
from semel.http.exchange import (
    Exchange,
    Open,
    PassThrough,
    ReadBody,
    ResolveAbout,
    ResolveScope,
    Respond,
    RunApp,
    demand,
)
from semel.http.fastapi.keyed_request import KEYED_REQUEST, KeyedRequest, MustWait, RespondInstead
from semel.http.request import Headers, Request, State
from semel.http.response import Response
from semel.http.route import Route, RouteOptions, Within
from semel.http.route import Scope as ScopeRule

ROUTE: Final = "semel.http.route"
"""Where the ASGI scope holds the route, set by the route class."""
POLICY_AT: Final = "idempotency_policy"
"""Where the application's state says that the policy document is served."""

_REST: Final = re.compile(r"\{[^{}:]*:path\}$")
_PART: Final = re.compile(r"\{[^{}]*\}")


class Idempotency:
    """Claims the key of a request, after every other dependency of its route. Gives the attempt; None without a key.

    Use it as `dependencies=[Depends(once)]` of a route, router or application, or as a parameter of the endpoint, where
    the route class is `IdempotentRoute`; inside another dependency it is refused.

    Args:
        semel: the engine, an `AsyncSemel`.
        scope: to whom the key belongs: `Depends(current_user_id)`, or a function of the request. None means not
            authenticated. `SHARED` opts out.
        settings: see `Route`; but `transaction` is `Depends(session, scope="function")`, the dependency of which gives
            the endpoint its session and commits after it.
    """

    def __init__(
        self, semel: AsyncSemelBase, *, scope: ScopeRule | Shared | params.Depends, **settings: Unpack[RouteOptions]
    ) -> None:
        self.engine = demand(semel, AsyncSemelBase, "FastAPI", "AsyncSemel")
        self.transaction = _session_of(settings.pop("transaction", None))
        self._who = scope if isinstance(scope, params.Depends) else None
        self._rule: ScopeRule | Shared = _by_dependency if isinstance(scope, params.Depends) else scope
        self._given: RouteOptions = RouteOptions(policy=self.engine.policy) | settings
        self._exchanges: dict[str | None, Exchange[AsyncEngine]] = {
            None: Exchange(self.engine, self._rule, None, None, settings)
        }
        self.tasks = Tasks()
        self.settings = Route("/").over(self._given).settings
        self.__signature__ = self._signature()

    def _signature(self) -> inspect.Signature:
        """What FastAPI is to give: the connection, and what the dependencies of this one come to."""
        kind = inspect.Parameter.KEYWORD_ONLY
        wanted = {"who": self._who, "session": self.transaction}
        given = [
            inspect.Parameter(name, kind, default=depends, annotation=Any)
            for name, depends in wanted.items()
            if depends is not None
        ]
        return inspect.Signature([inspect.Parameter("request", kind, annotation=HTTPConnection), *given])

    def route(self, path: str) -> Route:
        """The route of a path as FastAPI writes it."""
        return Route(_pattern(path), **self._given).declare(self.engine.policy_for)

    def wants(self, method: str, names: set[str]) -> bool:
        """Whether a request with headers of these names, in small letters, carries a key here."""
        settings = self.settings
        return method.upper() in settings.methods and (settings.key is not None or settings.key_header.lower() in names)

    def exchange(self, app: Any) -> Exchange[AsyncEngine]:
        """What stands before this application."""
        at = getattr(getattr(app, "state", None), POLICY_AT, None)
        if at not in self._exchanges:
            self._exchanges[at] = Exchange(self.engine, self._rule, None, at, {})
        return self._exchanges[at]

    async def __call__(self, *, request: HTTPConnection, who: Any = None, session: Any = None) -> AsyncAttempt | None:
        """Claim; called by FastAPI.

        Raises:
            Instead: another answer is sent.
            UsageError: the route class is missing.
        """
        if request.scope["type"] != "http":
            return None
        route: Route | None = request.scope.get(ROUTE)
        if route is None:
            raise UsageError(
                f"{request.scope['method']} {request.scope['path']} depends on Idempotency and its route is no "
                "IdempotentRoute; nothing ran. Make the router with APIRouter(route_class=IdempotentRoute)."
            )
        if request.scope["method"].upper() not in route.settings.methods:
            return None
        keyed: KeyedRequest | None = request.scope.get(KEYED_REQUEST)
        if keyed is None or not keyed.is_open:
            await self._claim(request, route, keyed, who, session)
        return None if keyed is None else keyed.attempt

    async def _claim(
        self, request: HTTPConnection, route: Route, keyed: KeyedRequest | None, who: Any, session: Any
    ) -> None:
        exchange = self.exchange(request.scope.get("app"))

        async def perform(wanted: Any) -> Any:
            match wanted:
                case ResolveScope(rule, asked):
                    is_given = self._who is not None and not isinstance(wanted, ResolveAbout)
                    found = who if is_given else rule(asked)
                    return await found if inspect.isawaitable(found) else found
                case ReadBody(limit) if keyed is not None:
                    return keyed.asked if len(keyed.asked) <= limit else None
                case Open() if self.transaction is not None and keyed is not None:
                    return await self._opened(wanted, session, keyed)
                case Open():
                    return await self.engine.open(wanted.key, **wanted.settings())
            raise AssertionError(wanted)

        match await arun(exchange.handle(_seen(request), route), perform):
            case Respond(response):
                raise RespondInstead(response)
            case PassThrough() if keyed is not None:
                keyed.passes = True
            case RunApp() as run_app if keyed is not None:
                keyed.begin(run_app, exchange, session)
                keyed.attempt = self.engine.current()  # None: the policy lets it run without a record

    async def _opened(self, wanted: Open, session: Any, keyed: KeyedRequest) -> AsyncCall[Response]:
        """Claim in the session's transaction, which is given back where another request runs the key."""
        settings = wanted.settings()
        turn = keyed.turn(lambda: self.engine.turn(wanted.key, **settings))
        try:
            return await self.engine.open_within(session, turn.key, **settings)
        except InProgress as error:
            turn.refuse(error)
            raise MustWait from error


def _pattern(path: str) -> str:
    return _PART.sub("*", _REST.sub("**", path)) or "/"


def _by_dependency(request: Any) -> Any:
    """Stands where a rule would: a dependency of FastAPI says who asks."""
    raise AssertionError(request)


def _session_of(transaction: Within | params.Depends | None) -> params.Depends | None:
    if transaction is None or (
        isinstance(transaction, params.Depends) and transaction.dependency and transaction.scope == "function"
    ):
        return transaction
    message = (
        'transaction= is Depends(session, scope="function"), so that the session commits after the endpoint and before '
        "the response is sent; nothing was set up."
    )
    raise UsageError(message)


def _seen(request: HTTPConnection) -> Request:
    scope = request.scope
    lines = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
    query = scope.get("query_string", b"").decode("latin-1")
    known = {name: scope[name] for name in ("user", "auth", "session") if name in scope}
    state = State({**known, **scope.get("state", {})})
    mount = scope.get("root_path", "")
    return Request(scope["method"].upper(), scope["path"], query, Headers(lines), state, request, b"", mount)
