"""Keys for any WSGI application.

What always holds: requests of no route and requests without a key pass untouched. With a key the application is called
once its whole body is there; an upload that was cut off runs nothing. Its answer reaches the client unchanged; the last
of it leaves only after the outcome was recorded, and what the application does in `close()` comes after that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from io import BytesIO
from typing import Any, Final, Unpack
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from semel.core.flow import run
from semel.core.key import Shared
from semel.engine.sync import SyncEngine
from semel.errors import UsageError
from semel.http import body_problems
from semel.http.exchange import Answer, Go, Open, Pass, ReadBody, Undone, WhoAsks
from semel.http.front import DESCRIBED_AT, Front, demand
from semel.http.kept import has_no_body
from semel.http.problem import Refused
from semel.http.request import Headers, Request, State
from semel.http.response import Response
from semel.http.route import Given, Route
from semel.http.route import Scope as ScopeRule
from semel.http.unit_of_work import UnitOfWork
from semel.http.wsgi_call import EndWithheld, Pairs, Recording, Stream

_BLOCK: Final = 64 * 1024


class IdempotencyMiddleware:
    """Runs each keyed request once.

    Args:
        app: the application.
        semel: the engine, a `Semel`.
        scope: from the request to whom the key belongs, taken from authenticated state; None means not authenticated.
            `request.state` is the environ. `SHARED` opts out.
        routes: which requests carry keys; without it, every POST and PATCH that carries one.
        described_at: where the policy document is served; None: nowhere.
        settings: what holds for every route that says nothing else; see `Route`.
    """

    def __init__(
        self,
        app: WSGIApplication,
        *,
        semel: SyncEngine,
        scope: ScopeRule | Shared,
        routes: Iterable[Route] | None = None,
        described_at: str | None = DESCRIBED_AT,
        **settings: Unpack[Given],
    ) -> None:
        engine = demand(semel, SyncEngine, "A WSGI application", "Semel")
        self.app = app
        self._front = Front(engine, scope, routes, described_at, settings)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Take a request, or hand it on."""
        method, path = environ["REQUEST_METHOD"].upper(), _decoded(environ.get("PATH_INFO") or "/")
        route = self._front.find(method, path)
        if route is not None:
            return self._exchanged(route, environ, start_response)
        document = self._front.described(method, path)
        if document is None:
            return self.app(environ, start_response)
        return _sent(document, start_response, head=method == "HEAD")

    def _exchanged(self, route: Route, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = request_of(environ, environ, environ)
        verdict = take(self._front, request, route, lambda limit: body_of(environ, limit))
        match verdict:
            case Pass():
                return self.app(environ, start_response)
            case Answer(response):
                return _sent(response, start_response)
            case Recording():
                return _Call(verdict, start_response).run(lambda given: self.app(environ, given))


def take(
    front: Front[SyncEngine], request: Request, route: Route, body: Callable[[int], bytes | None]
) -> Pass | Answer | Recording:
    """What becomes of a request; a `Recording` where the application is to run.

    Args:
        front: the settings of the application.
        request: its head.
        route: the one that was found for it.
        body: reads the body whole; gives None where it is longer than that.
    """
    unit = UnitOfWork(front, route.settings.within)

    def perform(wanted: Any) -> Any:
        match wanted:
            case WhoAsks(rule, asking):
                return _who(rule(asking))
            case ReadBody(limit):
                return body(limit)
            case Open():
                return unit.open(wanted)
        raise AssertionError(wanted)

    try:
        verdict = run(front.exchange(request, route), perform)
    except BaseException as error:
        unit.roll_back(error)
        raise
    if isinstance(verdict, Go):
        return Recording(verdict, front, unit)
    unit.roll_back(Undone("the application did not run"))
    return verdict


def _who(who: Any) -> Any:
    if not inspect.isawaitable(who):
        return who
    if inspect.iscoroutine(who):
        who.close()
    raise UsageError("scope= gave something to be awaited, and nobody awaits here; nothing ran. Give it a plain def.")


class _Call:
    """The application's own conversation with the server, looked at on the way."""

    def __init__(self, recording: Recording, start_response: StartResponse) -> None:
        self._stream = Stream(recording)
        self._start_response = start_response
        self._start: tuple[str, Pairs] | None = None
        self._write: Callable[[bytes], object] | None = None

    def run(self, call: Callable[[StartResponse], Iterable[bytes]]) -> Iterable[bytes]:
        """Call the application; gives what the server is to send once something may leave."""
        stream = self._stream
        try:
            stream.take(lambda: call(self._started))
            stream.ready()
            if stream.instead is None:
                stream.guarded(self._begin)
            if stream.instead is not None:
                return _Whole(_sent(stream.instead, self._start_response), stream.close)
        except BaseException:
            stream.closed()
            raise
        return _Whole(stream.rest(), stream.close) if stream.recording.done else stream

    def _started(self, status: str, headers: Pairs, exc_info: Any = None, /) -> Callable[[bytes], object]:
        """The `start_response` of the application."""
        if exc_info is not None and self._stream.has_body:
            raise exc_info[1].with_traceback(exc_info[2])
        if exc_info is None and self._start is not None:
            message = "start_response was called twice, the second time without exc_info"
            raise AssertionError(message)
        pairs = list(headers)
        self._stream.head(int(status[:3]), pairs)
        self._start = (status, pairs)
        return self._written

    def _written(self, chunk: bytes) -> None:
        """The `write` of the application."""
        stream = self._stream
        stream.feed(chunk)
        while stream.may_leave:
            self._begin()
            assert self._write is not None  # noqa: S101 - it has begun
            try:
                self._write(stream.leave())
            except OSError:
                stream.lose()
        if not stream.recording.done and stream.stop_if_due():
            raise EndWithheld("the answer was stopped, and its client has left")

    def _begin(self) -> None:
        """Tell the server status and headers, as late as can be: until then another answer may be sent."""
        if self._write is None:
            assert self._start is not None  # noqa: S101 - chunks before that are refused
            status, headers = self._start
            self._write = self._start_response(status, [*headers, *self._stream.marks])
            self._stream.begun = True


class _Whole:
    """Chunks that are all there, and what is to be closed after them. Its length lets servers set a Content-Length."""

    def __init__(self, chunks: list[bytes], close: Callable[[], object]) -> None:
        self._chunks = chunks
        self.close = close

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._chunks)


