"""The middleware: keys for every view of a project, by routes.

What always holds: requests without a key pass untouched, and so do views that claim by themselves: the settings that
stand at a view win. It runs awaited under ASGI and in a thread under WSGI, whichever Django asks for.

The policy document of a project: the routes of its middleware, and the views that have settings of their own.

What always holds: it says what the running settings say; a view is described under the pattern of its URL.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.urls import Resolver404, URLPattern, URLResolver, get_resolver, resolve

from semel.engine.async_engine import AsyncEngine
from semel.engine.sync_engine import SyncEngine
from semel.errors import UsageError
from semel.http.django.adapters import response_of
from semel.http.django.async_call import AsyncKeyedRequest
from semel.http.django.configuration import Configuration, demand_scope, made_of, read
from semel.http.django.request_state import carried
from semel.http.django.sync_call import SyncKeyedRequest
from semel.http.django.view_settings import Guard, guard_of
from semel.http.exchange import Exchange
from semel.http.policy_document import document
from semel.http.response import Response
from semel.http.route import Route, Routes


def whole_document(exchange: Exchange[Any]) -> Response:
    """The document as it is served."""
    views = (guard.route_at(path, exchange.engine) for path, guard in _guards(get_resolver().url_patterns, ""))
    return document(Routes((*_distinct(views), *exchange.routes.every)))


def _distinct(routes: Iterator[Route]) -> list[Route]:
    return list({(route.path, route.settings.methods): route for route in routes}.values())


def _guards(patterns: list[Any], prefix: str) -> Iterator[tuple[str, Guard]]:
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _guards(pattern.url_patterns, path)
        elif isinstance(pattern, URLPattern):
            for method in ("post", "patch", "put", "delete"):
                guard = guard_of(pattern.callback, method)
                if guard is not None and method.upper() in guard.settings.methods:
                    yield path, guard


class IdempotencyMiddleware:
    """Runs each keyed request once.

    Place it below authentication, so that `scope` finds who asks.

    Args:
        get_response: the rest of the chain.
        settings: in place of the setting SEMEL: `semel` or `store`, `scope`, `routes`, `policy_path`, and what holds
            for every route that says nothing else; see `Route`.

    Raises:
        ImproperlyConfigured: SEMEL is missing, or names no engine or no scope.
        UsageError: a setting cannot be so.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Any, **settings: Any) -> None:
        self.get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        configuration = made_of(settings) if settings else read()
        demand_scope(configuration)
        self._exchange: Exchange[Any] = (
            _async_exchange(configuration) if self._is_async else _sync_exchange(configuration)
        )
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: Any) -> Any:
        """Take a request, or hand it on; to be awaited in a chain that is."""
        if self._is_async:
            return self._awaited(request)
        route, answer = self._found(request)
        if answer is not None:
            return answer
        if route is None:
            return self.get_response(request)
        return SyncKeyedRequest(self._exchange, route, request).carry(lambda: self.get_response(request))

    async def _awaited(self, request: Any) -> Any:
        route, answer = self._found(request)
        if answer is not None:
            return answer
        if route is None:
            return await self.get_response(request)
        return await AsyncKeyedRequest(self._exchange, route, request).carry(lambda: self.get_response(request))

    def _found(self, request: Any) -> tuple[Route | None, Any]:
        """The route of a request, or the policy document where it asks for that."""
        if self._exchange.policy_document(request.method, request.path_info) is not None:
            return None, response_of(self._document, head=request.method == "HEAD")
        route = self._exchange.find(request.method, request.path_info)
        return (None if route is None or _claims_by_itself(request) else route), None

    @cached_property
    def _document(self) -> Response:
        return whole_document(self._exchange)

    def process_exception(self, request: Any, exception: Exception) -> None:
        """Note what the view raised: Django makes a response of it before it comes back here."""
        noted = carried(request)
        if noted is not None:
            noted.error = exception


def _sync_exchange(configuration: Configuration) -> Exchange[SyncEngine]:
    return configuration.exchange(configuration.sync_engine())


def _async_exchange(configuration: Configuration) -> Exchange[AsyncEngine]:
    exchange = configuration.exchange(configuration.async_engine())
    for route in exchange.routes.every:
        if route.settings.transaction is not None:
            message = (
                f"transaction= of {route!r} needs a chain of middleware that is not awaited: Django has no transaction "
                f"for coroutines; nothing was set up. Take it out of the route, and write @idempotent(transaction=…) "
                f"at a view that is a plain def."
            )
            raise UsageError(message)
    return exchange


def _claims_by_itself(request: Any) -> bool:
    """Whether the view of this request has settings of its own."""
    try:
        view = resolve(request.path_info, getattr(request, "urlconf", None)).func
    except Resolver404:
        return False
    return guard_of(view, request.method.lower()) is not None
