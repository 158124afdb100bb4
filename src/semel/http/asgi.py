"""Keys for any ASGI application: the middleware, and one call of the application behind it.

- Requests without a key, and everything that is not HTTP, pass untouched.
- With a key the application is called once its whole body is there, in a task of its own: a server may cancel the task
  of a request when its client leaves, and the keyed work goes on. That task is kept from being collected until it has
  ended.
- The application sees the body whole, and no disconnect before its answer is complete.
- Its answer reaches the client unchanged. Chunks of a stream are passed on as they come; the last message is held until
  the outcome is recorded, and background work starts after that. What was passed on is never changed or sent again. In
  a transaction nothing is passed on before it commits.
- A client that has left stops nothing but a stream that `StreamLimit` ends: its outcome is recorded first, then the
  application is cancelled. The watch over it looks at nothing but the client's leave and the clock, stops an answer
  once, and ends with the answer that it watches.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Unpack

from semel.core.flow import arun
from semel.core.key import Shared
from semel.engine.async_engine import AsyncCall, AsyncEngine, AsyncSemelBase
from semel.engine.clock import Clock
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
from semel.http.request import RawHeaders, Request, State, below
from semel.http.response import Response, ResponseBuffer, has_no_body
from semel.http.route import Route, RouteOptions
from semel.http.route import Scope as ScopeRule
from semel.http.transaction import AsyncUnitOfWork, Running, running_in

_log: Final = logging.getLogger("semel")


class Tasks:
    """Keyed work that is under way."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    async def shielded(self, work: Coroutine[Any, Any, None], on_cancel: Callable[[], None]) -> None:
        """Wait for `work`; cancelling whoever waits does not stop it, but `on_cancel` is called."""
        loop = asyncio.get_running_loop()
        task, end = loop.create_task(work), loop.create_future()
        self._running.add(task)
        task.add_done_callback(functools.partial(self._ended, end))
        try:
            await end  # of its own, so that cancelling whoever waits cancels this alone
        except asyncio.CancelledError:
            on_cancel()
            raise
        task.result()

    def _ended(self, end: asyncio.Future[None], task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not end.done():
            end.set_result(None)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Whoever waits for the task gets the error; if the client has left, nobody does.
            _log.debug("a keyed request ended with %s", type(error).__name__)


class StreamWatch:
    """Watches one answer, in a task of its own, until `close`.

    Args:
        limit: when the answer is stopped.
        clock: the engine's.
        receive: the server's; the body has been read, so all that can still come is the client's leave.
        stop: stops the answer, for this reason.
    """

    def __init__(
        self,
        limit: StreamLimit,
        clock: Clock,
        receive: Callable[[], Awaitable[Any]],
        stop: Callable[[str], Awaitable[None]],
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._receive = receive
        self._stop = stop
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._tasks = [asyncio.ensure_future(self._watch()), asyncio.ensure_future(self._listen())]

    def client_left(self) -> None:
        """Nobody listens any more."""
        self._limit.client_left(self._clock.monotonic())
        self._wake.set()

    def look(self) -> None:
        """Something has changed, such as the size of the answer."""
        self._wake.set()

    def close(self) -> None:
        """The application has ended. What is being recorded is recorded all the same."""
        for task in self._tasks:
            if not self._is_stopping or task is not self._tasks[0]:
                task.cancel()

    async def finish(self) -> None:
        """Wait until an answer that is being stopped is recorded."""
        await asyncio.wait(self._tasks[:1])

    async def _listen(self) -> None:
        try:
            message = await self._receive()
        except Exception as error:  # noqa: BLE001 - a server that cannot be asked is one that does not tell
            _log.debug("the server does not tell when a client leaves: %s", type(error).__name__)
            return
        if message["type"] == "http.disconnect":
            self.client_left()

    async def _watch(self) -> None:
        while (reason := self._limit.reason(self._clock.monotonic())) is None:
            await self._clock.arest(self._wake, self._limit.due())
            self._wake.clear()
        self._is_stopping = True
        try:
            await self._stop(reason)
        except Exception:  # noqa: BLE001 - nobody waits for this task: it is told here
            _log.exception("a streamed answer was stopped because %s, and that could not be recorded", reason)


Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
SendMessage = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, SendMessage], Awaitable[None]]

