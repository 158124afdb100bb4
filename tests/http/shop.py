"""What every application under test does, said once: paths, effects and answers, without a framework.

An application maps each path to `answer` and sends the `Reply`; where a path streams, it sends `chunks` one by one.
Effects are lines in a file, appended by whichever process runs: they are what is counted. A handler that has to be
caught in the act meets the test at a gate, a socket of the test's own.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

from semel import AsyncSemel, Policy, Semel
from semel.core.circuit import Limits
from semel.http.request import Request
from semel.http.route import RouteOptions

STORE, FOLDER, GATE, SETTINGS, LIMITS = "SHOP_STORE", "SHOP_FOLDER", "SHOP_GATE", "SHOP_SETTINGS", "SHOP_LIMITS"
FILE = "SHOP_FILE"
"""Names of environment variables: the store's URL, where effects are written, the gate's port, settings and limits as
JSON, and the settings file that is used instead of store and limits."""
Engine = TypeVar("Engine", Semel, AsyncSemel)

PATHS = (
    "/orders",  # 201 with Location, ETag and cookies; the body is told back with the number of the effect
    "/binary",  # every byte there is
    "/gzip",  # compressed by the application
    "/empty",  # 204
    "/null",  # JSON null
    "/headers",  # repeated headers, in order, and some that must not come back
    "/large",  # more than is kept
    "/slow",  # waits at the gate
    "/busy",  # the same, on a route that does not let duplicates wait
    "/brief",  # the same, on a route whose leases last a second
    "/patient",  # the same, on a route whose duplicates wait a minute
    "/status",  # ?code=…: that status
    "/raises",  # ?error=…: raises it, after the effect
    "/echo",  # the body as it came, byte for byte
    "/derived",  # what attempt.derive("step") gives, on a route on which the host is compared
    "/secret",  # a route with keep_response=False
    "/required",  # a route with required=True
    "/found",  # a route whose records say what they are about
    "/length",  # ?given=…&code=…: ten bytes under that Content-Length
)
FINITE = ("/stream", "/events")
"""Three chunks, one by one; `/events` is text/event-stream and waits at the gate before its last."""
ENDLESS = ("/endless", "/ticking", "/lasting", "/silent")
"""Streams without an end, each of which tells the gate when it was stopped.

`/endless` gives more than is kept, as fast as it is taken. The others stay below that: `/ticking` is stopped soon after
its client has left, `/lasting` after a runtime of a second, and `/silent` says one thing and then waits for ever, where
views are awaited.
"""
LENGTHS = ("/short", "/long")
"""Two chunks of five bytes under a Content-Length of 20 and of 7."""
STREAMS = (*FINITE, *ENDLESS, *LENGTHS)
MOMENT = 0.02


class Retryable(Exception):
    """In the policy of every application: nothing happened."""


class Final(Exception):
    """In the policy of every application: stored."""


ERRORS: dict[str, type[Exception]] = {"retryable": Retryable, "final": Final, "other": RuntimeError}


LARGE = random.Random(1).randbytes(5000)
"""More than its route keeps, however well it is compressed."""


@dataclass(frozen=True)
class Reply:
    """An answer, for a framework to send."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


def store_url() -> str:
    """The store of the application under test."""
    return os.environ[STORE]


def policy() -> Policy:
    """The policy of every application."""
    return Policy(final_errors=(Final,), retry_errors=(Retryable,))


def make_engine(kind: type[Engine]) -> Engine:
    """The engine of an application."""
    if os.environ.get(FILE):
        return kind.from_settings(os.environ[FILE])
    return kind(store_url(), policy=policy(), limits=limits())


def limits() -> Limits:
    """The limits of the engine; those of the test where it has some."""
    return Limits(**json.loads(os.environ.get(LIMITS, "{}")))


def route_settings() -> dict[str, RouteOptions]:
    """Settings of routes that have some, by path; those of the test come last."""
    given = json.loads(os.environ.get(SETTINGS, "{}"))
    return {
        "/secret": {"keep_response": False},
        "/required": {"required": True},
        "/large": {"max_response": 1000},
        "/busy": {"policy": policy().replace(when_running="reject")},
        "/brief": {"policy": policy().replace(lease_for=timedelta(seconds=1))},
        "/patient": {"policy": policy().replace(wait_for=timedelta(minutes=1))},
        "/echo": {"max_body": 100_000},
        "/endless": {"max_response": 1000},
        "/ticking": {"after_disconnect": timedelta(milliseconds=200)},
        "/silent": {"after_disconnect": timedelta(milliseconds=200)},
        "/lasting": {"policy": policy().replace(max_runtime=timedelta(seconds=1))},
        "/derived": {"compare_host": True},
        "/found": {"about": about},
        **given,
    }


def caller_of(authorization: str) -> str | None:
    """Who asks: `Bearer alice` is alice. Nobody is None; everybody may, but mallory may nothing."""
    kind, _, name = authorization.partition(" ")
    return name or None if kind == "Bearer" else None


