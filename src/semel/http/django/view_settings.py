"""What stands before one view: its settings, over those of the project. For the decorator and for REST framework.

What always holds: settings are checked where they are written, and what SEMEL says is read with the first request. The
operation is named after the pattern of the view's URL; where it has parameters, the path is part of the key.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from django.conf import settings as project

from semel.engine.async_engine import AsyncEngine
from semel.engine.engine import EngineBase
from semel.engine.sync_engine import SyncEngine
from semel.http.django.configuration import Configuration, demand_scope, made_of, read, scope_of
from semel.http.django.transactions import with_aliases
from semel.http.exchange import Exchange
from semel.http.route import Route, RouteOptions, settings_of

MARK: Final = "semel_idempotent"
"""The attribute of views that claim by themselves: their guard."""
_MIDDLEWARE: Final = "semel.http.django.IdempotencyMiddleware"


class Guard:
    """The settings of one view.

    Args:
        semel: the engine; that of SEMEL where none is given.
        scope: from a request to whom its key belongs; that of SEMEL where none is given.
        settings: those of a route; `transaction` may be an alias.
    """

    def __init__(self, *, semel: Any = None, scope: Any = None, **settings: Any) -> None:
        self.given: RouteOptions = with_aliases(settings)
        self.settings = settings_of(self.given)
        self._semel = semel
        self._scope = scope
        self._routes: dict[str, Route] = {}

    @cached_property
    def sync_exchange(self) -> Exchange[SyncEngine]:
        """For views that are called."""
        configuration = self._configuration
        return configuration.exchange(configuration.sync_engine())

    @cached_property
    def async_exchange(self) -> Exchange[AsyncEngine]:
        """For views that are awaited."""
        configuration = self._configuration
        return configuration.exchange(configuration.async_engine())

    @cached_property
    def _configuration(self) -> Configuration:
        whole = self._semel is not None and self._scope is not None
        said = made_of({}) if whole and not hasattr(project, "SEMEL") else read()
        served = _MIDDLEWARE in project.MIDDLEWARE  # which serves the policy document
        found = Configuration(
            semel=said.semel if self._semel is None else self._semel,
            store=said.store if self._semel is None else None,
            scope=said.scope if self._scope is None else scope_of(self._scope),
            routes=(),
            policy_path=said.policy_path if served else None,
            common=said.common,
        )
        demand_scope(found)
        return found

    def route(self, request: Any, engine: EngineBase) -> Route | None:
        """The route of a request, if its method carries keys."""
        match = getattr(request, "resolver_match", None)
        if match is None:  # called by a test, without Django's handler
            found = self.route_at(request.path_info, engine)
        else:
            found = self._routes.get(match.route) or self.route_at(match.route, engine)
            self._routes[match.route] = found
        return found if request.method in found.settings.methods else None

    def route_at(self, pattern: str, engine: EngineBase) -> Route:
        """The route of the view under the pattern of a URL."""
        given: RouteOptions = RouteOptions(policy=engine.policy) | self._configuration.common | self.given
        return Route("/" + pattern.removeprefix("^").removeprefix("/"), **given).declare(engine.policy_for)


def guard_of(view: Any, method: str) -> Guard | None:
    """The guard of a view for a method, if the view claims by itself: a function, a class, or a method of one."""
    owner = getattr(view, "view_class", None) or getattr(view, "cls", None)
    action = (getattr(view, "actions", None) or {}).get(method, method)
    for place in (view, owner, getattr(owner, action, None)):
        found = getattr(place, MARK, None)
        if isinstance(found, Guard):
            return found
    return None