_HIDDEN: Final = frozenset({"http.response.pathsend", "http.response.zerocopysend", "http.response.push"})
"""Ways to answer that would pass the body by."""
_OFTEN: Final = 1000
"""How many messages of an answer that was stopped are dropped at a stretch."""


class ClientDisconnected(Exception):
    """The client left before its request was whole."""


class Stopped(OSError):
    """Raised to an application that goes on sending after its answer was stopped: as for a client that has left."""


class NotSent(Exception):
    """Stops an application whose answer is not sent, because its transaction was rolled back. Never leaves the call."""


class Call:
    """A request on its way through the application."""

    def __init__(
        self, app: App, scope: Scope, receive: Receive, send: SendMessage, exchange: Exchange[AsyncEngine]
    ) -> None:
        self.scope = scope
        self.unit: AsyncUnitOfWork | None = None
        self.running: Running | None = None
        self._app = app
        self._receive = receive
        self._send = send
        self._exchange = exchange
        self._body: bytes | None = None
        self._given = False
        self._over = False
        self._listening: asyncio.Event | None = None
        self._gone = False
        self._watch: StreamWatch | None = None
        self._task: asyncio.Task[Any] | None = None
        self.was_stopped = False

    def perform(self, wanted: Any) -> Awaitable[Any]:
        """Do what the exchange asks for."""
        match wanted:
            case ReadBody(limit):
                return self.body(limit)
            case Open():
                if wanted.route.settings.transaction is None:
                    return self._exchange.engine.open(wanted.key, **wanted.settings())
                self.unit = AsyncUnitOfWork(self._exchange, wanted.route.settings.transaction)
                return self.unit.open(wanted)
            case ResolveScope(rule, request):
                return _maybe_await(rule(request))
        raise AssertionError(wanted)

    async def undo(self, why: BaseException) -> None:
        """Nothing ran: take the transaction of the request back, if it has one, and let go of what was read in it."""
        if self.unit is not None:
            await self.unit.roll_back(why)

    async def body(self, limit: int) -> bytes | None:
        """The whole body; None where it is over the limit.

        Raises:
            Gone: the client left in the middle of it.
        """
        for name, value in self.scope["headers"]:
            if name == b"content-length" and _is_over(value, limit):
                return None
        chunks: list[bytes] = []
        left = limit
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            chunk = message.get("body", b"")
            left -= len(chunk)
            if left < 0:
                return None
            chunks.append(chunk)
            if not message.get("more_body", False):
                self._body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
                return self._body

    async def pass_through(self) -> None:
        """Hand the request on untouched; what was read of it is given first."""
        await self._app(self.scope, self._receive if self._body is None else self._received_again, self._send)

    async def _received_again(self) -> Message:
        return await self._receive() if self._given else self._whole_body()

    async def _received(self) -> Message:
        if not self._given:
            return self._whole_body()
        if not self._over:
            self._listening = self._listening or asyncio.Event()
            await self._listening.wait()
        return {"type": "http.disconnect"}

    def _whole_body(self) -> Message:
        self._given = True
        return {"type": "http.request", "body": self._body or b"", "more_body": False}

    async def answer(self, response: Response) -> None:
        """Send this, and nothing of the application's."""
        await send_response(response, self.send)

    async def send(self, message: Message) -> None:
        """Send to the client, who may have left."""
        if self._gone:
            await asyncio.sleep(0)  # a stream that only sends would never let anybody else run
            return
        try:
            await self._send(message)
        except OSError:
            self.client_left()

    def client_left(self) -> None:
        """The client has left: nothing is sent any more."""
        self._gone = True
        if self._watch is not None:
            self._watch.client_left()

    def watch(self, recorder: ResponseRecorder, limit: StreamLimit) -> StreamWatch:
        """Watch an answer that begins to leave, until the application has ended."""
        watch = self._watch = StreamWatch(limit, self._exchange.engine.clock, self._receive, recorder.stop)
        if self._gone:
            watch.client_left()
        return watch

    @property
    def has_ended(self) -> bool:
        """Whether the application has ended."""
        return self._task is None

    def stop(self) -> None:
        """Have the application end, whatever it waits for."""
        self.was_stopped = True
        self.allow_disconnect()
        if self._task is not None:
            self._task.cancel()

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Around the application, in its task: what `stop` cancels."""
        self._task = asyncio.current_task()
        try:
            yield
        finally:
            self._task = None

    async def run(self, run_app: RunApp) -> None:
        """Call the application, and see its answer through."""
        call = run_app.call
        assert isinstance(call, AsyncCall)  # noqa: S101 - the engine is of this colour
        recorder = ResponseRecorder(self, run_app, self._exchange)
        try:
            if self.unit is None:
                with call.current():
                    await self._called(recorder, call)
            else:
                await self._run_in(self.unit, recorder, call)
        finally:
            self.allow_disconnect()
        if recorder.instead is not None:
            await self.answer(recorder.instead)

    async def _run_in(self, unit: AsyncUnitOfWork, recorder: ResponseRecorder, call: AsyncCall[Response]) -> None:
        try:
            with running_in(unit.connection) as self.running, call.current():
                await self._called(recorder, call)
        except BaseException as error:
            await unit.roll_back(error)
            raise
        await unit.roll_back(Rollback("the application ended without an answer"))  # unless it is decided by now

    async def _called(self, recorder: ResponseRecorder, call: AsyncCall[Response]) -> None:
        try:
            with self.stoppable():
                await self._app(self._shown(), self._received, recorder.send)
            if not recorder.run_app.is_settled:
                await recorder.failed(NoAnswer("the application ended without a complete answer"))
        except NotSent:
            return  # the application was stopped at its answer
        except Exception as error:
            if recorder.stopped is not None:
                await self.end_stopped(recorder)
            elif recorder.run_app.is_settled:
                raise  # what it does after its answer is its own business
            else:
                await recorder.failed(error)
        except BaseException as error:
            if recorder.stopped is not None:
                take_back_cancel()
                await self.end_stopped(recorder)
                return
            if not recorder.run_app.is_settled:
                await call.abandon(error)
            raise

    async def end_stopped(self, recorder: ResponseRecorder) -> None:
        """The application has ended because its answer was stopped: see to it that this is recorded."""
        if self._watch is not None:
            await self._watch.finish()
        if not recorder.run_app.is_settled:
            await recorder.failed(NoAnswer(f"the answer was stopped: {recorder.stopped}"))

    def _shown(self) -> Scope:
        """The scope, without the ways to answer that cannot be looked at."""
        extensions = self.scope.get("extensions")
        if not extensions or _HIDDEN.isdisjoint(extensions):
            return self.scope
        shown = {name: value for name, value in extensions.items() if name not in _HIDDEN}
        return {**self.scope, "extensions": shown}

    def allow_disconnect(self) -> None:
        """The answer is complete: from now on the application may learn that the client is gone."""
        self._over = True
        if self._listening is not None:
            self._listening.set()
        if self._watch is not None:
            self._watch.close()


class ResponseRecorder:
    """The answer of the application, as it comes.

    Attributes:
        run_app: the open call, which knows whether its outcome was told to the engine.
        instead: what is sent and not the answer, where nothing of it has left yet.
        error: what was raised, where that is seen and a handler of the framework makes the answer of it.
        stopped: why the answer was stopped before its end, where it was.
    """

    def __init__(self, call: Call, run_app: RunApp, exchange: Exchange[AsyncEngine]) -> None:
        self.run_app = run_app
        self.instead: Response | None = None
        self.error: Exception | None = None
        self.stopped: str | None = None
        self._call = call
        self._exchange = exchange
        self._held: list[Message] = []
        self._holds_all = run_app.route.settings.transaction is not None
        self._start: Message | None = None
        self._headers: list[tuple[str, str]] = []
        self._begun = False
        self._buffer = ResponseBuffer(run_app.route.settings.max_response)
        self._watch: StreamWatch | None = None
        self._ignored = 0

    async def send(self, message: Message) -> None:
        """What the application sends.

        Raises:
            Stopped: the answer was stopped before its end, and the application goes on although it was cancelled.
        """
        if self.stopped is not None:
            await self._ignore(self.stopped)
            return
        if self.run_app.is_settled:
            if self.instead is None:
                await self._call.send(message)
            return
        kind = message["type"]
        if kind == "http.response.start":
            self._start = message
            self._headers = _texts(message)
            self._buffer.begin(message["status"], self._headers)
            # Most answers are whole in this turn of the loop; the others may have to be stopped.
            asyncio.get_running_loop().call_soon(self._look)
        elif kind == "http.response.body":
            self._buffer.add(message.get("body", b""))
        self._held.append(message)
        if self._is_last(kind, message):
            await self._complete()
        elif kind == "http.response.body":
            self._look()
            if not self._must_hold():
                await self._flush()

    def _look(self) -> None:
        """The answer has begun and has not ended: it may have to be stopped."""
        if self.run_app.is_settled or self._call.has_ended:
            return
        if self._watch is None:
            self._watch = self._call.watch(self, self._exchange.limit(self.run_app, self._buffer))
        elif self._buffer.is_over_limit:
            self._watch.look()

    async def stop(self, reason: str) -> None:
        """End the answer where it is: recorded as carried out and not kept, then the application is cancelled."""
        if self.run_app.is_settled:
            return
        self.stopped = reason
        self._held = []
        _log.warning("%s: the streamed answer was stopped: %s", self.run_app.operation, reason)
        try:
            if not self._holds_all:  # a transaction is taken back by the task that is in it
                flow = self._exchange.on_response(self.run_app, self._buffer.cut_off(), self.error)
                await arun(flow, self.run_app.perform)
        finally:
            await asyncio.sleep(0)  # whoever is in the middle of sending goes on to its next chunk first
            self._call.stop()

    async def _ignore(self, why: str) -> None:
        """Drop a message of an answer that was stopped.

        The cancellation is to reach the application where it makes the next chunk, so that its own `finally` runs: an
        error here, or a wait, would leave a generator behind that nobody closes.
        """
        self._ignored += 1
        if self._ignored % _OFTEN:
            return
        if self._call.was_stopped:
            raise Stopped(f"the answer was stopped: {why}")
        await asyncio.sleep(0)  # an application that waits for nothing but this would let nobody record its end

    def _must_hold(self) -> bool:
        """Whether nothing may leave yet."""
        return self._holds_all or self._buffer.is_complete

    def _is_last(self, kind: str, message: Message) -> bool:
        if kind == "http.response.body":
            trailers = self._start is not None and self._start.get("trailers")
            return not message.get("more_body", False) and not trailers
        return kind == "http.response.trailers" and not message.get("more_trailers", False)

    async def _flush(self) -> None:
        """Pass on what was held."""
        held, self._held = self._held, []
        for message in held:
            if message["type"] == "http.response.start":
                self._begun = True
                message = _with_headers(message, self.run_app.marks)  # noqa: PLW2901 - the same message, with headers beside
            await self._call.send(message)

    async def _complete(self) -> None:
        assert self._start is not None  # noqa: S101 - servers refuse a body before its start
        flow = self._exchange.on_response(self.run_app, self._buffer.whole(), self.error)
        await self._ended(await arun(flow, self.run_app.perform))
        if self.instead is not None and self._call.unit is not None:
            raise NotSent("what the application did is rolled back, so its background work must not run either")

    async def failed(self, error: Exception) -> None:
        """The application raised; so does this, unless somebody else's outcome is there to be sent."""
        await self._ended(await arun(self._exchange.on_error(self.run_app, error), self.run_app.perform))

    async def _ended(self, verdict: Forward | Respond) -> None:
        match verdict:
            case Forward(_, undo):
                instead = None if self._call.unit is None else await self._decide(self._call.unit, undo)
                if instead is not None:
                    self._replace(instead.response)
                else:
                    await self._flush()
            case Respond(response):
                if self._call.unit is not None:
                    await self._decide(self._call.unit, Rollback("another answer is sent"))
                self._replace(response)
        self._call.allow_disconnect()

    def _replace(self, response: Response) -> None:
        self._held = []
        # Once the application's own answer has begun there is only its end to withhold.
        self.instead = None if self._begun else response

    async def _decide(self, unit: AsyncUnitOfWork, undo: Exception | None) -> Respond | None:
        """Commit the transaction of the request, or roll it back, before anything is sent."""
        if self._call.running is not None:
            self._call.running.end()
        if undo is None:
            return await unit.commit(self.run_app)
        await unit.roll_back(undo)
        return None


