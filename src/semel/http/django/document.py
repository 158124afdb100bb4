"""The policy document of a project: the routes of its middleware, and the views that have settings of their own.

What always holds: it says what the running settings say; a view is described under the pattern of its URL.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

from semel.http.django.guard import Guard, guard_of
from semel.http.front import Front
from semel.http.policy_document import document
from semel.http.response import Response
from semel.http.route import Route, Routes


def whole_document(front: Front[Any]) -> Response:
    """The document as it is served."""
    views = (guard.route_at(path, front.engine) for path, guard in _guards(get_resolver().url_patterns, ""))
    return document(Routes((*_distinct(views), *front.routes.every)))


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
