"""The console of a sample shop, served for people of every role, and somebody with a browser in front of it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import uvicorn
from playwright.sync_api import Page
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from semel import AsyncSemel, Policy, Record, Semel, errors
from semel.events import Consumer, Event
from semel.server import User, console_app

T = TypeVar("T")
ROOT: Final = Path(__file__).parents[3]
ARTIFACTS: Final = ROOT / "artifacts" / "console"
PATIENCE: Final = 60_000  # milliseconds, for a loaded machine; what is waited for comes at once or never
USERS: Final = {
    "viewer": User("vera", {"viewer"}),
    "operator": User("olga", {"operator"}),
    "eraser": User("emil", {"eraser"}),
    "admin": User("adam", {"admin"}),
    "acme": User("anna", {"admin"}, scopes={"acme"}),
    "nobody": None,
}
LINKS: Final = {
    "Trace": "https://traces.example/trace/{trace_id}",
    "In the engine": "https://engine.example/process/{process_instance}",
}
HOLD: Final = Policy(in_doubt="hold")


class Lost(Exception):
    """Nobody knows whether it happened."""


class Declined(Exception):
    """It did not happen, and never will."""


def make_app(semel: Semel | AsyncSemel, consumers: Sequence[Consumer[Any]] = ()) -> Starlette:
    """One console for each role, at its own place."""
    return Starlette(
        routes=[
            Mount(f"/{name}", console_app(semel, user=_known_as(user), consumers=consumers, links=LINKS))
            for name, user in USERS.items()
        ]
    )


def _known_as(user: User | None) -> Callable[[Request], User | None]:
    return lambda _: user


def make_consumer(semel: Semel) -> Consumer[Semel]:
    """The consumer whose letters can be redriven; now its handler works."""
    consumer = Consumer(semel, "billing", max_attempts=1, scope="acme")

    @consumer.on("order.placed")
    def placed(event: Event) -> None:
        del event

    return consumer


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own: while a browser is there an event loop runs in this one."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


@contextmanager
def served(app: Starlette) -> Iterator[str]:
    """The application on a port of its own, in a thread; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@dataclass
class Site:
    """The console, and the shop that it shows."""

    address: str
    path: Path
    semel: Semel

    def url(self, place: str = "/", role: str = "admin") -> str:
        """The address of a page, as one of these people sees it."""
        return f"{self.address}/{role}{place}"

    def in_doubt(self, key: str, scope: str = "acme") -> Record:
        """A record that only a person can decide about."""
        return self._run(key, Lost("read timed out"), HOLD, scope)

    def failed(self, key: str, scope: str = "acme") -> Record:
        """A record that failed for good."""
        return self._run(key, Declined("no funds"), Policy(final_errors=(Declined,)), scope)

    def completed(self, key: str, value: Any = "paid", scope: str = "acme") -> Record:
        """A record that is completed."""
        return self._run(key, value, Policy(), scope)

    def completed_in(self, key: str, scope: str) -> Record:
        """The same in a scope, for a table of ways to make records."""
        return self.completed(key, scope=scope)

    def running(self, key: str, scope: str = "acme") -> Record:
        """A record whose lease is live; nobody ends it."""
        self.semel.open(key, operation="probe", scope=scope, fingerprint=None, policy=HOLD)
        return self.read(key, scope)

    def read(self, key: str, scope: str = "acme") -> Record:
        """The record of a key as it is now."""
        record = self.semel.read(key, operation="probe", scope=scope)
        assert record is not None
        return record

    def _run(self, key: str, outcome: Any, policy: Policy, scope: str) -> Record:
        def handler() -> Any:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        with suppress(Lost, Declined, errors.SemelError):
            self.semel.run(key, handler, operation="probe", scope=scope, fingerprint=None, policy=policy)
        return self.read(key, scope)


@dataclass
class Reader:
    """Somebody who looks at pages."""

    site: Site
    page: Page
    role: str = "admin"

    def opens(self, place: str, role: str | None = None) -> Page:
        """Go to a page."""
        self.page.goto(self.site.url(place, role or self.role))
        return self.page
