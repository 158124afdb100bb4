"""The payments service as an ASGI application: routes, who may, and which requests carry keys.

What always holds: authentication comes first, so that a key belongs to an account; then semel, so that a repeated
request never reaches a handler that has answered it. Handlers only translate between HTTP and the modules that do the
work.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route as Path

from examples.hotel.problems import problem, refusal
from examples.payments import authentication, pages
from examples.payments.balance import InsufficientFunds
from examples.payments.bulk import ACTIONS, Action, Bulks, encode_line
from examples.payments.money import show
from examples.payments.parts import Parts
from examples.payments.paying import (
    Declined,
    GatewayDidNotAnswer,
    OtherPayment,
    Paying,
    PaymentClosed,
    PaymentOrder,
    describe,
    find_payment,
)
from examples.payments.problems import Refused, later, not_found, read_body
from examples.payments.recipes import onboarding, orders, wallet
from examples.payments.refunds import RefundOrder, refund
from examples.payments.settings import Settings
from semel import Policy
from semel.errors import TryLater
from semel.http import Route
from semel.http.asgi import IdempotencyMiddleware

NO_STORE = {"Cache-Control": "no-store"}
Handler = Callable[[Parts, Request], Awaitable[Response]]


def make_app(settings: Settings) -> Starlette:
    """The application by these settings; nothing is connected yet."""
    parts = Parts.of(settings)
    handlers, bulks = Handlers(parts), BulkHandlers(parts)
    views = pages.Pages(parts)
    app = Starlette(
        routes=[
            *authentication.routes(parts),
            Path("/payments", handlers.pay, methods=["POST"]),
            Path("/payments/{id}", handlers.payment, methods=["GET"]),
            Path("/payments/{id}/refunds", handlers.refund, methods=["POST"]),
            Path("/bulk", bulks.start, methods=["POST"]),
            Path("/bulk/{id}", views.or_else(bulks.status), methods=["GET"]),
            Path("/bulk/{id}/results", bulks.results, methods=["GET"]),
            Path("/bulk/{id}/failures", bulks.failures, methods=["GET"]),
            *(Path(f"/bulk/{{id}}/{action}", partial(bulks.act, action), methods=["POST"]) for action in ACTIONS),
            *_recipes(parts),
            Path("/health", _health, methods=["GET"]),
            *views.routes(),
        ],
        middleware=[
            Middleware(authentication.Authentication, parts=parts),
            Middleware(IdempotencyMiddleware, semel=parts.semel, scope=_scope, routes=keyed_routes(parts)),
        ],
        exception_handlers={
            Refused: refusal,
            TryLater: later,
            Declined: _declined,
            PaymentClosed: _closed,
            OtherPayment: _other,
            GatewayDidNotAnswer: _no_answer,
            InsufficientFunds: _insufficient,
        },
        lifespan=_lifespan(parts),
    )
    app.state.parts = parts
    return app


def keyed_routes(parts: Parts) -> list[Route]:
    """The requests that must not happen twice, and for how long their keys are known. A bulk has its key as its id."""
    settings, retention = parts.settings, parts.settings.retention
    # A lease is short: a process that was killed blocks its key no longer. A running one renews it. A rerun is safe,
    # because a payment or refund is found by its derived key before the gateway is asked for anything.
    policy = Policy(lease_for=settings.lease_for, wait_for=settings.wait_for, in_doubt="rerun")

    def writing(request: Request) -> Any:
        return parts.database.writing()

    def keyed(path: str, keep_for: timedelta, **more: Any) -> Route:
        # A 409 keeps nothing: what stands against it may be over later, for the same key.
        return Route(path, required=True, policy=policy.replace(keep_for=keep_for), retry_statuses={409}, **more)

    return [
        keyed("/payments", retention.payment),
        keyed("/payments/*/refunds", retention.critical),
        keyed("/accounts", retention.critical, transaction=writing),
        keyed("/orders", retention.order, transaction=writing),
        keyed("/wallets/*/top-ups", retention.critical),
        keyed("/wallets/*/payments", retention.critical, transaction=writing),
    ]


def _scope(request: Request) -> str:
    """Whose key it is; those who open an account are nobody yet, and share a place."""
    account = request.state.account
    return "nobody" if account is None else f"account:{account.id}"


def _recipes(parts: Parts) -> list[Path]:
    def path(where: str, handler: Handler, method: str) -> Path:
        return Path(where, partial(handler, parts), methods=[method])

    return [
        path("/accounts", onboarding.handle, "POST"),
        path("/orders", orders.handle, "POST"),
        path("/orders/{id}", orders.handle_read, "GET"),
        path("/wallets/{customer}", wallet.handle_balance, "GET"),
        path("/wallets/{customer}/top-ups", wallet.handle_top_up, "POST"),
        path("/wallets/{customer}/payments", wallet.handle_payment, "POST"),
    ]


class Handlers:
    """Payments and refunds."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._paying = Paying(parts)

    async def pay(self, request: Request) -> Response:
        """`POST /payments`."""
        order = await read_body(request, PaymentOrder)
        paid = await self._paying.pay(self._parts.semel.current(), request.state.account.id, order)
        return JSONResponse(paid, 201, {"Location": f"/payments/{paid['transaction_id']}"})

    async def payment(self, request: Request) -> Response:
        """`GET /payments/{id}`."""
        async with self._parts.database.reading() as session:
            found = await find_payment(session, request.state.account.id, request.path_params["id"])
        if found is None:
            raise not_found("payment")
        return JSONResponse({**describe(found), "refunded": show(found.refunded)}, headers=NO_STORE)

    async def refund(self, request: Request) -> Response:
        """`POST /payments/{id}/refunds`."""
        order = await read_body(request, RefundOrder)
        attempt, account_id = self._parts.semel.current(), request.state.account.id
        return JSONResponse(await refund(self._parts, attempt, account_id, request.path_params["id"], order), 201)


