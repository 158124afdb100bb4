"""An ASGI server of the test's own: every message by hand, so that each instant can be chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any

from semel import SHARED, AsyncSemel
from semel.http.asgi import IdempotencyMiddleware

Message = MutableMapping[str, Any]
BODY = b'{"amount": 10}'


def scope_of(path: str = "/orders", key: str | None = "k-1", method: str = "POST", **more: Any) -> dict[str, Any]:
    """The scope of a request."""
    headers = [(b"content-type", b"application/json")]
    if key is not None:
        headers.append((b"idempotency-key", key.encode()))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": headers,
        **more,
    }


def part(body: bytes, *, more: bool = False) -> Message:
    """A part of a request's body."""
    return {"type": "http.request", "body": body, "more_body": more}


GONE: Message = {"type": "http.disconnect"}


class Driver:
    """One request: what the server gives, and what it was sent."""

    def __init__(self, *messages: Message, on_send: Callable[[Message], Any] | None = None) -> None:
        self.given = [*messages] or [part(BODY)]
        self.sent: list[Message] = []
        self._on_send = on_send
        self._asked_again = asyncio.Event()

    async def receive(self) -> Message:
        """The next message; a client that has said everything stays."""
        if self.given:
            return self.given.pop(0)
        await self._asked_again.wait()
        return GONE

    async def send(self, message: Message) -> None:
        """Takes what is sent to the client."""
        if self._on_send is not None:
            result = self._on_send(message)
            if asyncio.iscoroutine(result):
                await result
        self.sent.append(message)

    @property
    def status(self) -> int:
        """What was answered."""
        status: int = self.sent[0]["status"]
        return status

    @property
    def body(self) -> bytes:
        """All of the answer's body."""
        return b"".join(message.get("body", b"") for message in self.sent)

    def header(self, name: str) -> str | None:
        """A header of the answer."""
        found = dict(self.sent[0]["headers"]).get(name.encode())
        return None if found is None else found.decode()


START: Message = {"type": "http.response.start", "status": 201, "headers": [(b"content-type", b"text/plain")]}


class App:
    """An application that sends what it is told to."""

    def __init__(self, *messages: Message) -> None:
        self.messages = messages or (START, {"type": "http.response.body", "body": b"done"})
        self.calls: list[Any] = []
        self.bodies: list[bytes] = []
        self.began = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.ended = asyncio.Event()
        self.afterwards: asyncio.Event | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls.append(scope)
        if scope["type"] != "http":
            return
        self.bodies.append((await receive())["body"])
        self.began.set()
        await self.may_go_on.wait()
        for message in self.messages:
            await send(message)
        if self.afterwards is not None:
            await self.afterwards.wait()
        self.ended.set()


def keyed(app: Any, semel: AsyncSemel, **settings: Any) -> IdempotencyMiddleware:
    return IdempotencyMiddleware(app, semel=semel, scope=SHARED, **settings)


async def asked(front: Any, *messages: Message, **scope: Any) -> Driver:
    driver = Driver(*messages)
    await front(scope_of(**scope), driver.receive, driver.send)
    return driver
