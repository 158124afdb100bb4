"""Keys for Django REST framework: a mixin that claims where a view knows who asks.

What always holds: authentication, permissions and throttling come before the claim, so a user who lost the right gets
403 and not a replay, and what is refused there is never stored. The response is rendered before it is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, ClassVar

from semel.http.django.request_state import note_handled
from semel.http.django.sync_call import SyncKeyedRequest
from semel.http.django.transactions import AllAliases, as_requested
from semel.http.django.view_settings import Guard
from semel.http.request import Request


class RespondInstead(Exception):
    """Ends a view before its handler is called: another response is sent."""

    def __init__(self, response: Any) -> None:
        super().__init__()
        self.response = response


def user_of(request: Request) -> Any:
    """To whom a key belongs where nothing else is said: the user that the view has authenticated.

    The model, or the class where it is none, is part of it: users of two models have the same primary keys.
    """
    user = request.native.user
    pk = getattr(user, "pk", None)
    if pk is None:
        return None
    kind = user.__class__  # also of what stands for a user that is looked up when it is asked for
    model = getattr(getattr(kind, "_meta", None), "concrete_model", None)
    return (f"{kind.__module__}.{kind.__qualname__}" if model is None else model._meta.label), pk  # noqa: SLF001 - Django's name


class IdempotencyMixin:
    """For `APIView` and `ViewSet`, before them: each keyed request is handled once.

    Attributes:
        idempotency: the settings of the view: those of a route (see `Route`), of which `transaction` may be the alias
            of a database; `scope`, where it is not the user's model and primary key; `semel`, where it is not that of
            the setting SEMEL.
    """

    idempotency: ClassVar[Mapping[str, Any]] = {}
    semel_idempotent: ClassVar[Guard]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.semel_idempotent = Guard(**{"scope": user_of, **cls.idempotency})

    @classmethod
    def as_view(cls, *args: Any, **kwargs: Any) -> Any:
        """The view; transactions by ATOMIC_REQUESTS are opened after the claim."""
        view = super().as_view(*args, **kwargs)  # type: ignore[misc]  # of the class that this is mixed into
        view._non_atomic_requests = AllAliases(getattr(view, "_non_atomic_requests", ()))  # noqa: SLF001 - Django's name
        return view

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Handle a request, and record what came of it."""
        exchange = self.semel_idempotent.sync_exchange
        route = self.semel_idempotent.route(request, exchange.engine)
        self._instead: Any = None
        self._call = None if route is None else SyncKeyedRequest(exchange, route, request)

        def called() -> Any:
            with ExitStack() as self._inside:
                return super(IdempotencyMixin, self).dispatch(request, *args, **kwargs)  # type: ignore[misc]

        if self._call is None:
            return called()
        self._call.read_ahead()
        return self._call.see_through(called)

    def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
        """Find out who asks and whether they may; then claim.

        Raises:
            Instead: the handler is not to be called.
        """
        super().initial(request, *args, **kwargs)  # type: ignore[misc]  # of the class that this is mixed into
        if self._call is not None:
            self._instead = self._call.begin(request)
            if self._instead is not None:
                raise RespondInstead(self._instead)
            self._inside.enter_context(self._call.current())
        self._inside.enter_context(as_requested(getattr(type(self).dispatch, "_non_atomic_requests", ())))

    def handle_exception(self, exc: Exception) -> Any:
        """The response for an error."""
        if isinstance(exc, RespondInstead):
            return exc.response
        response = super().handle_exception(exc)  # type: ignore[misc]  # raises again what has no handler
        note_handled(self.request._request, exc)  # type: ignore[attr-defined]  # noqa: SLF001 - Django's own request
        return response

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        """The response as it is sent; a replay is sent as it was stored."""
        if response is self._instead:
            return response
        return super().finalize_response(request, response, *args, **kwargs)  # type: ignore[misc]
