"""A Django project for tests: settings for as long as a test needs them, and what its views did.

Django is configured once in a process, and other tests may have done so: nothing is taken from its settings but what is
put there by `project`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import django
from django.apps import apps
from django.conf import settings

if not settings.configured:
    settings.configure(USE_TZ=True, DATABASES={})
if not apps.ready:
    django.setup()

from django.http import HttpResponse
from django.test import AsyncClient, Client, override_settings

SEMEL = "semel.http.django.IdempotencyMiddleware"


@contextmanager
def project(*patterns: Any, middleware: tuple[str, ...] = (SEMEL,), **given: Any) -> Iterator[None]:
    """A project with these URLs."""
    rest = {"UNAUTHENTICATED_USER": None, "UNAUTHENTICATED_TOKEN": None}
    common = {"ALLOWED_HOSTS": ["*"], "ROOT_URLCONF": patterns, "MIDDLEWARE": middleware, "REST_FRAMEWORK": rest}
    with override_settings(**{**common, **given}):
        yield


class Effects:
    """What views did."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self._numbers = count(1)

    def view(self, request: Any, **kwargs: Any) -> Any:
        """Answers 201 with the number of the effect."""
        self.happened.append(request.path)
        return HttpResponse(f"effect {next(self._numbers)}", status=201, content_type="text/plain")

    async def awaited(self, request: Any, **kwargs: Any) -> Any:
        """The same, to be awaited."""
        return self.view(request, **kwargs)

    def answering(self, make: Callable[[], Any]) -> Callable[..., Any]:
        """A view that answers what `make` gives, or raises."""

        def view(request: Any, **kwargs: Any) -> Any:
            self.happened.append(request.path)
            return make()

        return view


def post(path: str = "/orders", key: str | None = "k1", body: Any = "{}", client: Any = None, **given: Any) -> Any:
    """Ask with a key; an exception of a view becomes a page, as on a server."""
    return (client or Client(raise_request_exception=False)).post(path, **_asked(key, body, given))


async def apost(path: str = "/orders", key: str | None = "k1", body: Any = "{}", **given: Any) -> Any:
    """The same under ASGI."""
    return await AsyncClient(raise_request_exception=False).post(path, **_asked(key, body, given))


def _asked(key: str | None, body: Any, given: dict[str, Any]) -> dict[str, Any]:
    headers = {**({} if key is None else {"Idempotency-Key": key}), **given.pop("headers", {})}
    kind = given.pop("content_type", "application/json")
    return {"data": body, "content_type": kind, "headers": headers, **given}
