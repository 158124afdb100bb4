"""One call of an ASGI application: its body read ahead, its answer looked at on the way.

What always holds: the application sees the body whole, and no disconnect before its answer is complete. Chunks of a
stream are passed on as they come; the last message is held until the outcome is recorded. What was passed on is never
changed or sent again; a client that has left stops nothing. In a transaction nothing is passed on before it commits.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import cached_property
from typing import Any, Final

from semel.core.flow import Flow, arun
from semel.engine.aio import AsyncEngine
from semel.engine.opened import AsyncOpened
from semel.http.exchange import Answer, Go, NoAnswer, Open, ReadBody, Send, Undone, WhoAsks, settlement
from semel.http.front import Front
from semel.http.kept import Kept, has_no_body
from semel.http.response import Response
from semel.http.transaction import Running, running_in

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
SendMessage = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, SendMessage], Awaitable[None]]

_HIDDEN: Final = frozenset({"http.response.pathsend", "http.response.zerocopysend", "http.response.push"})
"""Ways to answer that would pass the body by."""


class Gone(Exception):
    """The client left before its request was whole."""


class Call:
    """A request on its way through the application."""

    def __init__(self, app: App, scope: Scope, receive: Receive, send: SendMessage, front: Front[AsyncEngine]) -> None:
        self.scope = scope
        self.transaction: Any = None
        self.running: Running | None = None
        self._app = app
        self._receive = receive
        self._send = send
        self._front = front
        self._body: bytes | None = None
        self._given = False
        self._over = False
        self._listening: asyncio.Event | None = None
        self._gone = False

    @cached_property
    def stack(self) -> AsyncExitStack:
        """What holds the transaction of the request, where it has one."""
        return AsyncExitStack()

    def perform(self, wanted: Any) -> Awaitable[Any]:
        """Do what the exchange asks for."""
        match wanted:
            case ReadBody(limit):
                return self.body(limit)
            case Open():
                within = wanted.route.settings.within
                if within is None:
                    return self._front.engine.open(wanted.key, **wanted.settings())
                return self._open_in(within(wanted.request), wanted)
            case WhoAsks(rule, request):
                return _said(rule(request))
        raise AssertionError(wanted)

    async def _open_in(self, transaction: AbstractAsyncContextManager[Any], wanted: Open) -> AsyncOpened[Response]:
        self.transaction = await self.stack.enter_async_context(transaction)
        return await self._front.engine.within(self.transaction).open(wanted.key, **wanted.settings())

    async def undo(self, why: BaseException) -> None:
        """Nothing ran: take the transaction of the request back, if it has one, and let go of what was read in it."""
        if self.transaction is not None:
            await self.stack.__aexit__(type(why), why, why.__traceback__)

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
                raise Gone
            chunk = message.get("body", b"")
            left -= len(chunk)
            if left < 0:
                return None
            chunks.append(chunk)
            if not message.get("more_body", False):
                self._body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
                return self._body

    async def passed_on(self) -> None:
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
            return
        try:
            await self._send(message)
        except OSError:
            self._gone = True

    async def run(self, going: Go) -> None:
        """Call the application, and see its answer through."""
        opened = going.opened
        assert isinstance(opened, AsyncOpened)  # noqa: S101 - the engine is of this colour
        answering = Answering(self, going, opened, self._front)
        try:
            if self.transaction is None:
                with opened.current():
                    await self._called(answering, opened)
            else:
                async with self.stack:
                    with running_in(self.transaction) as self.running, opened.current():
                        await self._called(answering, opened)
        finally:
            self.over()
        if answering.instead is not None:
            await self.answer(answering.instead)

    async def _called(self, answering: Answering, opened: AsyncOpened[Response]) -> None:
        try:
            await self._app(self._shown(), self._received, answering.send)
            if not answering.settled:
                await answering.failed(NoAnswer("the application ended without a complete answer"))
        except Exception as error:
            if answering.settled:
                raise  # what it does after its answer is its own business
            await answering.failed(error)
        except BaseException as error:
            if not answering.settled:
                await opened.abandon(error)
            raise

    def _shown(self) -> Scope:
        """The scope, without the ways to answer that cannot be looked at."""
        extensions = self.scope.get("extensions")
        if not extensions or _HIDDEN.isdisjoint(extensions):
            return self.scope
        shown = {name: value for name, value in extensions.items() if name not in _HIDDEN}
        return {**self.scope, "extensions": shown}

    def over(self) -> None:
        """The answer is complete: from now on the application may learn that the client is gone."""
        self._over = True
        if self._listening is not None:
            self._listening.set()


class Answering:
    """The answer of the application, as it comes.

    Attributes:
        settled: whether its outcome was told to the engine.
        instead: what is sent and not the answer, where nothing of it has left yet.
        error: what was raised, where that is seen and a handler of the framework makes the answer of it.
    """

    def __init__(self, call: Call, going: Go, opened: AsyncOpened[Response], front: Front[AsyncEngine]) -> None:
        self.settled = False
        self.instead: Response | None = None
        self.error: Exception | None = None
        self._call = call
        self._going = going
        self._opened = opened
        self._front = front
        self._held: list[Message] = []
        self._holds_all = going.route.settings.within is not None
        self._start: Message | None = None
        self._headers: list[tuple[str, str]] = []
        self._begun = False
        self._kept = Kept(going.route.settings.max_response)

    async def send(self, message: Message) -> None:
        """What the application sends."""
        if self.settled:
            if self.instead is None:
                await self._call.send(message)
            return
        kind = message["type"]
        if kind == "http.response.start":
            self._start = message
            self._headers = _texts(message)
            self._kept.begin(message["status"], self._headers)
        elif kind == "http.response.body":
            self._kept.add(message.get("body", b""))
        self._held.append(message)
        if self._is_last(kind, message):
            await self._complete()
        elif kind == "http.response.body" and not self._must_hold():
            await self._flush()

    def _must_hold(self) -> bool:
        """Whether nothing may leave yet."""
        return self._holds_all or self._kept.is_complete

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
                message = _marked(message, self._going.marks)  # noqa: PLW2901 - the same message, with headers beside
            await self._call.send(message)

    async def _complete(self) -> None:
        start = self._start
        assert start is not None  # noqa: S101 - servers refuse a body before its start
        flow = self._front.answered(self._going, start["status"], self._headers, self._kept.body, self.error)
        await self._ended(await self._recorded(flow))

    async def failed(self, error: Exception) -> None:
        """The application raised; so does this, unless somebody else's outcome is there to be sent."""
        await self._ended(await self._recorded(self._front.raised(self._going, error)))

    async def _recorded(self, flow: Flow[Send | Answer]) -> Send | Answer:
        settle = settlement(self._opened)

        def perform(wanted: Any) -> Any:
            self.settled = True  # not before: whatever fails until here is still the application's to answer for
            return settle(wanted)

        return await arun(flow, perform)

    async def _ended(self, verdict: Send | Answer) -> None:
        match verdict:
            case Send(_, undo):
                if self._holds_all:
                    await self._decide(undo)
                await self._flush()
            case Answer(response):
                self._held = []
                # Once the application's own answer has begun there is only its end to withhold.
                self.instead = None if self._begun else response
                if self._holds_all:
                    await self._decide(Undone("another answer is sent"))
        self._call.over()

    async def _decide(self, undo: Exception | None) -> None:
        """Commit the transaction of the request, or take it back, before anything is sent."""
        if self._call.running is not None:
            self._call.running.end()
        if undo is None:
            await self._call.stack.aclose()
        else:
            await self._call.stack.__aexit__(type(undo), undo, undo.__traceback__)


async def _said(who: Any) -> Any:
    """What a rule gave, which may be of either colour."""
    return await who if inspect.isawaitable(who) else who


def _is_over(length: bytes, limit: int) -> bool:
    shown = length.lstrip(b"0")  # first by its digits: a number may be endless
    return length.isdigit() and (len(shown) > len(str(limit)) or int(shown or b"0") > limit)


def _texts(start: Message) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", ())]


def _marked(start: Message, marks: Sequence[tuple[str, str]]) -> Message:
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
