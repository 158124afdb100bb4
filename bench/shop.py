"""A business transaction to be joined: an order, its line and the stock, three statements and a commit.

What always holds: the same three statements with the same values go out with semel and without, on one connection.
"""

from __future__ import annotations

from typing import Any

from bench.workload import AMOUNT, Receipt, order

ARTICLES = 1_000
TABLES = (
    "CREATE TABLE shop_order (order_id varchar(40) PRIMARY KEY, tenant varchar(40) NOT NULL, amount bigint NOT NULL)",
    "CREATE TABLE shop_line (line bigserial PRIMARY KEY, order_id varchar(40) REFERENCES shop_order, article integer)",
    "CREATE TABLE shop_stock (article integer PRIMARY KEY, pieces bigint NOT NULL)",
    f"INSERT INTO shop_stock SELECT n, 1000000000 FROM generate_series(0, {ARTICLES - 1}) AS n",  # noqa: S608 - a number
)
_ORDER = "INSERT INTO shop_order (order_id, tenant, amount) VALUES ($1, $2, $3)"
_LINE = "INSERT INTO shop_line (order_id, article) VALUES ($1, $2)"
_STOCK = "UPDATE shop_stock SET pieces = pieces - 1 WHERE article = $1"
_ORDER_S, _LINE_S, _STOCK_S = (
    text.replace("$1", "%s").replace("$2", "%s").replace("$3", "%s") for text in (_ORDER, _LINE, _STOCK)
)


def article_of(order_id: str) -> int:
    """Which article an order is for."""
    return int(order_id.rpartition("-")[2]) % ARTICLES


def place(tenant: str, order_id: str, amount: int, connection: Any) -> Receipt:
    """The three statements through psycopg."""
    article = article_of(order_id)
    connection.execute(_ORDER_S, (order_id, tenant, amount))
    connection.execute(_LINE_S, (order_id, article))
    connection.execute(_STOCK_S, (article,))
    return {"order_id": order_id, "amount": amount}


async def place_async(tenant: str, order_id: str, amount: int, connection: Any) -> Receipt:
    """The three statements through asyncpg."""
    article = article_of(order_id)
    await connection.execute(_ORDER, order_id, tenant, amount)
    await connection.execute(_LINE, order_id, article)
    await connection.execute(_STOCK, article)
    return {"order_id": order_id, "amount": amount}


def asked(number: int) -> tuple[str, int]:
    """The order and the amount of a call."""
    return order(number), AMOUNT
