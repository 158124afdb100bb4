"""The decorator: keys for one view, with settings of its own, with the middleware or without it.

What always holds: a key is claimed once, by whoever stands nearest to the view and knows its settings. The view's
transactions by `ATOMIC_REQUESTS` are opened after the claim and committed before its outcome is recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.exception import response_for_exception
from django.http import Http404
from django.http.multipartparser import MultiPartParserError

from semel.errors import UsageError
from semel.http.django.async_call import AsyncKeyedRequest
from semel.http.django.request_state import carried, note_handled
from semel.http.django.sync_call import SyncKeyedRequest
from semel.http.django.transactions import AllAliases, as_requested
from semel.http.django.view_settings import MARK, Guard

View = Callable[..., Any]
V = TypeVar("V", bound=View)

_PAGES = (Http404, PermissionDenied, BadRequest, SuspiciousOperation, MultiPartParserError)
"""What Django makes pages of, with a status that says what happened."""


@overload
def idempotent(view: V, /, **settings: Any) -> V: ...


@overload
def idempotent(view: None = None, /, **settings: Any) -> Callable[[V], V]: ...


def idempotent(view: View | None = None, /, **settings: Any) -> Any:
    """Run each keyed request of a view once: `@idempotent(required=True)`.

    Works on views of either colour, and through `method_decorator` on classes; decorate `dispatch`.

    Args:
        view: where there are no settings to give: `@idempotent`.
        settings: those of a route (see `Route`), of which `transaction` may be the alias of a database; `semel` and
            `scope` where they are not those of the setting SEMEL.

    Raises:
        UsageError: a setting cannot be so, or `transaction` stands at a view that is awaited.
    """
    guard = Guard(**settings)
    return functools.partial(_guarded, guard) if view is None else _guarded(guard, view)


def _guarded(guard: Guard, view: View) -> View:
    if not _is_async(view):
        return _called(guard, view)
    if guard.settings.transaction is not None:
        message = (
            "transaction= needs a view that is a plain def: Django has no transaction for coroutines; nothing was set "
            "up."
        )
        raise UsageError(message)
    return _awaited(guard, view)


def _is_async(view: View) -> bool:
    """Whether the view is awaited; `dispatch` of a class does not say so by itself."""
    owner = getattr(getattr(view, "func", None), "__self__", None)
    return bool(iscoroutinefunction(view) or getattr(owner, "view_is_async", False))


def _called(guard: Guard, view: View) -> View:
    left_alone = AllAliases(getattr(view, "_non_atomic_requests", ()))

    @functools.wraps(view)
    def wrapper(request: Any, *args: Any, **kwargs: Any) -> Any:
        def answered() -> Any:
            with as_requested(left_alone):
                return view(request, *args, **kwargs)

        route = None if carried(request) else guard.route(request, guard.sync_exchange.engine)
        if route is None:
            return answered()
        return SyncKeyedRequest(guard.sync_exchange, route, request).carry(lambda: _paged(request, answered))

    setattr(wrapper, MARK, guard)
    wrapper._non_atomic_requests = left_alone  # type: ignore[attr-defined]  # noqa: SLF001 - Django asks a view for it
    return wrapper


def _awaited(guard: Guard, view: View) -> View:
    @functools.wraps(view)
    async def wrapper(request: Any, *args: Any, **kwargs: Any) -> Any:
        async def answered() -> Any:
            try:
                return await view(request, *args, **kwargs)
            except _PAGES as error:
                note_handled(request, error)
                return await sync_to_async(response_for_exception, thread_sensitive=False)(request, error)

        route = None if carried(request) else guard.route(request, guard.async_exchange.engine)
        if route is None:
            return await view(request, *args, **kwargs)
        return await AsyncKeyedRequest(guard.async_exchange, route, request).carry(answered)

    setattr(wrapper, MARK, guard)
    return wrapper


def _paged(request: Any, answered: Callable[[], Any]) -> Any:
    """What the view answers, or the page that Django makes of what it raised: a page has a status and can be kept."""
    try:
        return answered()
    except _PAGES as error:
        note_handled(request, error)
        return response_for_exception(request, error)
