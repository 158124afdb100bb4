"""One life of a client: resumes what the lives before it left, asks for its order, and reports.

What always holds: nothing is opened before it begins, and it says on its line how far it is before it goes on.
"""

import asyncio
import json
import socket
import ssl
import threading
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import requests

from semel import AsyncSemel, Semel
from semel.client import AsyncClient, Client, Resumed
from semel.client.requests import OnceAdapter
from tests.client.kill.messages import LIFE, order
from tests.client.kill.mutants import MUTANTS
from tests.client.kill.plans import LEASE, TRIES, Library
from tests.client.kill.positions import At
from tests.client.kill.story import Answer, Report
from tests.client.kill.task import Task
from tests.client.kill.watched import WatchedStore

_SETTINGS: Final[dict[str, Any]] = {
    "lease_for": LEASE,
    "tries": TRIES,
    "first_pause": timedelta(milliseconds=4),
    "longest_pause": timedelta(milliseconds=10),
}
_SECURE: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # made once: reading certificates takes longer than a life
_TIMEOUT: Final = 30.0
_GAVE_UP: Final = (httpx.TransportError, requests.ConnectionError, requests.exceptions.ChunkedEncodingError)


class Line:
    """Tells the scene how far a life is; stands still where the life is to be killed."""

    def __init__(self, connection: socket.socket, stop: str) -> None:
        self._connection = connection
        self._stop = stop
        self._lock = threading.Lock()

    def tell(self, at: At) -> None:
        """Say where the life is, and stay there if this is the end of it."""
        self.say(note=at.name)
        if at.name == self._stop:
            self.say(stop=at.name)
            threading.Event().wait()

    def say(self, **what: object) -> None:
        """Send one line."""
        with self._lock:
            self._connection.sendall(json.dumps(what).encode() + b"\n")


def live(task: Task, connection: socket.socket) -> None:
    """Live from beginning to end."""
    line = Line(connection, task.stop)
    line.tell(At.STARTED)
    MUTANTS[task.mutant]()
    store = WatchedStore(Path(task.file), task.ahead, line.tell)
    try:
        report = _report(task, store)
    except _GAVE_UP as error:
        report = Report([], None, 0, type(error).__name__, "")
    except Exception:  # noqa: BLE001 - whatever it is, the checker has to see it
        report = Report([], None, 0, "", traceback.format_exc(limit=-3))
    line.say(report=report._asdict())


def _report(task: Task, store: WatchedStore) -> Report:
    match Library(task.library):
        case Library.HTTPX:
            return _with_httpx(task, store)
        case Library.HTTPX_ASYNC:
            return asyncio.run(_with_httpx_awaited(task, store))
        case Library.REQUESTS:
            return _with_requests(task, store)


def _with_httpx(task: Task, store: WatchedStore) -> Report:
    transport = httpx.HTTPTransport(verify=_SECURE)
    headers = {LIFE: task.name}
    with Client(Semel(store), transport=transport, timeout=_TIMEOUT, headers=headers, **_SETTINGS) as client:
        resumed = [_became(one) for one in client.resume()]
        asked = client.post(task.url, content=order(task.round), headers=task.headers) if task.asks else None
        return Report(resumed, _answer(asked), len(client.pending()), "", "")


async def _with_httpx_awaited(task: Task, store: WatchedStore) -> Report:
    transport = httpx.AsyncHTTPTransport(verify=_SECURE)
    headers = {LIFE: task.name}
    keys = AsyncSemel(store)
    async with AsyncClient(keys, transport=transport, timeout=_TIMEOUT, headers=headers, **_SETTINGS) as client:
        resumed = [_became(one) for one in await client.resume()]
        asked = await client.post(task.url, content=order(task.round), headers=task.headers) if task.asks else None
        return Report(resumed, _answer(asked), len(await client.pending()), "", "")


def _with_requests(task: Task, store: WatchedStore) -> Report:
    adapter = OnceAdapter(Semel(store), **_SETTINGS)
    with requests.Session() as session:
        session.trust_env = False
        session.headers[LIFE] = task.name
        session.mount("http://", adapter)
        resumed = [_became(one) for one in adapter.resume(session)]
        asked = None
        if task.asks:
            asked = session.post(task.url, data=order(task.round), headers=task.headers, timeout=_TIMEOUT)
        return Report(resumed, _answer(asked), len(adapter.pending()), "", "")


def _became(one: Resumed[httpx.Response] | Resumed[requests.Response]) -> Answer:
    return _answer(one.response) or (0, repr(one.error))


def _answer(response: httpx.Response | requests.Response | None) -> Answer | None:
    return None if response is None else (response.status_code, response.text)
