"""Idempotency keys for httpx: sync and async transports, and clients that have them built in.

- Redirects, authentication, cookies and hooks are above the transport and see each request once; retries are below it.
- The response of an unsafe request is read whole before it is returned: one that breaks off is no outcome.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Unpack

from semel.api import Place
from semel.client.executor import KEYS, AsyncExecutor, Executor, Now
from semel.client.models import Outgoing, Reply, Send, TransportFailed, drop_own, outgoing
from semel.client.pending import Pending, Resumed, forgotten, resumed, unfinished
from semel.client.settings import Given, Settings, split
from semel.errors import UsageError
from semel.extras import requires

with requires("semel.client", "httpx"):
    import httpx

_NOT_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
_OUR_FAULT: Final = (httpx.LocalProtocolError, httpx.UnsupportedProtocol)
_THEIRS: Final = frozenset(inspect.signature(httpx.Client.__init__).parameters)
_CARRIED: Final = frozenset({"verify", "cert", "trust_env", "http1", "http2", "limits", "proxy"})
_FETCHED_IN: Final = 5.0
_FOUND: Final = 200
_FAILED: Final = 500


class AsyncOnceTransport(httpx.AsyncBaseTransport):
    """Gives every unsafe request a key that outlives the process, and asks again with the same one.

    Args:
        keys: where keys are kept: a URL or path as for `AsyncSemel`, or an engine of that class.
        transport: what carries the requests.
        now: the time of day, in seconds since 1970; tests put another here.
        settings: `semel.client.settings.Settings` says what there is.
    """

    def __init__(
        self,
        keys: Place = KEYS,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        now: Now = time.time,
        **settings: Unpack[Given],
    ) -> None:
        self._below = transport or httpx.AsyncHTTPTransport()
        self.executor = AsyncExecutor(keys, self._send, self._fetch, now, **settings)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; with a key, if it is unsafe."""
        if not self.executor.journal.settings.keyed(request.method):
            drop_own(request.headers)
            return await self._below.handle_async_request(request)
        body = await request.aread()
        asked = _outgoing(request, body, self.executor.journal.settings)
        return _response(await self.executor.run(self.executor.journal.ask(asked)))

    async def aclose(self) -> None:
        """Let go of connections and of the store."""
        await self._below.aclose()
        await self.executor.close()

    async def _send(self, send: Send) -> Reply:
        with _cuts():
            response = await self._below.handle_async_request(_request(send))
            try:
                body = b"".join([part async for part in _async_parts(response.stream)])
            finally:
                await response.aclose()
        return _reply(response, body)

    async def _fetch(self, url: str) -> bytes | None:
        try:
            response = await self._below.handle_async_request(_question(url))
            found = await response.aread()  # to its end whatever it says: only then is the connection given back
        except httpx.HTTPError:
            return None
        return _told(response.status_code, found)


class AsyncClient(httpx.AsyncClient):
    """An `httpx.AsyncClient` whose unsafe requests keep their keys.

    Args:
        keys: where keys are kept: a URL or path as for `AsyncSemel`, or an engine of that class.
        transport: what carries the requests.
        now: the time of day, in seconds since 1970; tests put another here.
        settings: those of `semel.client.settings.Settings`, and those of `httpx.AsyncClient`.
    """

    def __init__(
        self,
        keys: Place = KEYS,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        now: Now = time.time,
        **settings: Any,
    ) -> None:
        ours, theirs = split(settings, _THEIRS)
        carried = _carried(theirs)
        below = transport or httpx.AsyncHTTPTransport(**carried)
        self._once = AsyncOnceTransport(keys, transport=below, now=now, **ours)
        super().__init__(transport=self._once, **theirs)

    async def pending(self) -> list[Pending]:
        """Requests whose outcome is not known, oldest first."""
        return await self._once.executor.run(unfinished(self._once.executor.journal.settings.name))

    async def resume(self) -> list[Resumed[httpx.Response]]:
        """Send again what is unfinished, each with its own key, and say what became of it."""
        executor = self._once.executor
        return await executor.run(
            resumed(executor.journal.settings.name, lambda pending: self.send(_again(self, pending)))
        )

    async def forget(self, intent: str) -> int:
        """Give up requests whose outcome is not known; how many there were."""
        return await self._once.executor.run(forgotten(self._once.executor.journal.settings.name, intent))


