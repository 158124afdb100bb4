"""The hotel as an ASGI application: routes, who may, and which requests carry keys.

What always holds: sign-in comes first, so that a key belongs to a user; then semel, so that a repeated request never
reaches a handler that has answered it. Handlers only translate between HTTP and the modules that do the work.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as Path

from examples.hotel import booking, pages, sign_in
from examples.hotel.parts import Parts
from examples.hotel.paying import Paying
from examples.hotel.problems import Refused, later, refusal
from examples.hotel.seen import Seen
from examples.hotel.settings import Settings
from examples.hotel.sweeper import sweep_for_ever
from semel import Policy
from semel.errors import TryLater
from semel.http import Route, transaction
from semel.http.asgi import IdempotencyMiddleware

T = TypeVar("T")


class Card(msgspec.Struct, frozen=True):
    """What is paid with: a token that the gateway knows, never a card number."""

    card: str


def make_app(settings: Settings) -> Starlette:
    """The application by these settings; nothing is connected yet."""
    parts = Parts.of(settings)
    handlers = Handlers(parts)
    app = Starlette(
        routes=[
            *sign_in.routes(parts),
            Path("/reservations", handlers.reserve, methods=["POST"]),
            Path("/reservations/{id}/confirm-details", handlers.confirm_details, methods=["POST"]),
            Path("/reservations/{id}/pay", handlers.pay, methods=["POST"]),
            Path("/reservations/{id}/state", handlers.state, methods=["GET"]),
            Path("/health", _health, methods=["GET"]),
            *pages.routes(parts),
        ],
        middleware=[
            Middleware(sign_in.SignIn, parts=parts),
            Middleware(Seen),
            Middleware(
                IdempotencyMiddleware,
                semel=parts.semel,
                scope=lambda request: request.state.user and request.state.user.id,
                routes=keyed_routes(parts),
            ),
        ],
        exception_handlers={Refused: refusal, TryLater: later},
        lifespan=_lifespan(parts),
    )
    app.state.parts = parts
    return app


def keyed_routes(parts: Parts) -> list[Route]:
    """The two requests that must not happen twice."""
    settings = parts.settings
    # A lease is short: a process that was killed blocks its key no longer. A running one renews it.
    policy = Policy(keep_for=timedelta(days=1), lease_for=settings.lease_for, wait_for=settings.wait_for)
    return [
        # Draft and response commit in one transaction: there is never one without the other.
        Route("/reservations", required=True, policy=policy, transaction=lambda request: parts.database.writing()),
        # A 409 keeps nothing: the rooms may be there later, for the same key. A doubt is rerun behind the last step.
        Route(
            "/reservations/*/pay",
            header="Payment-Idempotency-Key",
            required=True,
            policy=policy.replace(in_doubt="rerun"),
            retry_statuses={409},
        ),
    ]


class Handlers:
    """The API."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._paying = Paying(parts)

    async def reserve(self, request: Request) -> Response:
        """A draft: the price is locked, no room is held."""
        stay = await _read(request, booking.Stay)
        session, settings = transaction(), self._parts.settings
        reservation = await booking.draft(session, settings, request.state.user.id, stay)
        location = {"Location": f"/reservations/{reservation.id}"}
        return JSONResponse(await booking.shown(session, reservation, settings.clock()), 201, location)

    async def confirm_details(self, request: Request) -> Response:
        """Who comes; a second click answers the state as it is."""
        details = await _read(request, booking.Details)
        user_id, reservation_id, settings = request.state.user.id, request.path_params["id"], self._parts.settings

        async def work(session: Any) -> dict[str, Any]:
            reservation = await booking.confirm_details(session, settings, user_id, reservation_id, details)
            return await booking.shown(session, reservation, settings.clock())

        return JSONResponse(await self._parts.database.transact(work))

    async def pay(self, request: Request) -> Response:
        """Hold, charge, confirm."""
        card = (await _read(request, Card)).card
        return JSONResponse(await self._paying.pay(request.state.user.id, request.path_params["id"], card))

    async def state(self, request: Request) -> Response:
        """How far a reservation is."""
        if request.state.user is None:
            raise Refused(401, "not-signed-in", "Sign in first.")
        async with self._parts.database.reading() as session:
            reservation = await booking.find(session, request.state.user.id, request.path_params["id"])
            body = await booking.shown(session, reservation, self._parts.settings.clock())
        return JSONResponse(body, headers={"Cache-Control": "no-store"})


async def _health(request: Request) -> Response:
    return Response(status_code=204)


async def _read(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except msgspec.DecodeError as error:
        raise Refused(400, "malformed", f"Nothing was done. {error}.") from error


def _lifespan(parts: Parts) -> Callable[[Starlette], Any]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        every = parts.settings.sweep_every
        sweeping = None if every is None else asyncio.create_task(sweep_for_ever(parts, every))
        try:
            yield
        finally:
            if sweeping is not None:
                sweeping.cancel()
                with suppress(asyncio.CancelledError):
                    await sweeping
            await parts.close()

    return lifespan
