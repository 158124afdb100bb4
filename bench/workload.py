"""The operation that is measured: a small handler with a tenant, a key, something asked and a small result."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from semel import AsyncSemel, Semel

OPERATION = "bench.charge"
TENANT = "acme"
AMOUNT = 1250

Receipt = dict[str, int | str]
Call = Callable[[int], Receipt]
AsyncCall = Callable[[int], Coroutine[Any, Any, Receipt]]


def charge(tenant: str, order_id: str, amount: int) -> Receipt:
    """What a handler does when it does next to nothing."""
    return {"order_id": order_id, "amount": amount}


async def charge_async(tenant: str, order_id: str, amount: int) -> Receipt:
    """The same, awaited."""
    return {"order_id": order_id, "amount": amount}


def order(number: int) -> str:
    """The key of a call."""
    return f"order-{number:010}"


def once(semel: Semel) -> Call:
    """`charge` under semel."""
    decorated = semel.once(key="order_id", scope="tenant", operation=OPERATION)(charge)
    return lambda number: decorated(TENANT, order(number), AMOUNT)


def once_async(semel: AsyncSemel) -> AsyncCall:
    """`charge_async` under semel."""
    decorated = semel.once(key="order_id", scope="tenant", operation=OPERATION)(charge_async)
    return lambda number: decorated(TENANT, order(number), AMOUNT)