def take_back_cancel() -> None:
    """The task of the application was cancelled by its own answer: nobody else is to take it for cancelled."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


async def _maybe_await(who: Any) -> Any:
    """What a rule gave, which may be of either colour."""
    return await who if inspect.isawaitable(who) else who


def _is_over(length: bytes, limit: int) -> bool:
    shown = length.lstrip(b"0")  # first by its digits: a number may be endless
    return length.isdigit() and (len(shown) > len(str(limit)) or int(shown or b"0") > limit)


def _texts(start: Message) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", ())]


def _with_headers(start: Message, marks: Sequence[tuple[str, str]]) -> Message:
    if not marks:
        return start
    extra = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in marks]
    return {**start, "headers": [*start.get("headers", ()), *extra]}


async def send_response(response: Response, send: SendMessage, *, head: bool = False) -> None:
    """Send a response of ours."""
    pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    if not has_no_body(response.status):
        pairs.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": pairs})
    await send({"type": "http.response.body", "body": b"" if head else response.body})


class IdempotencyMiddleware:
    """Runs each keyed request once.

    Args:
        app: the application.
        semel: the engine, an `AsyncSemel`.
        scope: from the request to whom the key belongs, taken from authenticated state; None means not authenticated.
            `SHARED` opts out.
        routes: which requests carry keys; without it, every POST and PATCH that carries one.
        policy_path: where the policy document is served; None: nowhere.
        settings: what holds for every route that says nothing else; see `Route`.
    """

    def __init__(
        self,
        app: App,
        *,
        semel: AsyncSemelBase,
        scope: ScopeRule | Shared,
        routes: Iterable[Route] | None = None,
        policy_path: str | None = POLICY_PATH,
        **settings: Unpack[RouteOptions],
    ) -> None:
        engine = demand(semel, AsyncSemelBase, "An ASGI application", "AsyncSemel")
        self.app = app
        self._exchange = Exchange(engine, scope, routes, policy_path, settings)
        self._tasks = Tasks()
        self._methods = self._exchange.routes.methods
        self._find = self._exchange.routes.find
        self._policy_path = policy_path or "\0"  # the end of no path

    async def __call__(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        """Take a request, or hand it on."""
        # In the order of how often it is so: what carries no key pays for no more than these comparisons.
        if scope["type"] == "http":
            method = scope["method"].upper()  # some servers leave it as it was sent, and some frameworks do not mind
            if method in self._methods:
                route = self._find(method, _below(scope))
                if route is not None:
                    await self._handle(route, Call(self.app, scope, receive, send, self._exchange))
                    return
            elif scope["path"].endswith(self._policy_path):
                document = self._exchange.policy_document(method, _below(scope))
                if document is not None:
                    await send_response(document, send, head=method == "HEAD")
                    return
        await self.app(scope, receive, send)

    async def _handle(self, route: Route, call: Call) -> None:
        try:
            verdict = await arun(self._exchange.handle(_request(call.scope), route), call.perform)
        except ClientDisconnected:
            return  # the client left before its request was whole: nothing ran, and nobody is there to be told
        except BaseException as error:
            await call.undo(error)
            raise
        match verdict:
            case PassThrough():
                await call.pass_through()
            case Respond(response):
                await call.undo(Rollback("another answer is sent"))
                await call.answer(response)
            case RunApp():
                await self._tasks.shielded(call.run(verdict), call.client_left)


def _below(scope: Scope) -> str:
    mount = scope.get("root_path")
    return below(scope["path"], mount) if mount else scope["path"]


def _request(scope: Scope) -> Request:
    query = scope.get("query_string", b"").decode("latin-1")
    headers, mount = RawHeaders(scope["headers"]), scope.get("root_path", "")
    return Request(scope["method"].upper(), scope["path"], query, headers, _Left(scope), scope, b"", mount)


class _Left(State):
    """What authentication has left: Starlette's `request.state`, and `request.user` and `request.auth` beside it."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def _values(self) -> Mapping[str, Any]:  # type: ignore[override]  # put together only where a rule asks
        known = {name: self._scope[name] for name in ("user", "auth", "session") if name in self._scope}
        return {**known, **self._scope.get("state", {})}
