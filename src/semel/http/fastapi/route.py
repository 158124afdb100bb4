"""The route class: reads the body ahead, keeps the client's leave away, and turns verdicts into responses.

What always holds: a route without the dependency is an ordinary route. What cannot be right about one that has it (two
of them, one inside another dependency, a session that commits after the response was sent) is said when the route is
made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from fastapi import FastAPI, routing
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response as Answered
from starlette.types import Receive, Scope, Send

from semel.errors import UsageError
from semel.http import problem
from semel.http.asgi import ClientDisconnected
from semel.http.exchange import POLICY_PATH
from semel.http.fastapi.dependency import POLICY_AT, ROUTE, Idempotency
from semel.http.fastapi.keyed_request import KeyedRequest, settle_response
from semel.http.fastapi.openapi import operation
from semel.http.policy_document import document
from semel.http.route import Route, Routes


class IdempotentRoute(APIRoute):
    """A route that may depend on `Idempotency`: `APIRouter(route_class=IdempotentRoute)`."""

    _known: tuple[Idempotency, ...] = ()
    """All that this route depends on, wherever it is included."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Answered]]:
        """The handler; called by FastAPI whenever the route is made or included."""
        made = self._being_made()
        handler = super().get_route_handler()
        once = _dependency_of(made.dependant, made.path)
        if once is None:
            return handler
        _check_place(once, made.dependant, made.path)
        _check_session(once, made.dependant, made.path)
        # The claim comes last: whoever may not ask is told so, and gets no replay.
        made.dependant.dependencies.sort(key=lambda known: known.call is once)
        self._known = (*self._known, once)
        route = once.route(made.path)
        if made.methods & route.settings.methods:
            said, has_header = made.openapi_extra or {}, _declares(made.dependant, route.settings.key_header)
            made.openapi_extra = operation(route, said, has_header=has_header)

        async def handle(request: Request) -> Answered:
            request.scope[ROUTE] = route
            return await settle_response(handler, request)

        return handle

    def _being_made(self) -> Any:
        """What a handler is asked for: this route, or what becomes of it in a router that includes it."""
        # FastAPI tells it in this variable only; before routers were included as a whole it had none and made copies.
        variable = getattr(routing, "_effective_route_context_var", None)
        included = None if variable is None else variable.get()
        return included if included is not None and included.original_route is self else self

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request with a key, or hand it on."""
        names = {name.decode("latin-1").lower() for name, _ in scope["headers"]} if self._known else set()
        wanting = [once for once in self._known if once.wants(scope["method"], names)]
        if not wanting:
            await super().handle(scope, receive, send)
            return
        once = wanting[0]
        keyed = KeyedRequest(super().handle, scope, receive, send, once.exchange(scope.get("app")))
        limit = max(known.settings.max_body for known in wanting)
        try:
            is_within_limit = await keyed.read(limit)
        except ClientDisconnected:
            return  # the client left before its request was whole: nothing ran, and nobody is there to be told
        if is_within_limit:
            await once.tasks.shielded(keyed.run_to_end(), keyed.client_left)
        else:
            link = once.exchange(scope.get("app")).policy_link(scope.get("root_path", ""))
            await keyed.answer(problem.too_large(limit).response(link))


def describe(app: FastAPI, at: str = POLICY_PATH) -> None:
    """Serve the policy document: what the routes of this application promise about keys. Problems link to it.

    Args:
        app: the application; its routes are looked at when the document is asked for.
        at: the path.

    Raises:
        UsageError: a route depends on `Idempotency` and is no `IdempotentRoute`.
    """
    if not at.startswith("/"):
        raise UsageError(f"at= is a path that begins with a slash, unlike {at!r}; nothing was set up.")
    list(_routes(app))

    async def policy(request: Request) -> Answered:
        made = document(Routes(tuple(_routes(request.app))))
        return Answered(made.body, made.status, dict(made.headers))

    setattr(app.state, POLICY_AT, at)
    app.router.add_route(at, policy, methods=["GET"], include_in_schema=False)


def _routes(app: FastAPI) -> Iterator[Route]:
    for route, made in _made_routes(app):
        once = _dependency_of(made.dependant, made.path)
        if once is not None and not isinstance(route, IdempotentRoute):
            raise UsageError(
                f"{made.path} depends on Idempotency and its route is no IdempotentRoute; nothing was set up. Make the "
                "router with APIRouter(route_class=IdempotentRoute)."
            )
        if once is not None and made.methods & once.settings.methods:
            yield once.route(made.path)


def _made_routes(app: FastAPI) -> Iterator[tuple[APIRoute, Any]]:
    contexts = getattr(routing, "iter_route_contexts", None)
    for made in app.routes if contexts is None else contexts(app.routes):
        route = getattr(made, "original_route", made)
        if isinstance(route, APIRoute):
            yield route, made


def _walked(dependant: Dependant) -> Iterator[Dependant]:
    for known in dependant.dependencies:
        yield known
        yield from _walked(known)


def _dependency_of(dependant: Dependant, path: str) -> Idempotency | None:
    found = {id(known.call): known.call for known in _walked(dependant) if isinstance(known.call, Idempotency)}
    if len(found) > 1:
        raise UsageError(
            f"{path} depends on two Idempotency objects, and a request has one key; nothing was set up. Leave one out, "
            "of the route or of its router."
        )
    return next(iter(found.values()), None)


def _check_place(once: Idempotency, dependant: Dependant, path: str) -> None:
    """Only a dependency of the route itself can be put behind all others, among which are those that say no."""
    direct = dependant.dependencies
    if any(known.call is once for first in direct if first.call is not once for known in _walked(first)):
        raise UsageError(
            f"{path} depends on Idempotency inside another dependency, where it would claim, and replay, before all "
            "checks were made; nothing was set up. Write dependencies=[Depends(once)] at the route, its router or the "
            "application, or take it as a parameter of the endpoint, and call from there what needs the attempt."
        )


def _declares(dependant: Dependant, header: str) -> bool:
    fields: Any = get_flat_params(dependant)
    return any(known.field_info.in_ is ParamTypes.header and known.alias.lower() == header.lower() for known in fields)


def _check_session(once: Idempotency, dependant: Dependant, path: str) -> None:
    """The session must commit before the response is sent, and be the one that the endpoint writes to."""
    if once.transaction is None:
        return
    for known in _walked(dependant):
        if known.call == once.transaction.dependency and (_commits_late(known) or not known.use_cache):
            raise UsageError(
                f"{path} takes the session of transaction= in another way than the endpoint's row and the record of "
                'its response need to commit together; nothing was set up. Write Depends(session, scope="function") '
                "wherever the session is asked for."
            )


def _commits_late(dependant: Dependant) -> bool:
    """Whether its end comes after the response was sent; a function without an end has those of what it is given."""
    if _has_end(dependant.call):
        return dependant.scope != "function"
    return any(_commits_late(known) for known in dependant.dependencies)


def _has_end(call: Any) -> bool:
    while isinstance(call, partial):
        call = call.func
    made = inspect.unwrap(call)
    kinds = (made, getattr(made, "__call__", None))  # noqa: B004 - an object may be called like a generator function
    return any(inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind) for kind in kinds)
