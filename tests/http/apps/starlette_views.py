"""The views of the shop as Starlette has them, for every application that stands on it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from semel import AsyncSemel
from tests.http import shop

semel = shop.make_engine(AsyncSemel)


async def answered(request: Request) -> Response:
    body = await request.body()
    derived = semel.current().derive("step") if request.url.path == "/derived" else ""
    reply = await run_in_threadpool(shop.answer, request.url.path, request.url.query, body, derived)
    response = Response(reply.body, reply.status)
    for name, value in reply.headers:
        if name == "Content-Length":
            response.headers[name] = value
        else:
            response.headers.append(name, value)
    return response


async def streamed(request: Request) -> Response:
    await request.body()
    path = request.url.path
    if path in shop.ENDLESS:
        return Closing(shop.async_chunks(path), headers=shop.stream_headers(path))
    return StreamingResponse(_chunks(path), headers=shop.stream_headers(path))


class Closing(StreamingResponse):
    """Closes its generator however it ends; Starlette leaves that to the garbage collector."""

    async def stream_response(self, send: Send) -> None:
        """Send chunk by chunk."""
        async with aclosing(cast("AsyncGenerator[bytes, None]", self.body_iterator)):
            await super().stream_response(send)


async def _chunks(path: str) -> AsyncIterator[bytes]:
    async for chunk in iterate_in_threadpool(shop.chunks(path)):
        yield chunk