def _sent(response: Response, start_response: StartResponse, *, head: bool = False) -> list[bytes]:
    """Send a response of ours."""
    pairs = list(response.headers)
    without_body = has_no_body(response.status)
    if not without_body:
        pairs.append(("Content-Length", str(len(response.body))))
    start_response(f"{response.status} {_phrase(response.status)}", pairs)
    return [] if head or without_body else [response.body]


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def request_of(environ: WSGIEnvironment, state: Any, native: Any, place: tuple[str, str] | None = None) -> Request:
    """The request as rules see it. Its path holds where the application is mounted, as the client's does.

    Args:
        environ: the server's.
        state: what authentication has left.
        native: the framework's own request.
        place: mount and path below it, where a framework routes by others than the server gives.
    """
    mount, below = place or (
        _decoded(environ.get("SCRIPT_NAME", "").rstrip("/")),
        _decoded(environ.get("PATH_INFO", "")),
    )
    path = mount + below
    method, query = environ["REQUEST_METHOD"].upper(), environ.get("QUERY_STRING", "")
    return Request(method, path, query, Headers(_lines(environ)), State(state), native, b"", mount)


def _lines(environ: WSGIEnvironment) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            yield name[5:].replace("_", "-"), value
        elif name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
            yield name.replace("_", "-"), value


def _decoded(path: str) -> str:
    """A path as text. Bytes that are no UTF-8 become halves of characters, so that two paths do not become one."""
    return path.encode("latin-1").decode("utf-8", "surrogateescape")


def body_of(environ: WSGIEnvironment, limit: int) -> bytes | None:
    """The whole body, which the application finds again; None where it is over the limit.

    Raises:
        Refused: it does not say how long it is, or it was cut off.
    """
    promised = _promised(environ)
    if promised is not None and promised > limit:
        return None
    body = _read(environ["wsgi.input"], limit + 1 if promised is None else promised)
    if promised is None and len(body) > limit:
        return None
    if promised is not None and len(body) < promised:
        raise Refused(body_problems.incomplete())
    environ["wsgi.input"] = BytesIO(body)
    environ["CONTENT_LENGTH"] = str(len(body))
    environ.pop("HTTP_TRANSFER_ENCODING", None)  # it is no longer in chunks
    return body


def _promised(environ: WSGIEnvironment) -> int | None:
    """How long the body says it is; None where its end can be read."""
    in_chunks, given = "HTTP_TRANSFER_ENCODING" in environ, environ.get("CONTENT_LENGTH")
    if environ.get("wsgi.input_terminated") and (in_chunks or not given):
        return None
    if in_chunks:
        raise Refused(body_problems.length_required())
    return body_problems.length_of(given)


def _read(stream: Any, most: int) -> bytes:
    blocks: list[bytes] = []
    left = most
    try:
        while left > 0 and (block := stream.read(min(left, _BLOCK))):
            blocks.append(block)
            left -= len(block)
    except OSError as error:
        raise Refused(body_problems.incomplete()) from error
    return b"".join(blocks)
