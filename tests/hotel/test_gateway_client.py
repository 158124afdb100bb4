"""What the client makes of the gateway's answers: no more is known than the gateway says."""

from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.hotel.gateway_client import Gateway, GatewaySilent, RefundRefused

pytestmark = pytest.mark.anyio


class Answers:
    """Stands in the place of a gateway, and answers as the test says."""

    def __init__(self) -> None:
        self.status = 201

    def make_app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST"])])

    async def _answer(self, request: Request) -> Response:
        return JSONResponse({"receipt": "B-1", "detail": "no"}, self.status)


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
async def gateway(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    gateway = Gateway("http://gateway", timedelta(minutes=2))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(answers.make_app()), base_url="http://gateway")
    await gateway.close()
    monkeypatch.setattr(gateway, "_client", client)
    yield gateway
    await gateway.close()


async def test_a_refund_is_refused_where_the_gateway_says_that_it_gives_nothing_back(
    gateway: Gateway, answers: Answers
) -> None:
    answers.status = 409
    with pytest.raises(RefundRefused):
        await gateway.give_back("charge", "refund", Decimal(1))


@pytest.mark.parametrize("status", [400, 401, 404, 408, 429, 500, 503])
async def test_a_refund_that_the_gateway_does_not_speak_of_may_have_been_made(
    gateway: Gateway, answers: Answers, status: int
) -> None:
    """A try before this one may have been: to take such an answer for a refusal would give the money back twice."""
    answers.status = status
    with pytest.raises(GatewaySilent):
        await gateway.give_back("charge", "refund", Decimal(1))
