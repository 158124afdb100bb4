"""A FastAPI application with one keyed router, for tests that ask it in the same process."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
from fastapi import APIRouter, Depends, FastAPI, Header

from semel import AsyncSemel, Policy
from semel.http.fastapi import Idempotency, IdempotentRoute

KEY = {"Idempotency-Key": "k-1", "Authorization": "alice"}


class Busy(Exception):
    """In the policy: nothing happened."""


class Declined(Exception):
    """In the policy: final."""


async def caller(authorization: Annotated[str | None, Header()] = None) -> str | None:
    return authorization


class Shop:
    """An application with one keyed router, and what its endpoints did."""

    def __init__(self, semel: AsyncSemel | None = None, **settings: Any) -> None:
        policy = Policy(final_errors=(Declined,), retry_errors=(Busy,))
        self.semel = semel or AsyncSemel("memory://", policy=policy)
        self.once = Idempotency(self.semel, **{"scope": Depends(caller), **settings})
        self.router = APIRouter(route_class=IdempotentRoute, dependencies=[Depends(self.once)])
        self.app = FastAPI()
        self.effects: list[Any] = []
        self._client: httpx.AsyncClient | None = None

    def post(self, path: str, endpoint: Callable[..., Any], **settings: Any) -> None:
        """A route."""
        self.router.add_api_route(path, endpoint, methods=["POST"], **settings)

    async def ask(self, path: str = "/", **request: Any) -> httpx.Response:
        """Post; the key is k-1 and the caller alice where nothing else is said."""
        if self._client is None:
            self.app.include_router(self.router)
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            self._client = httpx.AsyncClient(transport=transport, base_url="http://shop")
        return await self._client.post(path, **{"headers": KEY, **request})

    async def twice(self, path: str = "/", **request: Any) -> tuple[httpx.Response, httpx.Response]:
        """Post the same twice."""
        return await self.ask(path, **request), await self.ask(path, **request)

    def happened(self) -> int:
        """An effect; gives how many there are now."""
        self.effects.append(None)
        return len(self.effects)

    async def close(self) -> None:
        """Let go of it."""
        if self._client is not None:
            await self._client.aclose()
        await self.semel.close()


Shops = Callable[..., Shop]


@asynccontextmanager
async def making() -> AsyncIterator[Shops]:
    """Makes shops, and closes them in the end."""
    made: list[Shop] = []

    def make(**settings: Any) -> Shop:
        made.append(Shop(**settings))
        return made[-1]

    yield make
    for shop in made:
        await shop.close()


def is_replay(response: httpx.Response) -> bool:
    """Whether it says so."""
    return bool(response.headers.get("idempotency-replayed") == "true")
