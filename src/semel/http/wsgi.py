"""One keyed call of an application that blocks: its answer looked at on the way, and recorded once.

Invariants: chunks leave as they come, but nothing that a client could take for the end leaves before the outcome is
recorded. What has left is never changed or sent again. A client that has left stops nothing but a stream that
`StreamLimit` ends: its outcome is recorded first, then its chunks are closed. In a transaction nothing leaves before it
is committed or taken back.

Keys for any WSGI application.

What always holds: requests of no route and requests without a key pass untouched. With a key the application is called
once its whole body is there; an upload that was cut off runs nothing. Its answer reaches the client unchanged; the last
of it leaves only after the outcome was recorded, and what the application does in `close()` comes after that.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from io import BytesIO
from typing import Any, Final, TypeVar, Unpack
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from semel.core.flow import Flow, run
from semel.core.key import Shared
from semel.engine.sync_engine import SyncCall, SyncEngine, SyncSemelBase
from semel.errors import UsageError
from semel.http import problem
from semel.http.exchange import (
    POLICY_PATH,
    Exchange,
    Forward,
    NoAnswer,
    Open,
    PassThrough,
    ReadBody,
    ResolveScope,
    Respond,
    Rollback,
    RunApp,
    StreamLimit,
    demand,
)
from semel.http.problem import Refused
from semel.http.request import Headers, Request, State
from semel.http.response import Answered, Response, ResponseBuffer, has_no_body
from semel.http.route import Route, RouteOptions
from semel.http.route import Scope as ScopeRule
from semel.http.transaction import UnitOfWork, running_in

_log: Final = logging.getLogger("semel")
T = TypeVar("T")
Pairs = list[tuple[str, str]]


class EndWithheld(Exception):
    """The answer had begun to leave when it turned out that it does not count, or has no end: it is broken off."""


class SyncRecorder:
    """The open call behind a request, and its transaction where it has one: settled once, both together."""

    def __init__(self, run_app: RunApp, exchange: Exchange[SyncEngine], unit: UnitOfWork) -> None:
        opened = run_app.call
        assert isinstance(opened, SyncCall)  # noqa: S101 - the engine is of this colour
        self.settings = run_app.route.settings
        self.marks = run_app.marks
        self._run_app = run_app
        self._opened: SyncCall[Response] = opened
        self._exchange = exchange
        self._unit = unit

    @property
    def done(self) -> bool:
        """Whether the engine was told what came of it."""
        return self._run_app.is_settled

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Around code of the application: it finds the current attempt, and the transaction."""
        if self.done:
            yield  # recorded and decided: there is no attempt and no transaction any more
            return
        with running_in(self._unit.connection), self._opened.current():
            yield

    @property
    def operation(self) -> str:
        """What is done, as the record names it."""
        return self._run_app.operation

    def limit(self, buffer: ResponseBuffer) -> StreamLimit:
        """When the answer, which begins to leave now, is stopped before its end."""
        return self._exchange.limit(self._run_app, buffer)

    def now(self) -> float:
        """The instant, by the engine's clock."""
        return self._exchange.engine.clock.monotonic()

    def on_response(self, answer: Answered, error: Exception | None = None) -> Forward | Respond:
        """The application has answered: recorded, then committed, or taken back if nothing is to stay of it.

        Args:
            answer: what it answered.
            error: what its framework made the answer of, if it was raised.
        """
        try:
            return self._settle(self._exchange.on_response(self._run_app, answer, error))
        except Exception as failure:
            if self.done:
                raise
            return Respond(self.on_error(failure))  # an answer that cannot even be looked at is none

    def on_error(self, error: Exception) -> Response:
        """The application has raised; so does this, unless somebody else's outcome is there to be sent."""
        verdict = self._settle(self._exchange.on_error(self._run_app, error))
        if isinstance(verdict, Respond):
            return verdict.response
        raise error

    def abandon(self, error: BaseException) -> None:
        """The application was cut off."""
        self._run_app.is_settled = True
        try:
            self._opened.abandon(error)
        finally:
            self._unit.roll_back(error)

    def _settle(self, flow: Flow[Forward | Respond]) -> Forward | Respond:
        try:
            verdict = run(flow, self._run_app.perform)
        except BaseException as error:
            if self.done:
                self._unit.roll_back(error)
            elif not isinstance(error, Exception):
                self.abandon(error)
            raise
        match verdict:
            case Forward(undo=None):
                return self._unit.commit(self._run_app) or verdict
            case Forward(undo=Exception() as undo):
                self._unit.roll_back(undo)
            case _:
                self._unit.roll_back(Rollback("another answer is sent"))
        return verdict


