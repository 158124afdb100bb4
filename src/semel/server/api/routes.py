"""Requests become calls, and answers responses: the one way from the network to an action and back.

- Who asks is found out before anything else; a change is checked before its body is read.
- A refusal is answered as a problem (RFC 9457) with its reason in words. What nobody expected says no more than that;
  its kind is logged, and its text is not: it may hold what is personal.
"""

from __future__ import annotations

import logging
import math
from datetime import timedelta
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from semel.errors import SemelError
from semel.server.access import User
from semel.server.actions import Actions
from semel.server.api.calls import Call
from semel.server.api.endpoints import ENDPOINTS, Endpoint
from semel.server.api.protection import TooLarge, TooManyMisses, WrongType, check_texts, read_json
from semel.server.api.signin import SignIn
from semel.server.api.views import Problem
from semel.server.bulk import BulkActions, BulkRunner
from semel.server.refusals import (
    Forbidden,
    Invalid,
    NotFound,
    NotPossible,
    ReadOnly,
    Refused,
    Unavailable,
    refusal_of,
)

PREFIX: Final = "/api/v1"
_LOG: Final = logging.getLogger("semel.server")
_STATUSES: Final[dict[type[Refused], int]] = {
    NotFound: 404,
    Forbidden: 403,
    Invalid: 422,
    NotPossible: 409,
    ReadOnly: 409,
    Unavailable: 503,
    TooLarge: 413,
    WrongType: 415,
    TooManyMisses: 429,
}
_TITLES: Final = {
    401: "Sign in first",
    403: "Not permitted",
    404: "Not found",
    409: "Not possible now",
    413: "Too large",
    415: "Not JSON",
    422: "Not usable",
    429: "Too many misses",
    500: "Internal error",
    503: "The store did not answer",
}
PROBLEM: Final = "application/problem+json"


def problem(status: int, detail: str, because: str, headers: dict[str, str] | None = None) -> Response:
    """An answer that says why a request was not carried out."""
    told = Problem("about:blank", _TITLES[status], status, detail, because)
    return Response(msgspec.json.encode(told), status, headers, PROBLEM)


def refused_response(error: SemelError) -> Response:
    """The answer for an error of the engine or of an action."""
    refusal = refusal_of(error)
    if not isinstance(refusal, Refused):
        _LOG.error("a request ended with %s", type(error).__qualname__)
        return problem(500, "Something went wrong; the log of the server says what.", refusal.code)
    status = _STATUSES.get(type(refusal), 409)
    after = refusal.facts.get("retry_after")
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    headers = {"Retry-After": str(max(1, math.ceil(seconds)))} if isinstance(seconds, int | float) else None
    return problem(status, refusal.message, refusal.because, headers)


class Api:
    """The endpoints on one set of actions.

    Args:
        actions: what is called.
        sign_in: who asks.
    """

    def __init__(self, actions: Actions, sign_in: SignIn) -> None:
        self.actions = actions
        self.bulk = BulkActions(actions)
        self.runner = BulkRunner(self.bulk)
        self.sign_in = sign_in

    def routes(self) -> list[Route]:
        """One for each endpoint."""
        return [self._route(endpoint) for endpoint in ENDPOINTS]

    async def user_of(self, request: Request) -> User | Response:
        """Who asks, or the answer for somebody who is not known."""
        user = await self.sign_in.find(request)
        if user is None:
            headers = {"WWW-Authenticate": 'Bearer realm="semel"'}
            return problem(401, "Give a token: Authorization: Bearer semel_…", "signed_out", headers)
        return user

    def _route(self, endpoint: Endpoint) -> Route:
        async def answer(request: Request) -> Response:
            try:
                user = await self.user_of(request)
                if isinstance(user, Response):
                    return user
                self.runner.look_for_left()
                check_texts(request)
                return await self._answer(endpoint, request, user)
            except SemelError as error:
                return refused_response(error)
            except Exception as error:  # noqa: BLE001 - the last place; what it says may be personal, so it is not shown
                _LOG.error("a request ended with %s", type(error).__qualname__)
                return problem(500, "Something went wrong; the log of the server says what.", "internal")

        return Route(PREFIX + endpoint.path, answer, methods=[endpoint.method], name=endpoint.name)

    async def _answer(self, endpoint: Endpoint, request: Request, user: User) -> Response:
        body = None
        if endpoint.body is not None:
            self.sign_in.check_change(request)
            body = _read(endpoint.body, await read_json(request))
        query = _convert(endpoint.query, request)
        call = Call(user, self.actions, self.bulk, self.runner, dict(request.path_params), query, body)
        found = await endpoint.act(call)
        is_preview = endpoint.preview is not None and isinstance(found, endpoint.preview)
        status = 200 if is_preview else endpoint.status
        headers = self.sign_in.answer_headers(request)
        return Response(msgspec.json.encode(found), status, headers, "application/json")


def _read(body: type[Any], raw: bytes) -> Any:
    try:
        found = msgspec.json.decode(raw or b"{}", type=body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"The body cannot be used: {error}; nothing was changed.", because="body") from error
    if _has_nul(found):
        raise Invalid("A text in the body holds a NUL character; nothing was changed.", because="body")
    return found


def _has_nul(found: object) -> bool:
    """Whether a text holds NUL, which not every store can keep; what is stated as JSON is none of the texts."""
    match found:
        case str():
            return "\0" in found
        case msgspec.Struct():
            return any(_has_nul(getattr(found, name)) for name in found.__struct_fields__)
        case list():
            return any(_has_nul(one) for one in found)
    return False


def _convert(query: type[Any], request: Request) -> Any:
    given = request.query_params
    if len(given.multi_items()) != len(given):
        raise Invalid("A name in the query is given twice; nothing was read.", because="query")
    try:
        return msgspec.convert(dict(given), query, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"The query cannot be used: {error}; nothing was read.", because="query") from error
