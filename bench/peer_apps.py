"""The application that semel and its peers are compared with from outside, under the middleware of each.

What always holds: the application is the same object of the same code under all of them, and knows nothing of keys.
Each middleware is used as its own documentation says, with records in memory, and is made only when it is asked for:
`bench.peer_apps:idemkit` imports nothing of the others. A name with `_required` is the same where keys are required.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

SLOW = 0.3
"""Seconds that a slow order takes: long enough to be met by a duplicate, short enough for any patience."""


def shop(keys: Middleware) -> Starlette:
    """Takes orders at two paths, and tells how many it took."""
    numbers = itertools.count(1)
    taken: list[int] = []

    async def order(request: Request) -> Response:
        asked = await request.json()
        taken.append(next(numbers))
        number = taken[-1]
        if asked.get("slow"):
            await asyncio.sleep(SLOW)
        headers = {"Location": f"/orders/{number}", "ETag": f'"{number}"', "Set-Cookie": "session=secret"}
        return JSONResponse({"order": number}, 201, headers)

    async def effects(request: Request) -> Response:
        return JSONResponse(len(taken))

    paths = [Route(path, order, methods=["POST"]) for path in ("/orders", "/gifts")]
    return Starlette(routes=[*paths, Route("/effects", effects)], middleware=[keys])


def _caller(request: Any) -> str:
    """Who asks. An application of the world would have checked this first."""
    name: str = request.headers.get("authorization", "nobody")
    return name


def _semel(*, required: bool) -> Middleware:
    from semel import AsyncSemel
    from semel.http.asgi import IdempotencyMiddleware

    return Middleware(IdempotencyMiddleware, semel=AsyncSemel("memory://"), scope=_caller, required=required)


def _idemkit(*, required: bool) -> Middleware:
    from idemkit import HttpConfig, IdempotencyMiddleware, InMemoryBackend

    config = HttpConfig(scope=_caller, require_key_for_mutations=required)
    return Middleware(IdempotencyMiddleware, backend=InMemoryBackend(), config=config)


def _asgi_idempotency_header() -> Middleware:
    # Its package of backends always imports the one for Redis, which needs a client of Redis and FastAPI. Neither has a
    # part in this comparison, so an empty module stands in for that file; the rest is as it was released.
    unused = ModuleType("idempotency_header_middleware.backends.redis")
    sys.modules[unused.__name__] = unused
    unused.RedisBackend = None  # type: ignore[attr-defined]
    from idempotency_header_middleware import IdempotencyHeaderMiddleware
    from idempotency_header_middleware.backends import MemoryBackend

    return Middleware(IdempotencyHeaderMiddleware, backend=MemoryBackend())


_KEYS: dict[str, Callable[[], Middleware]] = {
    "semel": lambda: _semel(required=False),
    "semel_required": lambda: _semel(required=True),
    "idemkit": lambda: _idemkit(required=False),
    "idemkit_required": lambda: _idemkit(required=True),
    "asgi_idempotency_header": _asgi_idempotency_header,
}


def __getattr__(name: str) -> Starlette:
    """The application of that name, made now."""
    if name not in _KEYS:
        raise AttributeError(name)
    return shop(_KEYS[name]())