class Stream(Iterator[bytes]):
    """The chunks of an answer, for a server to take: each as soon as it may leave, and the end once it is recorded.

    Attributes:
        instead: what is sent and not the answer, where nothing of it has left yet.
        marks: headers to be added.

    Args:
        recorder: the call.
        holds_all: whether nothing leaves before all of it is recorded.
        error: what the framework made the answer of, if it was raised.
    """

    def __init__(self, recorder: SyncRecorder, *, holds_all: bool = False, error: Exception | None = None) -> None:
        self.recorder = recorder
        self.instead: Response | None = None
        self.marks = recorder.marks
        self.begun = False
        self._head: tuple[int, Pairs] | None = None
        self._holds_all = holds_all or recorder.settings.transaction is not None
        self._chunks: Iterator[bytes] = iter(())
        self._close: Callable[[], object] | None = None
        self._held: deque[bytes] = deque()
        self._buffer = ResponseBuffer(recorder.settings.max_response)
        self._error = error
        self._gone = False
        self._is_whole = False
        self._limit: StreamLimit | None = None

    @property
    def has_body(self) -> bool:
        """Whether the application has given any of it, whether or not it has left."""
        return self._buffer.seen > 0

    def head(self, status: int, headers: Pairs) -> None:
        """The answer has this status and these headers."""
        self._head = (status, headers)
        self._buffer.begin(status, headers)

    def take(self, call: Callable[[], Iterable[bytes]], close: Callable[[], object] | None = None) -> None:
        """Call what gives the chunks; `close` is called once at the end, the `close` of the chunks where none is given.

        Raises:
            Exception: what the call raises, unless somebody else's outcome is there to be sent.
        """
        self.guarded(lambda: self._start_chunks(call(), close))

    def _start_chunks(self, chunks: Iterable[bytes], close: Callable[[], object] | None) -> None:
        self._close = close or getattr(chunks, "close", None)
        self._is_whole = isinstance(chunks, list | tuple)
        self._holds_all = self._holds_all or self._is_whole
        self._chunks = iter(chunks)

    def feed(self, chunk: bytes) -> None:
        """The next chunk of the answer."""
        if not isinstance(chunk, bytes):
            raise TypeError(f"a body is made of bytes, not of {type(chunk).__name__}")
        if not chunk:
            return  # with it nothing leaves, and until something has left the head may be replaced
        if self._head is None:
            raise NoAnswer("the application gave a body before its status")
        if not self._gone:
            self._held.append(chunk)
        self._buffer.add(chunk)
        if self._limit is None and not self._is_whole:
            self._limit = self.recorder.limit(self._buffer)
            if self._gone:
                self._limit.client_left(self.recorder.now())

    def ready(self) -> None:
        """Go on until something may leave, or until all is recorded or stopped."""
        while not self.recorder.done and not self.may_leave:
            if self.stop_if_due():
                return
            if self.guarded(self._pull):
                self._ended()

    def stop_if_due(self) -> bool:
        """Stop the answer where it has to be: recorded as carried out and not kept, then its chunks are closed.

        Raises:
            EndWithheld: somebody listens, who must not take it for the end.
        """
        reason = None if self._limit is None else self._limit.reason(self.recorder.now())
        if reason is None:
            return False
        stopped = EndWithheld(f"the answer was stopped: {reason}")
        _log.warning("%s: the streamed answer was stopped: %s", self.recorder.operation, reason)
        if self.recorder.settings.transaction is not None:
            self._replaced(self.recorder.on_error(stopped), stopped)
            return True
        self.recorder.on_response(self._buffer.cut_off(), self._error)
        self._held.clear()
        self.closed()
        if not self._gone:
            raise stopped
        return True

    @property
    def may_leave(self) -> bool:
        """Whether a chunk may leave now: a client that has all the bytes it was promised takes them for the end."""
        if self.recorder.done:
            return bool(self._held)
        return bool(self._held) and not self._holds_all and not self._buffer.is_complete

    def leave(self) -> bytes:
        """The chunk that may leave now."""
        self.begun = True
        return self._held.popleft()

    def rest(self) -> list[bytes]:
        """All that is still held, once it is recorded."""
        held, self._held = self._held, deque()
        return [] if self._gone else list(held)

    def __next__(self) -> bytes:
        self.begun = True  # whoever asks has sent the head
        self.ready()
        if not self._held or self._gone:
            raise StopIteration
        return self.leave()

    def close(self) -> None:
        """The server asks for no more. Where the client has left, the answer is brought to its end all the same.

        Raises:
            Exception: what the application raises on the way.
        """
        self.lose()
        try:
            self.ready()
        finally:
            self.closed()

    def lose(self) -> None:
        """Nobody takes the chunks any more: from now on they are only kept."""
        self._gone = self._holds_all = True
        if self._limit is not None:
            self._limit.client_left(self.recorder.now())

    def closed(self) -> None:
        """Close what gave the chunks, once."""
        close, self._close = self._close, None
        if close is not None:
            close()

    def _pull(self) -> bool:
        """Take the next chunk; True where there is none."""
        try:
            chunk = next(self._chunks)
        except StopIteration:
            if self._head is None:
                raise NoAnswer("the application ended without an answer") from None
            return True
        self.feed(chunk)
        return False

    def guarded(self, work: Callable[[], T]) -> T | None:
        """Do work of the application: what it raises is recorded, and raised again unless `instead` is to be sent."""
        try:
            with self.recorder.inside():
                return work()
        except Exception as error:
            if self.recorder.done:
                raise
            self._replaced(self.recorder.on_error(error), error)
        except BaseException as error:
            if not self.recorder.done:
                self.recorder.abandon(error)
            raise
        return None

    def _ended(self) -> None:
        assert self._head is not None  # noqa: S101 - it was looked for
        verdict = self.recorder.on_response(self._buffer.whole(), self._error)
        if isinstance(verdict, Respond):
            self._replaced(verdict.response, EndWithheld("this answer does not count; what was sent is broken off"))

    def _replaced(self, response: Response, error: Exception) -> None:
        self._held.clear()
        if not self.begun:
            self.instead = response
        elif not self._gone:
            raise error


