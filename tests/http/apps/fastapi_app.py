"""FastAPI with authentication as a dependency; the key is claimed after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from semel import AsyncSemel
from semel.http.fastapi import Idempotency, IdempotentRoute, describe
from tests.http import shop

METHODS = ["POST", "PUT", "PATCH", "DELETE", "GET"]

semel = AsyncSemel(shop.store_url(), policy=shop.policy())


async def caller(authorization: Annotated[str, Header()] = "") -> str | None:
    """Who asks."""
    name = shop.caller_of(authorization)
    if not shop.may(name):
        raise HTTPException(403, "forbidden")
    return name


def once(path: str) -> Any:
    """The dependency of a path."""
    return Depends(Idempotency(semel, scope=Depends(caller), **shop.route_settings().get(path, {})))


async def answered(request: Request) -> Response:
    body = await request.body()
    derived = semel.current().derive("step") if request.url.path == "/derived" else ""
    reply = await run_in_threadpool(shop.answer, request.url.path, request.url.query, body, derived)
    response = Response(reply.body, reply.status)
    for name, value in reply.headers:
        response.headers.append(name, value)
    return response


async def streamed(request: Request) -> Response:
    await request.body()
    path = request.url.path
    return StreamingResponse(_chunks(path), media_type=shop.stream_type(path))


async def _chunks(path: str) -> AsyncIterator[bytes]:
    async for chunk in iterate_in_threadpool(shop.chunks(path)):
        yield chunk


async def effects() -> Response:
    return PlainTextResponse(str(shop.effects()))


router = APIRouter(route_class=IdempotentRoute)
for path in shop.PATHS:
    router.add_api_route(path, answered, methods=METHODS, dependencies=[once(path)])
for path in shop.STREAMS:
    router.add_api_route(path, streamed, methods=METHODS, dependencies=[once(path)])

app = FastAPI(openapi_url=None)
app.add_api_route("/effects", effects)
app.include_router(router)
describe(app)
