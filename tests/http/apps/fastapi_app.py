"""FastAPI with authentication as a dependency; the key is claimed after it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException
from starlette.responses import PlainTextResponse, Response

from semel.http.fastapi import Idempotency, IdempotentRoute, describe
from tests.http import shop
from tests.http.apps.starlette_views import answered, semel, streamed

METHODS = ["POST", "PUT", "PATCH", "DELETE", "GET"]


async def caller(authorization: Annotated[str, Header()] = "") -> str | None:
    """Who asks."""
    name = shop.caller_of(authorization)
    if not shop.may(name):
        raise HTTPException(403, "forbidden")
    return name


def once(path: str) -> Any:
    """The dependency of a path."""
    return Depends(Idempotency(semel, scope=Depends(caller), **shop.route_settings().get(path, {})))


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
