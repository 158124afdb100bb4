"""A server and an application for tests of the WSGI middleware: both do what they are told, and note what was done."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from semel import Semel
from semel.engine.sync_engine import SyncCall
from semel.errors import LeaseLost
from semel.http import Route
from semel.http.wsgi import IdempotencyMiddleware

Pairs = list[tuple[str, str]]
PLAIN = ("Content-Type", "text/plain")


class Final(Exception):
    """Stored, by policy."""


@dataclass
class App:
    """An application that does what it is told, and notes what was done to it."""

    status: str = "201 Created"
    headers: Pairs = field(default_factory=lambda: [PLAIN])
    answer: Callable[[], Iterable[bytes]] = lambda: [b"done"]
    calls: list[bytes] = field(default_factory=list)
    environ: dict[str, Any] = field(default_factory=dict)
    closed: int = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.environ = environ
        self.calls.append(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        start_response(self.status, self.headers)
        return self.answer()


class Closing:
    """Chunks that count how often they were closed."""

    def __init__(self, app: App, chunks: Iterable[bytes]) -> None:
        self.app = app
        self.chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.chunks)

    def close(self) -> None:
        """Called by the server, once."""
        self.app.closed += 1


@dataclass
class Got:
    """What a server was given."""

    status: int = 0
    headers: Pairs = field(default_factory=list)
    body: bytes = b""

    def header(self, name: str) -> list[str]:
        """All lines of that name."""
        return [value for known, value in self.headers if known.lower() == name]

    def start(self, status: str, headers: Pairs, exc_info: Any = None, /) -> Callable[[bytes], None]:
        """The `start_response` of the server."""
        self.status, self.headers = int(status[:3]), headers
        return self.write

    def write(self, chunk: bytes) -> None:
        """The `write` of the server."""
        self.body += chunk


def under(app: Any, semel: Semel, **settings: Any) -> IdempotencyMiddleware:
    """The application under the middleware, which takes keys at /orders."""
    settings.setdefault("routes", [Route("/orders")])
    return IdempotencyMiddleware(app, semel=semel, scope=lambda request: request.state.get("caller"), **settings)


def environ(key: str | None = "k-1", body: bytes = b"{}", **given: Any) -> dict[str, Any]:
    """A request; None leaves a variable out."""
    made: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/orders",
        "QUERY_STRING": "",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "caller": "alice",
        **({} if key is None else {"HTTP_IDEMPOTENCY_KEY": key}),
        **given,
    }
    made = {name: value for name, value in made.items() if value is not None}
    setup_testing_defaults(made)
    return made


def served(app: Any, given: dict[str, Any]) -> Got:
    """As a server does it: take everything, then close."""
    got = Got()
    chunks = app(given, got.start)
    try:
        for chunk in chunks:
            got.body += chunk
    finally:
        if hasattr(chunks, "close"):
            chunks.close()
    return got


def ask(app: Any, key: str | None = "k-1", body: bytes = b"{}", **given: Any) -> Got:
    """Ask once, through the validator."""
    return served(validator(app), environ(key, body, **given))


def status(semel: Semel) -> str | None:
    """What the record of the key says, if there is one."""
    record = semel.read("k-1", operation="POST /orders", scope="alice")
    return None if record is None else record.status


def noting(seen: list[Any], look: Callable[[], Any]) -> Any:
    """A `start_response` that looks at something when it is called."""

    def start(*_: Any) -> Any:
        seen.append(look())
        return print

    return start


def lose_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be settled from now on."""

    def settle(opened: SyncCall[Any], value: Any) -> Any:
        opened.abandon(RuntimeError("lost"))
        raise LeaseLost("somebody else has it")

    monkeypatch.setattr(SyncCall, "finish", settle)


def raising(error: BaseException) -> Callable[[], Iterable[bytes]]:
    """An answer that is none."""

    def answer() -> Iterable[bytes]:
        raise error

    return answer
