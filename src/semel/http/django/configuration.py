"""The setting SEMEL: engine, scope, routes, and what holds for all of them.

What always holds: what is wrong is said when the middleware is made or the view is decorated, with what to write
instead. Nothing is opened before the first request. An engine of each colour is made once for one store.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from semel.api import AsyncSemel, Semel, open_store
from semel.core.key import SHARED
from semel.core.store import Store
from semel.engine.async_engine import AsyncEngine, AsyncSemelBase
from semel.engine.engine import EngineBase, SemelBase
from semel.engine.sync_engine import SyncEngine, SyncSemelBase
from semel.http.django.transactions import with_aliases
from semel.http.exchange import POLICY_PATH, Exchange, demand
from semel.http.route import Route, RouteOptions

E = TypeVar("E", bound=EngineBase)

_EXAMPLE: Final = 'SEMEL = {"store": "django://default", "scope": "shop.keys.scope"}'


@dataclass(frozen=True)
class Configuration:
    """What SEMEL says.

    Attributes:
        semel: an engine, or a function that gives one.
        store: where records are kept, if no engine is named.
        scope: from a request to whom its key belongs, or `SHARED`; None where nothing is said.
        routes: which requests carry keys; None: every POST and PATCH that carries one.
        policy_path: where the policy document is served.
        common: what holds for every route that says nothing else.
    """

    semel: Any = None
    store: Any = None
    scope: Any = None
    routes: Iterable[Route] | None = None
    policy_path: str | None = POLICY_PATH
    common: RouteOptions = field(default_factory=RouteOptions)

    def sync_engine(self) -> SyncEngine:
        """The engine for threads."""
        semel = self._semel(Semel)
        return demand(semel, SyncSemelBase, "A Django view or middleware that is not awaited", "Semel")

    def async_engine(self) -> AsyncEngine:
        """The engine for what is awaited."""
        semel = self._semel(AsyncSemel)
        return demand(semel, AsyncSemelBase, "A Django view or middleware that is awaited (under ASGI)", "AsyncSemel")

    def exchange(self, engine: E) -> Exchange[E]:
        """All of it, checked."""
        return Exchange(engine, self.scope, self.routes, self.policy_path, self.common)

    def _semel(self, kind: Any) -> object:
        if (self.semel is None) == (self.store is None):
            message = f'SEMEL names one of "store" and "semel", as in {_EXAMPLE}; nothing was set up.'
            raise ImproperlyConfigured(message)
        if self.semel is None:
            return _made(kind, _found("store", self.store))
        given = _imported("semel", self.semel)
        return given() if callable(given) and not isinstance(given, SemelBase) else given


def read() -> Configuration:
    """What the settings of the project say.

    Raises:
        ImproperlyConfigured: there is no SEMEL, or it is no dict.
    """
    given = getattr(settings, "SEMEL", None)
    if not isinstance(given, Mapping):
        message = f"semel.http.django needs {_EXAMPLE} in the settings; nothing was set up."
        raise ImproperlyConfigured(message)
    return made_of(given)


def made_of(given: Mapping[str, Any]) -> Configuration:
    """What was given by name.

    Raises:
        ImproperlyConfigured: a dotted path leads nowhere.
    """
    rest = dict(given)
    known = {name: rest.pop(name) for name in ("semel", "store", "routes", "policy_path") if name in rest}
    scope = scope_of(rest.pop("scope", None))
    if "about" in rest:
        rest["about"] = _imported("about", rest["about"])
    return Configuration(**known, scope=scope, common=with_aliases(rest))


def scope_of(given: Any) -> Any:
    """The rule, where a dotted path or "SHARED" stands for it."""
    return SHARED if given == "SHARED" else _imported("scope", given)


def demand_scope(configuration: Configuration) -> None:
    """Refuse to go on without a scope.

    Raises:
        ImproperlyConfigured: there is none.
    """
    if configuration.scope is None:
        message = (
            'SEMEL needs "scope": a function from a request to whom its key belongs, or its dotted path, such as '
            "lambda request: request.native.user.pk; None means not authenticated. "
            '"SHARED" says that all callers share their keys. Nothing was set up.'
        )
        raise ImproperlyConfigured(message)


def _imported(name: str, given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return import_string(given)
    except ImportError as problem:
        message = f'"{name}" in SEMEL is {given!r}, which cannot be imported ({problem}); nothing was set up.'
        raise ImproperlyConfigured(message) from problem


def _found(name: str, place: Any) -> Any:
    if place == "":
        message = f'"{name}" in SEMEL is empty; write {_EXAMPLE}. Nothing was set up.'
        raise ImproperlyConfigured(message)
    return place


@cache
def _store_at(place: Any) -> Store:
    return open_store(place)


@cache
def _made(kind: Any, place: Any) -> SemelBase[EngineBase]:
    """One engine of each colour for one store, whoever asks: its connections are shared."""
    semel: SemelBase[EngineBase] = kind(_store_at(place))
    if isinstance(semel, SyncSemelBase):
        atexit.register(semel.close)
    return semel