class BulkHandlers:
    """Bulks."""

    def __init__(self, parts: Parts) -> None:
        self._bulks = Bulks(parts)

    async def start(self, request: Request) -> Response:
        """`POST /bulk`: a file in, and where to follow it."""
        bulk_id, was_there = await self._bulks.start(request, request.state.account.id)
        headers = {"Location": f"/bulk/{bulk_id}"} | ({"Idempotency-Replayed": "true"} if was_there else {})
        return JSONResponse(await self._bulks.describe(request.state.account.id, bulk_id), 202, headers)

    async def status(self, request: Request) -> Response:
        """`GET /bulk/{id}`."""
        body = await self._bulks.describe(request.state.account.id, request.path_params["id"])
        return JSONResponse(body, headers={**NO_STORE, "Vary": "Accept"})

    async def act(self, action: Action, request: Request) -> Response:
        """`POST /bulk/{id}/pause`, `resume`, `cancel` or `retry`."""
        return JSONResponse(await self._bulks.act(request.state.account.id, request.path_params["id"], action))

    async def failures(self, request: Request) -> Response:
        """`GET /bulk/{id}/failures`."""
        body = await self._bulks.failures(request.state.account.id, request.path_params["id"])
        return JSONResponse(body, headers=NO_STORE)

    async def results(self, request: Request) -> Response:
        """`GET /bulk/{id}/results`: JSON lines, as long as the bulk is, and never in memory as a whole."""
        given = request.query_params
        after, limit = _number(given.get("after"), "after"), _number(given.get("limit"), "limit")
        account_id, bulk_id = request.state.account.id, request.path_params["id"]
        lines = await self._bulks.results(account_id, bulk_id, given.get("status"), after, limit)
        headers = {**NO_STORE, "Content-Disposition": f'attachment; filename="{bulk_id}.jsonl"'}
        body = (encode_line(line) async for line in lines)
        return StreamingResponse(body, headers=headers, media_type="application/x-ndjson")


def _number(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise Refused(400, "malformed", f"Nothing was read. {name} is a whole number.")
    return int(text)


async def _declined(request: Request, error: Exception) -> Response:
    detail = "The card was declined; no money was taken. Take another card and a new key."
    return problem(Refused(402, "declined", detail))


async def _closed(request: Request, error: Exception) -> Response:
    return problem(Refused(410, "payment-closed", f"{error} Take a new key."))


async def _other(request: Request, error: Exception) -> Response:
    return problem(Refused(422, "key-reused", f"{error} Take a new key."))


async def _no_answer(request: Request, error: Exception) -> Response:
    detail = "It may have been charged. Send the same request again, with the same key: it is charged once."
    return problem(Refused(503, "gateway-unavailable", detail, retry_after=timedelta(seconds=1)))


async def _insufficient(request: Request, error: Exception) -> Response:
    return problem(Refused(409, "insufficient-funds", str(error)))


async def _health(request: Request) -> Response:
    return Response(status_code=204)


def _lifespan(parts: Parts) -> Callable[[Starlette], Any]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await parts.close()

    return lifespan
