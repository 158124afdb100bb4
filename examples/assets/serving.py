"""The asset service over HTTP: `python -m examples.assets.serving --fd 3`, on a socket of whoever started it.

What always holds: an event is answered with 200 only after its mark and its effect have committed together. On request
it pauses before it commits, or hangs up after it has.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.assets.domain import Plant
from examples.assets.pages import Pages
from examples.assets.service import make_consumer
from examples.assets.sqlite import SqlitePlant
from examples.hotel.gateway.faults import Droppable, Faults, hang_up
from examples.launching.serving import serve
from semel import AsyncSemel
from semel.events import Consumer, Event, EventInvalid

DATABASE: Final = "ASSETS_DATABASE"
COLUMNS: Final = ("asset", "facility", "type", "capacity_kw", "state", "load_kw", "kwh")
MOST_BYTES: Final = 65_536


@dataclass
class Service:
    """The parts, once they are connected."""

    consumer: Consumer[AsyncSemel]
    plant: Any
    faults: Faults

    async def read(self) -> list[dict[str, Any]]:
        """All assets."""
        found = self.plant.read()
        rows = await found if inspect.isawaitable(found) else found
        return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


@asynccontextmanager
async def open_service(url: str, faults: Faults) -> AsyncIterator[Service]:
    """The service on the database at `url`, whose tables are made where they are missing."""
    async with open_plant(url) as plant, AsyncSemel(url) as semel:

        @asynccontextmanager
        async def transaction() -> AsyncIterator[Any]:
            async with plant.transaction() as session:
                yield session
                faults.under_way += 1
                try:
                    await faults.pause(0)
                finally:
                    faults.under_way -= 1

        yield Service(make_consumer(semel, plant, transaction), plant, faults)


def open_plant(url: str) -> AbstractAsyncContextManager[Any]:
    """The plant in a file or in a server.

    Raises:
        ValueError: it is neither.
    """
    scheme, _, place = url.partition("://")
    if scheme == "sqlite":
        return _open_file(Path(place.removeprefix("/")))
    if scheme == "postgresql":
        return _open_server(url)
    raise ValueError(f"the pages of assets run on sqlite or postgresql, not on {scheme!r:.20}")


@asynccontextmanager
async def _open_file(path: Path) -> AsyncIterator[Plant]:
    yield SqlitePlant(path)


@asynccontextmanager
async def _open_server(url: str) -> AsyncIterator[Plant]:
    # Imported on use: who runs it on a file needs no client of a server.
    import asyncpg

    from examples.assets.postgresql import PostgresPlant

    async with asyncpg.create_pool(url, min_size=1) as pool:
        plant = PostgresPlant(pool)
        await plant.create_tables()
        yield plant


class Events:
    """Takes events over HTTP, and tells what is known of assets."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def take(self, request: Request) -> Response:
        """`POST /events`: 200 is done with it, 503 is to be sent again, 422 is kept as a dead letter."""
        body = await _read(request)
        if body is None:
            return JSONResponse({"error": f"Nothing ran: an event has at most {MOST_BYTES} bytes."}, 413)
        try:
            event = Event.from_json(body)
        except EventInvalid as error:
            return JSONResponse({"error": str(error)}, 400)
        end = await self._service.consumer.handle(event)
        if self._service.faults.take("lose_reply"):
            await hang_up(request)
            return Response()
        code = {"ack": 200, "retry": 503, "dead_letter": 422}[end.action]
        return JSONResponse({"status": end.status, "error": end.error and str(end.error)}, code)

    async def assets(self, request: Request) -> Response:
        """`GET /assets`."""
        return JSONResponse(await self._service.read(), headers={"Cache-Control": "no-store"})

    async def faults(self, request: Request) -> Response:
        """`GET /faults`, or `POST` to change them."""
        if request.method == "POST":
            try:
                self._service.faults.change(await request.json())
            except ValueError as error:
                return JSONResponse({"error": f"Nothing was changed: {error}."}, 400)
        return JSONResponse(self._service.faults.described())


async def _read(request: Request) -> bytes | None:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            return None
    return body


def make_app(url: str) -> Starlette:
    """The application on the database at `url`; it is connected when the application starts."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with open_service(url, Faults()) as service:
            events, pages = Events(service), Pages(service.consumer, service.read)
            app.router.routes[:] = [
                Route("/events", events.take, methods=["POST"]),
                Route("/assets", events.assets, methods=["GET"]),
                Route("/faults", events.faults, methods=["GET", "POST"]),
                *pages.routes(),
            ]
            yield

    return Starlette(lifespan=lifespan)


if __name__ == "__main__":
    serve("examples.assets.serving", lambda: make_app(os.environ[DATABASE]), protocol=Droppable)
