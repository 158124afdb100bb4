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
    from idemkit.backends.postgres import PostgresBackend

    backend = PostgresBackend.from_url(os.environ["BENCH_STORE"], max_size=20)
    return IdempotencyMiddleware(app, backend=backend, config=HttpConfig(scope=lambda request: "everybody"))


_bare = Starlette(routes=[Route("/payments", pay, methods=["POST"]), Route("/payments", status, methods=["GET"])])
app = {"bare": lambda plain: plain, "semel": _semel, "idemkit": _idemkit}[os.environ["BENCH_HTTP"]](_bare)