def _carried(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that are the transport's, taken out of those of a client."""
    if settings.get("mounts"):
        message = (
            "mounts= would carry requests past the keys; nothing was set up. Give the transport as transport=, or "
            "mount a OnceTransport on a client of httpx."
        )
        raise UsageError(message)
    return {name: settings.pop(name) for name in _CARRIED & set(settings)}


def _again(client: httpx.Client | httpx.AsyncClient, pending: Pending) -> httpx.Request:
    """A request that was kept, with what the client adds to all of its own, except to the address: that is whole."""
    saved = pending.request
    assert saved is not None  # noqa: S101 - only such are sent again
    request = client.build_request(saved.method, saved.url, content=saved.body, headers=list(pending.headers))
    request.url = httpx.URL(saved.url)
    return request


@contextmanager
def _cuts() -> Iterator[None]:
    """What httpx raises inside, as a try that got no answer."""
    try:
        yield
    except httpx.TransportError as error:
        raise TransportFailed(error, sent=not _never_left(error), again=not isinstance(error, _OUR_FAULT)) from error


def _never_left(error: httpx.TransportError) -> bool:
    """Whether nothing was sent. HTTP/2 also calls it our fault when it cannot make sense of what the service sent."""
    cause: BaseException | None = error
    while cause is not None and not type(cause).__module__.startswith("h11"):
        cause = cause.__cause__ or cause.__context__
    return isinstance(error, _NOT_SENT) or (isinstance(error, httpx.LocalProtocolError) and cause is not None)


def _outgoing(request: httpx.Request, body: bytes, settings: Settings) -> Outgoing:
    return outgoing(
        request,
        method=request.method,
        url=str(request.url),
        headers=request.headers.multi_items(),
        body=body,
        header=settings.header,
    )


def _request(send: Send) -> httpx.Request:
    """The request as it goes over the wire: everything that the caller gave it, and the key."""
    original: httpx.Request = send.outgoing.original
    headers = original.headers.copy()
    drop_own(headers)
    headers[send.outgoing.key_header] = send.key
    body = httpx.ByteStream(send.outgoing.body)
    return httpx.Request(original.method, original.url, headers=headers, stream=body, extensions=original.extensions)


def _told(status: int, found: bytes) -> bytes | None:
    return None if status >= _FAILED else found if status == _FOUND else b""


def _question(url: str) -> httpx.Request:
    times = dict.fromkeys(("connect", "read", "write", "pool"), _FETCHED_IN)
    return httpx.Request("GET", url, headers={"Accept": "application/json"}, extensions={"timeout": times})


def _async_parts(stream: object) -> httpx.AsyncByteStream:
    """The body as it comes, also of an answer that was made in this process and counts as read."""
    assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101 - a transport gives streams of its own kind
    return stream


def _sync_parts(stream: object) -> httpx.SyncByteStream:
    assert isinstance(stream, httpx.SyncByteStream)  # noqa: S101 - the same
    return stream


def _reply(response: httpx.Response, body: bytes) -> Reply:
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw)
    return Reply(response.status_code, headers, body)


def _response(reply: Reply) -> httpx.Response:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers]
    return httpx.Response(reply.status, headers=headers, stream=httpx.ByteStream(reply.body))


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class OnceTransport(httpx.BaseTransport):
    """Gives every unsafe request a key that outlives the process, and asks again with the same one.

    Args:
        keys: where keys are kept: a URL or path as for `Semel`, or an engine of that class.
        transport: what carries the requests.
        now: the time of day, in seconds since 1970; tests put another here.
        settings: `semel.client.settings.Settings` says what there is.
    """

    def __init__(
        self,
        keys: Place = KEYS,
        *,
        transport: httpx.BaseTransport | None = None,
        now: Now = time.time,
        **settings: Unpack[Given],
    ) -> None:
        self._below = transport or httpx.HTTPTransport()
        self.executor = Executor(keys, self._send, self._fetch, now, **settings)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; with a key, if it is unsafe."""
        if not self.executor.journal.settings.keyed(request.method):
            drop_own(request.headers)
            return self._below.handle_request(request)
        body = request.read()
        asked = _outgoing(request, body, self.executor.journal.settings)
        return _response(self.executor.run(self.executor.journal.ask(asked)))

    def close(self) -> None:
        """Let go of connections and of the store."""
        self._below.close()
        self.executor.close()

    def _send(self, send: Send) -> Reply:
        with _cuts():
            response = self._below.handle_request(_request(send))
            try:
                body = b"".join(list(_sync_parts(response.stream)))
            finally:
                response.close()
        return _reply(response, body)

    def _fetch(self, url: str) -> bytes | None:
        try:
            response = self._below.handle_request(_question(url))
            found = response.read()  # to its end whatever it says: only then is the connection given back
        except httpx.HTTPError:
            return None
        return _told(response.status_code, found)


class Client(httpx.Client):
    """An `httpx.Client` whose unsafe requests keep their keys.

    Args:
        keys: where keys are kept: a URL or path as for `Semel`, or an engine of that class.
        transport: what carries the requests.
        now: the time of day, in seconds since 1970; tests put another here.
        settings: those of `semel.client.settings.Settings`, and those of `httpx.Client`.
    """

    def __init__(
        self,
        keys: Place = KEYS,
        *,
        transport: httpx.BaseTransport | None = None,
        now: Now = time.time,
        **settings: Any,
    ) -> None:
        ours, theirs = split(settings, _THEIRS)
        carried = _carried(theirs)
        below = transport or httpx.HTTPTransport(**carried)
        self._once = OnceTransport(keys, transport=below, now=now, **ours)
        super().__init__(transport=self._once, **theirs)

    def pending(self) -> list[Pending]:
        """Requests whose outcome is not known, oldest first."""
        return self._once.executor.run(unfinished(self._once.executor.journal.settings.name))

    def resume(self) -> list[Resumed[httpx.Response]]:
        """Send again what is unfinished, each with its own key, and say what became of it."""
        executor = self._once.executor
        return executor.run(resumed(executor.journal.settings.name, lambda pending: self.send(_again(self, pending))))

    def forget(self, intent: str) -> int:
        """Give up requests whose outcome is not known; how many there were."""
        return self._once.executor.run(forgotten(self._once.executor.journal.settings.name, intent))
