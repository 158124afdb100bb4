"""The three doors of the client behind one form, so that one suite asks them all.

What always holds: a door is called from threads and waits; the one of httpx with `await` runs a loop of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import requests

from semel import AsyncSemel, Semel
from semel.client import INTENT, AsyncClient, Client, Pending, Resumed
from semel.client.requests import OnceAdapter
from semel.engine.clock import Clock, SystemClock

T = TypeVar("T")
QUICK = 60.0


@dataclass(frozen=True)
class Got:
    """An answer, of whichever library."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def replayed(self) -> bool:
        """Whether it was given again."""
        return self.headers.get("idempotency-replayed") == "true"


class Door(ABC):
    """A client, and what its tests ask of it."""

    @abstractmethod
    def request(self, method: str, url: str, body: bytes = b"{}", headers: dict[str, str] | None = None) -> Got:
        """Send a request."""

    @abstractmethod
    def pending(self) -> list[Pending]:
        """What is unfinished."""

    @abstractmethod
    def resume(self) -> list[Resumed[Got]]:
        """Send it again."""

    @abstractmethod
    def forget(self, intent: str) -> int:
        """Give it up."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""

    @abstractmethod
    def lose_store(self) -> None:
        """Nobody keeps the leases of this door any more, as if its process had died."""

    def post(self, url: str, intent: str | None = None, body: bytes = b"{}", **headers: str) -> Got:
        """Post, under an intent if there is one."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if intent is not None:
            named[INTENT] = intent
        return self.request("POST", url, body, named)


class Httpx(Door):
    """`Client`."""

    def __init__(self, keys: Any, clock: Clock | None = None, **settings: Any) -> None:
        self._engine = Semel(keys, clock=clock or SystemClock())
        self.client = Client(self._engine, **_defaults(settings))

    def request(self, method: str, url: str, body: bytes = b"{}", headers: dict[str, str] | None = None) -> Got:
        return _of_httpx(self.client.request(method, url, content=body, headers=headers))

    def pending(self) -> list[Pending]:
        return self.client.pending()

    def resume(self) -> list[Resumed[Got]]:
        return [_resumed(each, _of_httpx) for each in self.client.resume()]

    def forget(self, intent: str) -> int:
        return self.client.forget(intent)

    def close(self) -> None:
        self.client.close()
        self._engine.close()

    def lose_store(self) -> None:
        self._engine.close()


class Awaited(Door):
    """`AsyncClient`, in a loop of its own."""

    def __init__(self, keys: Any, clock: Clock | None = None, **settings: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self._engine = AsyncSemel(keys, clock=clock or SystemClock())
        self.client = AsyncClient(self._engine, **_defaults(settings))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.begin(work).result(QUICK)

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start work in the loop of this door."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def request(self, method: str, url: str, body: bytes = b"{}", headers: dict[str, str] | None = None) -> Got:
        return _of_httpx(self._wait(self.client.request(method, url, content=body, headers=headers)))

    def pending(self) -> list[Pending]:
        return self._wait(self.client.pending())

    def resume(self) -> list[Resumed[Got]]:
        return [_resumed(each, _of_httpx) for each in self._wait(self.client.resume())]

    def forget(self, intent: str) -> int:
        return self._wait(self.client.forget(intent))

    def close(self) -> None:
        self._wait(self.client.aclose())
        self._wait(self._engine.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def lose_store(self) -> None:
        self._wait(self._engine.close())


class Requests(Door):
    """`OnceAdapter`, on a session."""

    def __init__(self, keys: Any, clock: Clock | None = None, **settings: Any) -> None:
        given = _defaults(settings)
        for name in ("timeout", "trust_env"):
            given.pop(name)
        auth, headers, params = (given.pop(name, None) for name in ("auth", "headers", "params"))
        self._engine = Semel(keys, clock=clock or SystemClock())
        self.adapter = OnceAdapter(self._engine, **given)
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", self.adapter)
        self.session.auth = auth
        self.session.headers.update(headers or {})
        self.session.params = params or {}

    def request(self, method: str, url: str, body: bytes = b"{}", headers: dict[str, str] | None = None) -> Got:
        return _of_requests(self.session.request(method, url, data=body, headers=headers))

    def pending(self) -> list[Pending]:
        return self.adapter.pending()

    def resume(self) -> list[Resumed[Got]]:
        return [_resumed(each, _of_requests) for each in self.adapter.resume(self.session)]

    def forget(self, intent: str) -> int:
        return self.adapter.forget(intent)

    def close(self) -> None:
        self.session.close()
        self._engine.close()

    def lose_store(self) -> None:
        self._engine.close()


DOORS: dict[str, Callable[..., Door]] = {"httpx": Httpx, "httpx async": Awaited, "requests": Requests}
LOST = (httpx.TransportError, requests.exceptions.ConnectionError, requests.exceptions.ChunkedEncodingError)


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Start work in a thread."""
    future: Future[T] = Future()

    def play() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            future.set_exception(error)

    threading.Thread(target=play).start()
    return future


def until(condition: Callable[[], bool]) -> None:
    """Look until it is so; for what another thread is about to do."""
    deadline = time.monotonic() + QUICK
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.002)


def _defaults(settings: dict[str, Any]) -> dict[str, Any]:
    from datetime import timedelta

    short = timedelta(milliseconds=1)
    lease_for = timedelta(seconds=30)  # no loaded machine is to lose it
    return {
        "first_pause": short,
        "longest_pause": short,
        "lease_for": lease_for,
        "timeout": QUICK,
        "trust_env": False,
    } | settings


def _of_httpx(response: httpx.Response) -> Got:
    return Got(
        response.status_code, {name.lower(): value for name, value in response.headers.items()}, response.content
    )


def _of_requests(response: requests.Response) -> Got:
    return Got(
        response.status_code, {name.lower(): value for name, value in response.headers.items()}, response.content
    )


def _resumed(each: Resumed[Any], of: Callable[[Any], Got]) -> Resumed[Got]:
    return Resumed(each.pending, None if each.response is None else of(each.response), each.error)
