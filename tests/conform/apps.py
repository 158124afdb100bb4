"""The correct service as an ASGI app and as a WSGI app, for `--app` and `--wsgi`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Any

from tests.conform.service import HEADER, Asked, Service, Told

_service = Service()


async def asgi(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    if scope["type"] != "http":
        return
    body, whole = b"", False
    while not whole:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        whole = not message.get("more_body")
    fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    keys = tuple(value for name, value in fields if name == HEADER.lower())
    asked = Asked(scope["method"], scope["path"], keys, dict(fields).get("authorization", ""), body)
    # Shielded: the effect and its record belong together, whether or not the client still listens.
    told = await asyncio.shield(asyncio.to_thread(_service.answer, asked))
    headers = [(name.encode(), value.encode()) for name, value in told.fields]
    await send({"type": "http.response.start", "status": told.status, "headers": headers})
    await send({"type": "http.response.body", "body": told.body})


def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length)
    # Repeated lines arrive joined, as a list.
    line = environ.get("HTTP_IDEMPOTENCY_KEY")
    asked = Asked(
        environ["REQUEST_METHOD"],
        environ["PATH_INFO"],
        () if line is None else (line,),
        environ.get("HTTP_AUTHORIZATION", ""),
        body,
        len(body) == length,
    )
    told: Told = _service.answer(asked)
    start_response(f"{told.status} {HTTPStatus(told.status).phrase}", list(told.fields))
    return [b"" if asked.method == "HEAD" else told.body]
