"""A chain of services, each with semel in front and a client of semel behind: one effect at its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from semel import SHARED, AsyncSemel
from semel.client import INTENT, AsyncClient
from semel.http.asgi import IdempotencyMiddleware
from semel.http.route import Route
from tests.client.service import CutBefore, Service


class Middle:
    """A service that asks the next one, and dies behind it as often as it is told."""

    def __init__(self, client: AsyncClient, url: str, deaths: int) -> None:
        self._client, self._url, self._deaths = client, url, deaths

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        answer = await self._client.post(self._url)
        self._deaths -= 1
        status = 500 if self._deaths >= 0 else answer.status_code
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": answer.content})


def test_lost_answers_and_deaths_in_the_middle_are_one_effect_at_the_end(
    service: Service, keys: Path, tmp_path: Path
) -> None:
    service.next("/charge", CutBefore(), CutBefore())

    async def play() -> httpx.Response:
        async with (
            AsyncSemel(tmp_path / "middle.db") as semel,
            AsyncClient(tmp_path / "middle-keys.db", trust_env=False) as onward,
        ):
            middle = Middle(onward, f"{service.url}/charge", deaths=2)
            app = IdempotencyMiddleware(middle, semel=semel, scope=SHARED, routes=[Route("/order")])
            below = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with AsyncClient(keys, transport=below) as client:
                return await client.post("http://middle/order", content=b"{}", headers={INTENT: "order 1"})

    assert asyncio.run(play()).status_code == 201
    assert len(set(service.keys())) == 1
    assert len(service.seen) > 3
    assert service.effects["/charge"] == 1
