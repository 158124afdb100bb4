"""Create an order once: order and response commit in one transaction, and the same key gets the same order."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from examples.payments.money import check_amount, show
from examples.payments.parts import Parts
from examples.payments.paying import check_names
from examples.payments.problems import key_reused, not_found, read_body
from examples.payments.tables import Order
from semel.http import transaction

MOST_LINES = 100


class OrderLine(msgspec.Struct, frozen=True):
    """Some of one thing."""

    sku: str
    quantity: int
    unit_price: Decimal

    def __post_init__(self) -> None:
        check_names(self.sku)
        check_amount(self.unit_price)
        if not 1 <= self.quantity <= 10_000:
            raise ValueError("the quantity is from 1 to 10000")


class Basket(msgspec.Struct, frozen=True):
    """What is ordered, and by whom."""

    customer_id: str
    lines: list[OrderLine]

    def __post_init__(self) -> None:
        check_names(self.customer_id)
        if not 1 <= len(self.lines) <= MOST_LINES:
            raise ValueError(f"an order has 1 to {MOST_LINES} lines")
        check_amount(self.total)

    @property
    def total(self) -> Decimal:
        """What it costs."""
        return sum((line.quantity * line.unit_price for line in self.lines), Decimal(0))


async def create_order(
    session: AsyncSession, order_id: str, account_id: str, basket: Basket, *, currency: str, now: datetime
) -> Order:
    """The order, in the caller's transaction; the one that is there, where the key is older than semel remembers."""
    known = await session.get(Order, order_id)
    if known is not None:
        _check_is_same(known, basket)
        return known
    order = Order(
        id=order_id,
        account_id=account_id,
        customer_id=basket.customer_id,
        lines=msgspec.to_builtins(basket.lines),
        total=basket.total,
        currency=currency,
        created_at=now,
    )
    session.add(order)
    await session.flush()
    return order


def _check_is_same(known: Order, basket: Basket) -> None:
    kept = (known.customer_id, msgspec.convert(known.lines, list[OrderLine]))
    if kept != (basket.customer_id, basket.lines):
        raise key_reused("order")


async def handle(parts: Parts, request: Request) -> Response:
    """`POST /orders`."""
    basket = await read_body(request, Basket)
    order_id = f"ord_{parts.semel.current().derive('order')[:24]}"
    settings, caller = parts.settings, request.state.account
    order = await create_order(
        transaction(), order_id, caller.id, basket, currency=settings.currency, now=settings.clock()
    )
    return JSONResponse(_describe(order), 201, {"Location": f"/orders/{order.id}"})


async def handle_read(parts: Parts, request: Request) -> Response:
    """`GET /orders/{id}`."""
    order_id: str = request.path_params["id"]
    if not order_id.isprintable():
        raise not_found("order")  # the id of nothing, and PostgreSQL would not even look for some
    async with parts.database.reading() as session:
        order = await session.get(Order, order_id)
    if order is None or order.account_id != request.state.account.id:
        raise not_found("order")
    return JSONResponse(_describe(order))


def _describe(order: Order) -> dict[str, Any]:
    return {
        "order_id": order.id,
        "customer_id": order.customer_id,
        "lines": order.lines,
        "total": show(order.total),
        "currency": order.currency,
    }
