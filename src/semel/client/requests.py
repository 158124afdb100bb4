"""Idempotency keys for requests: an adapter that is mounted on a session.

The response of an unsafe request is read whole before it is returned: one that breaks off is no outcome.
"""

from __future__ import annotations

import time
from http.client import HTTPMessage, IncompleteRead
from http.client import HTTPResponse as HTTPAnswer
from io import BytesIO
from typing import Any, Final, Unpack

from semel.api import Place
from semel.client.executor import KEYS, Executor, Now
from semel.client.models import Reply, Send, TransportFailed, drop_own, outgoing
from semel.client.pending import Pending, Resumed, forgotten, resumed, unfinished
from semel.client.settings import Given
from semel.errors import UsageError
from semel.extras import requires

with requires("semel.client.requests", "requests"):
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import HTTPConnectionPool, HTTPHeaderDict, HTTPResponse, HTTPSConnectionPool
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.exceptions import HTTPError, NewConnectionError

_NOT_SENT: Final = (requests.exceptions.ConnectTimeout, requests.exceptions.ProxyError)
_OUR_FAULT: Final = (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader)
_LOST: Final = (
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)
_FETCHED_IN: Final = 5.0
_FAILED: Final = 500


class _Lines:
    """What is read of an answer, and the line that was read last."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.last = b""

    def readline(self, *size: int) -> bytes:
        self.last = self._file.readline(*size)
        return self.last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Whole(HTTPAnswer):
    """An answer whose headers are whole: by itself `http.client` takes the end of a cut connection for their end."""

    fp: Any

    def begin(self) -> None:
        file = self.fp
        self.fp = lines = _Lines(file)
        super().begin()
        if self.fp is lines:  # not closed, as it is behind an answer without a body
            self.fp = file
        if lines.last not in (b"\r\n", b"\n"):
            raise IncompleteRead(b"")


class _Connection(HTTPConnection):
    response_class = _Whole


class _SecureConnection(HTTPSConnection):
    response_class = _Whole


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


_POOLS: Final = {"http": _Pool, "https": _SecurePool}


class OnceAdapter(HTTPAdapter):
    """Gives every unsafe request a key that outlives the process, and asks again with the same one.

    Args:
        keys: where keys are kept: a URL or path as for `Semel`, or a `Semel`.
        now: the time of day, in seconds since 1970; tests put another here.
        settings: `semel.client.settings.Settings` says what there is.
    """

    def __init__(self, keys: Place = KEYS, *, now: Now = time.time, **settings: Unpack[Given]) -> None:
        super().__init__(max_retries=0)  # a retry below would not be counted, and could not be told from the first
        self.executor = Executor(keys, self._send, self._fetch, now, **settings)

    def init_poolmanager(self, *given: Any, **settings: Any) -> None:
        """Use connections that tell a cut answer from a whole one."""
        super().init_poolmanager(*given, **settings)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: Any, **settings: Any) -> Any:
        """The same through a proxy."""
        manager = super().proxy_manager_for(proxy, **settings)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def send(  # type: ignore[override]  # the settings of a request are passed on as they come
        self, request: requests.PreparedRequest, **settings: Any
    ) -> requests.Response:
        """Send a request; with a key, if it is unsafe."""
        journal = self.executor.journal
        if not journal.settings.keyed(request.method or ""):
            drop_own(request.headers)
            return super().send(request, **settings)
        asked = outgoing(
            (request, settings),
            method=request.method or "",
            url=request.url or "",
            headers=[(name, _text(value)) for name, value in request.headers.items()],
            body=_bytes(request.body),
            header=journal.settings.header,
        )
        return self._response(request, self.executor.run(journal.ask(asked)))

    def close(self) -> None:
        """Let go of connections and of the store."""
        super().close()
        self.executor.close()

    def pending(self) -> list[Pending]:
        """Requests whose outcome is not known, oldest first."""
        return self.executor.run(unfinished(self.executor.journal.settings.name))

    def resume(self, session: requests.Session) -> list[Resumed[requests.Response]]:
        """Send again what is unfinished, each with its own key, through the session that this is mounted on."""
        name = self.executor.journal.settings.name
        return self.executor.run(resumed(name, lambda pending: _sent_again(session, pending)))

    def forget(self, intent: str) -> int:
        """Give up requests whose outcome is not known; how many there were."""
        return self.executor.run(forgotten(self.executor.journal.settings.name, intent))

    def _send(self, send: Send) -> Reply:
        request, settings = send.outgoing.original
        copy = request.copy()
        drop_own(copy.headers)
        copy.headers[send.outgoing.key_header] = send.key
        try:
            response = super().send(copy, **{**settings, "stream": True})
            with response:
                body = response.raw.read(decode_content=False)
        except _OUR_FAULT as error:
            raise TransportFailed(error, sent=False, again=False) from error
        except _LOST as error:
            raise TransportFailed(error, sent=not _never_left(error)) from error
        except HTTPError as error:
            lost = requests.exceptions.ConnectionError(error, request=request)
            raise TransportFailed(lost, sent=True) from error
        return Reply(response.status_code, tuple(response.raw.headers.items()), body)

    def _fetch(self, url: str) -> bytes | None:
        question = requests.Request("GET", url, headers={"Accept": "application/json"}).prepare()
        try:
            response = super().send(question, timeout=_FETCHED_IN)
            found = response.content  # whatever it says: a connection that is not read to its end is not given back
        except requests.RequestException:
            return None
        if response.status_code >= _FAILED:
            return None
        return found if response.ok else b""

    def _response(self, request: requests.PreparedRequest, reply: Reply) -> requests.Response:
        raw = HTTPResponse(
            body=BytesIO(reply.body),
            headers=HTTPHeaderDict(reply.headers),
            status=reply.status,
            preload_content=False,
            original_response=_Head(reply),  # type: ignore[arg-type]  # of it only what is there is used
            request_method=request.method,
        )
        return self.build_response(request, raw)


class _Head:
    """The answer as `http.client` has it, as far as requests looks at it: for cookies, and whether it is read."""

    def __init__(self, reply: Reply) -> None:
        self.msg = HTTPMessage()
        for name, value in reply.headers:
            self.msg[name] = value

    def isclosed(self) -> bool:
        """It is read."""
        return True

    def close(self) -> None:
        """There is nothing to let go of."""


def _sent_again(session: requests.Session, pending: Pending) -> requests.Response:
    saved = pending.request
    assert saved is not None  # noqa: S101 - only such are sent again
    question = requests.Request(saved.method, saved.url, data=saved.body, headers=dict(pending.headers))
    prepared = session.prepare_request(question)
    prepared.url = saved.url  # it is whole: what the session adds to every address is in it
    return session.send(prepared, **session.merge_environment_settings(saved.url, {}, None, None, None))


def _never_left(error: Exception) -> bool:
    """Whether there was no connection to send anything over."""
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    return isinstance(error, _NOT_SENT) or isinstance(reason, NewConnectionError)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _bytes(body: Any) -> bytes:
    match body:
        case None:
            return b""
        case str():
            return body.encode()
        case bytes():
            return body
    message = f"A body of type {type(body).__name__} can be sent only once; nothing was sent. Read it into bytes first."
    raise UsageError(message)