def about(request: Request) -> Any:
    """What a request is about: its header X-About and its body, or something that no record can be about."""
    match request.headers.get("x-about"):
        case None:
            return None
        case "a number":
            return 7
        case "an unknown name":
            return {"colour": "red"}
        case subject:
            return {"subject": subject, "business_key": request.body.decode(), "tags": {"method": request.method}}


def may(caller: str | None) -> bool:
    """Whether this caller has the right to call: a right that can be lost while keys are kept."""
    revoked = Path(os.environ[FOLDER], "revoked")
    return not revoked.exists() or caller not in revoked.read_text().split()


def happened(what: str) -> int:
    """An effect: one more line. Gives how many there are now."""
    path = Path(os.environ[FOLDER], "effects")
    with path.open("ab", buffering=0) as file:
        file.write(what.encode() + b"\n")
    return path.read_bytes().count(b"\n")


def effects() -> int:
    """How many effects there are."""
    path = Path(os.environ[FOLDER], "effects")
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_at_gate() -> None:
    """Tell the test that a handler is here, and go on when it says so."""
    with socket.create_connection(("127.0.0.1", int(os.environ[GATE])), timeout=60) as gate:
        gate.sendall(b"here\n")
        gate.recv(1)


def tell_gate(what: str) -> None:
    """Tell the test what has happened, and go on."""
    with socket.create_connection(("127.0.0.1", int(os.environ[GATE])), timeout=60) as gate:
        gate.sendall(what.encode() + b"\n")


def chunks(path: str) -> Iterator[bytes]:
    """The body of a path that streams; its effect comes first."""
    happened(path)
    if path in LENGTHS:
        yield from (b"12345", b"67890")
        return
    if path in ENDLESS:
        yield from _endless(path)
    yield b"data: one\n\n"
    yield b"data: two\n\n"
    if path == "/events":
        wait_at_gate()
    yield b"data: three\n\n"


def _endless(path: str) -> Iterator[bytes]:
    try:
        while True:
            yield b"x" * 100 if path == "/endless" else b"."
            time.sleep(0 if path == "/endless" else MOMENT)
    finally:
        tell_gate("stopped")


async def async_chunks(path: str) -> AsyncIterator[bytes]:
    """The body of a path that streams without an end, where views are awaited."""
    happened(path)
    try:
        while True:
            yield b"x" * 100 if path == "/endless" else b"."
            if path == "/silent":
                await asyncio.Event().wait()
            await asyncio.sleep(0 if path == "/endless" else MOMENT)
    finally:
        tell_gate("stopped")


def stream_headers(path: str) -> dict[str, str]:
    """The headers of a path that streams."""
    length = {"/short": "20", "/long": "7"}.get(path)
    return {"Content-Type": stream_type(path), **({} if length is None else {"Content-Length": length})}


def stream_type(path: str) -> str:
    """The content type of a path that streams."""
    return "text/event-stream" if path == "/events" else "application/octet-stream"


def answer(path: str, query: str, body: bytes, derived: str = "") -> Reply:
    """What the application answers; the effect has happened then.

    Raises:
        Exception: what `/raises` is asked for.
    """
    asked = {name: values[0] for name, values in parse_qs(query).items()}
    number = happened(path)
    match path:
        case "/binary":
            return Reply(200, (("Content-Type", "application/octet-stream"),), bytes(range(256)))
        case "/gzip":
            packed = gzip.compress(b"once " * 100, mtime=0)
            return Reply(200, (("Content-Type", "text/plain"), ("Content-Encoding", "gzip")), packed)
        case "/empty":
            return Reply(204)
        case "/null":
            return Reply(200, (("Content-Type", "application/json"),), b"null")
        case "/headers":
            return Reply(200, _HEADERS, b"{}")
        case "/large":
            return Reply(200, (("Content-Type", "application/octet-stream"),), LARGE)
        case "/slow" | "/busy" | "/brief" | "/patient":
            wait_at_gate()
        case "/status":
            return Reply(int(asked["code"]), (("Content-Type", "text/plain"),), f"effect {number}".encode())
        case "/length":
            length = ("Content-Length", asked["given"])
            return Reply(int(asked.get("code", 200)), (("Content-Type", "text/plain"), length), b"1234567890")
        case "/raises":
            raise ERRORS[asked["error"]](f"effect {number}")
        case "/echo":
            return Reply(200, (("Content-Type", "application/octet-stream"),), body)
        case "/derived":
            return Reply(200, (("Content-Type", "text/plain"),), derived.encode())
    headers = (("Content-Type", "application/json"), ("Location", f"/orders/{number}"), ("ETag", f'"{number}"'))
    return Reply(201, (*headers, ("Set-Cookie", "session=secret")), json.dumps({"effect": number}).encode())


_HEADERS = (
    ("Content-Type", "application/json"),
    ("Link", "</a>; rel=first"),
    ("Link", "</b>; rel=second"),
    ("Content-Language", "en"),
    ("Set-Cookie", "one=1"),
    ("Set-Cookie", "two=2"),
    ("X-Trace", "abc"),
)
