"""Starlette with middleware of all kinds between semel's and the views: none of it runs anything twice."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response

from tests.http.apps.starlette_app import site


class Passing(BaseHTTPMiddleware):
    """Hands everything on, in the way of BaseHTTPMiddleware: in tasks and streams of its own."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Call the next."""
        return await call_next(request)


app = site(Middleware(Passing), Middleware(GZipMiddleware, minimum_size=1), Middleware(Passing))