_BLOCK: Final = 64 * 1024


class IdempotencyMiddleware:
    """Runs each keyed request once.

    Args:
        app: the application.
        semel: the engine, a `Semel`.
        scope: from the request to whom the key belongs, taken from authenticated state; None means not authenticated.
            `request.state` is the environ. `SHARED` opts out.
        routes: which requests carry keys; without it, every POST and PATCH that carries one.
        policy_path: where the policy document is served; None: nowhere.
        settings: what holds for every route that says nothing else; see `Route`.
    """

    def __init__(
        self,
        app: WSGIApplication,
        *,
        semel: SyncSemelBase,
        scope: ScopeRule | Shared,
        routes: Iterable[Route] | None = None,
        policy_path: str | None = POLICY_PATH,
        **settings: Unpack[RouteOptions],
    ) -> None:
        engine = demand(semel, SyncSemelBase, "A WSGI application", "Semel")
        self.app = app
        self._exchange = Exchange(engine, scope, routes, policy_path, settings)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Take a request, or hand it on."""
        method, path = environ["REQUEST_METHOD"].upper(), _decoded(environ.get("PATH_INFO") or "/")
        route = self._exchange.find(method, path)
        if route is not None:
            return self._handle(route, environ, start_response)
        document = self._exchange.policy_document(method, path)
        if document is None:
            return self.app(environ, start_response)
        return _sent(document, start_response, head=method == "HEAD")

    def _handle(self, route: Route, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = request_of(environ, environ, environ)
        verdict = take(self._exchange, request, route, lambda limit: body_of(environ, limit))
        match verdict:
            case PassThrough():
                return self.app(environ, start_response)
            case Respond(response):
                return _sent(response, start_response)
            case SyncRecorder():
                return _Call(verdict, start_response).run(lambda given: self.app(environ, given))


def take(
    exchange: Exchange[SyncEngine], request: Request, route: Route, body: Callable[[int], bytes | None]
) -> PassThrough | Respond | SyncRecorder:
    """What becomes of a request; a `SyncRecorder` where the application is to run.

    Args:
        exchange: the settings of the application.
        request: its head.
        route: the one that was found for it.
        body: reads the body whole; gives None where it is longer than that.
    """
    unit = UnitOfWork(exchange, route.settings.transaction)

    def perform(wanted: Any) -> Any:
        match wanted:
            case ResolveScope(rule, asking):
                return _who(rule(asking))
            case ReadBody(limit):
                return body(limit)
            case Open():
                return unit.open(wanted)
        raise AssertionError(wanted)

    try:
        verdict = run(exchange.handle(request, route), perform)
    except BaseException as error:
        unit.roll_back(error)
        raise
    if isinstance(verdict, RunApp):
        return SyncRecorder(verdict, exchange, unit)
    unit.roll_back(Rollback("the application did not run"))
    return verdict


def _who(who: Any) -> Any:
    if not inspect.isawaitable(who):
        return who
    if inspect.iscoroutine(who):
        who.close()
    message = "scope= or about= gave something to be awaited, and nobody awaits here; nothing ran. Give it a plain def."
    raise UsageError(message)


class _Call:
    """The application's own conversation with the server, looked at on the way."""

    def __init__(self, recorder: SyncRecorder, start_response: StartResponse) -> None:
        self._stream = Stream(recorder)
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
        return _Whole(stream.rest(), stream.close) if stream.recorder.done else stream

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
        if not stream.recorder.done and stream.stop_if_due():
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
        raise Refused(problem.incomplete())
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
        raise Refused(problem.length_required())
    return problem.length_of(given)


def _read(stream: Any, most: int) -> bytes:
    blocks: list[bytes] = []
    left = most
    try:
        while left > 0 and (block := stream.read(min(left, _BLOCK))):
            blocks.append(block)
            left -= len(block)
    except OSError as error:
        raise Refused(problem.incomplete()) from error
    return b"".join(blocks)
