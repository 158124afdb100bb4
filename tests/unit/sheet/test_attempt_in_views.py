"""Views that are decorated with `once` and ask for their attempt: frameworks give the rest, and ask nobody for it."""

import asyncio
from collections.abc import Callable
from typing import Any

import flask
import httpx
import pytest
from fastapi import FastAPI

from semel import AsyncAttempt, AsyncSemel, Attempt, Semel


async def post_twice(app: FastAPI) -> list[Any]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        return [(await client.post("/orders/o-1/pay?amount=5")).json() for _ in range(2)]


def post_fastapi_awaited() -> Any:
    app, semel = FastAPI(), AsyncSemel("memory://")

    @app.post("/orders/{order}/pay")
    @semel.once(key="order")
    async def pay(order: str, amount: int, attempt: AsyncAttempt) -> dict[str, Any]:
        return {"order": order, "amount": amount, "attempt": attempt.number}

    assert "attempt" not in str(app.openapi()["paths"]["/orders/{order}/pay"]["post"]["parameters"])
    return asyncio.run(post_twice(app))


def post_fastapi() -> Any:
    app, semel = FastAPI(), Semel("memory://")

    @app.post("/orders/{order}/pay")
    @semel.once(key="order")
    def pay(order: str, amount: int, attempt: Attempt) -> dict[str, Any]:
        return {"order": order, "amount": amount, "attempt": attempt.number}

    return asyncio.run(post_twice(app))


def post_flask() -> Any:
    app, semel = flask.Flask(__name__), Semel("memory://")

    @app.post("/orders/<order>/pay")
    @semel.once(key="order")
    def pay(order: str, attempt: Attempt) -> dict[str, Any]:
        return {"order": order, "amount": int(flask.request.args["amount"]), "attempt": attempt.number}

    client = app.test_client()
    return [client.post("/orders/o-1/pay?amount=5").json for _ in range(2)]


@pytest.mark.parametrize("post", [post_fastapi_awaited, post_fastapi, post_flask])
def test_a_decorated_view_gets_its_attempt(post: Callable[[], Any]) -> None:
    assert post() == [{"order": "o-1", "amount": 5, "attempt": 1}] * 2
