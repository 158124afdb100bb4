"""A small honest service: one effect for each key, the same reply for whoever asks again, 409 while it is at it.

What always holds: effects are only ever appended, one for each key, and every whole request is listed. It goes on with
what it began, whether or not the caller is still there.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from tests.client.kill.messages import LIFE, Message, receive, reply
from tests.client.kill.positions import At
from tests.client.kill.script import Script
from tests.client.kill.story import Effect, Request

POLICY: Final = "/.well-known/idempotency-policy"
_RETENTION: Final = {"routes": [{"path": "/rounds/*/orders", "methods": ["POST"], "retentionSeconds": 86_400}]}


class Service:
    """Takes orders at `/rounds/N/orders`; `script_of` finds the script of a life."""

    def __init__(self, script_of: Callable[[str], Script]) -> None:
        self._script_of = script_of
        self._running: dict[str, Script] = {}
        self._replies: dict[str, bytes] = {}
        self._serial = 0
        self.requests: dict[int, list[Request]] = {}
        self.effects: dict[int, list[Effect]] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        while (request := await receive(reader)) is not None:
            answer = await self._answer(request)
            with contextlib.suppress(ConnectionError):
                writer.write(answer)
                await writer.drain()

    async def _answer(self, request: Message) -> bytes:
        method, path, _ = request.first
        if method == "POST":
            return await self._order(request, int(path.split("/")[2]))
        # Every second client finds out how long keys are remembered, the others have to assume it.
        return reply("200 OK", _RETENTION) if self._serial % 2 else reply("404 Not Found", {})

    async def _order(self, request: Message, number: int) -> bytes:
        life = request.headers[LIFE]
        key = request.headers.get("idempotency-key", "")
        self.requests.setdefault(number, []).append(Request(int(life.partition(".")[2]), key, request.body))
        if key in self._replies:
            return self._replies[key]
        if key in self._running:
            self._running[key].release.set()  # whoever was to be late is late enough
            return reply("409 Conflict", {}, "Retry-After: 0")
        script = self._running[key] = self._script_of(life)
        await script.pass_by(At.RECEIVED)
        self._serial += 1
        effect = Effect(key, self._serial)
        self.effects.setdefault(number, []).append(effect)
        await script.pass_by(At.EFFECTED)
        del self._running[key]
        content = {"order": number, "effect": effect.serial, "note": "r" * (number * 131 % 9_000)}
        self._replies[key] = reply("201 Created", content)
        return self._replies[key]
