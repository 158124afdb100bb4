"""The application that HTTP is measured with: bare, under semel's middleware, and under idemkit's.

`BENCH_HTTP` says which, `BENCH_STORE` where records are. The view does the same in all of them: it reads JSON and
answers JSON. Run by uvicorn in a process of its own.
"""

from __future__ import annotations

import os
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


async def pay(request: Request) -> Response:
    """A payment."""
    asked = await request.json()
    return JSONResponse({"paid": asked["amount"]}, 201)


async def status(request: Request) -> Response:
    """Something that changes nothing."""
    return JSONResponse({"status": "paid"})


def _semel(app: Starlette) -> Any:
    from semel import SHARED, AsyncSemel
    from semel.http.asgi import IdempotencyMiddleware

    return IdempotencyMiddleware(app, semel=AsyncSemel(os.environ["BENCH_STORE"]), scope=SHARED)


def _idemkit(app: Starlette) -> Any:
    from idemkit import HttpConfig, IdempotencyMiddleware

    config = HttpConfig(scope=lambda request: "everybody")
    return IdempotencyMiddleware(app, backend=_backend(os.environ["BENCH_STORE"]), config=config)


def _backend(url: str) -> Any:
    """The backend of idemkit for a server."""
    if url.startswith("redis:"):
        from idemkit.backends.redis import RedisBackend

        # The client stops at 100 connections, which those of a load that has just ended still hold.
        return RedisBackend.from_url(url.partition("?")[0], namespace="idemkit", max_connections=1000)
    from idemkit.backends.postgres import PostgresBackend

    return PostgresBackend.from_url(url, max_size=20)


_bare = Starlette(routes=[Route("/payments", pay, methods=["POST"]), Route("/payments", status, methods=["GET"])])
app = {"bare": lambda plain: plain, "semel": _semel, "idemkit": _idemkit}[os.environ["BENCH_HTTP"]](_bare)
