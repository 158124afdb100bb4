"""One keyed request that is awaited: claimed, answered by its view, settled. `sync_call.py` is its twin.

What always holds: from the claim on, it runs in a task that no disconnecting client stops, and what the view answered
is recorded before it is given to the server. There is no transaction here: Django has none that is awaited.

A stream that is iterated in an event loop. `sync_stream.py` is its twin.

Invariants: chunks pass on as they come, and the iteration ends after the outcome is recorded. A client that has left
stops nothing but a stream that `StreamLimit` ends: what is left is worked off. Iterators that are not awaited are taken
chunk by chunk in the request's thread, so that the loop goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from msgspec.structs import replace

from semel.core.flow import Flow, arun
from semel.engine.async_engine import AsyncCall, AsyncEngine
from semel.engine.clock import Clock
from semel.http.django.adapters import (
    add,
    body_of,
    ends_with_head,
    is_unrendered,
    pairs_of,
    rendered,
    request_of,
    response_of,
)
from semel.http.django.request_state import Carried, carry
from semel.http.django.shield import to_the_end
from semel.http.exchange import (
    Answer,
    Front,
    Go,
    Open,
    ReadBody,
    Send,
    StreamLimit,
    Undone,
    WhoAsks,
    gather,
    settlement,
)
from semel.http.response import Answered, Kept, Response, kept_whole
from semel.http.route import Route

_log: Final = logging.getLogger("semel")


class AsyncSettled(Protocol):
    """The call that a stream belongs to."""

    def current(self) -> AbstractContextManager[None]:
        """Inside, code of the view finds its attempt."""

    @property
    def operation(self) -> str:
        """What is done, as the record names it."""

    @property
    def clock(self) -> Clock:
        """The engine's."""

    def limit(self, kept: Kept) -> StreamLimit:
        """When the answer, which begins to leave now, is stopped before its end."""

    async def recorded(self, response: Any, answer: Answered) -> Send | Answer:
        """Settle with what the view answered."""

    async def raised(self, error: Exception) -> Send | Answer:
        """Settle with what the view raised, and raise it."""

    async def abandon(self, error: BaseException) -> None:
        """The view was cut off."""


class Stopped(Exception):
    """Ends an answer where it is."""


class AsyncStream:
    """The chunks of a response, looked at as they pass. Puts itself in the place of its stream."""

    def __init__(self, call: AsyncSettled, response: Any, most: int) -> None:
        self._call = call
        self._response = response
        self._is_async = response.is_async
        self._source: Any = response._iterator  # noqa: SLF001 - the chunks as the view gave them, to be closed
        self._chunks: Any = response.streaming_content
        self._kept = Kept(most)
        self._kept.begin(response.status_code, pairs_of(response))
        self._limit = call.limit(self._kept)
        self._is_left = False
        self._wake = asyncio.Event()
        self._held: list[bytes] = []
        self._close = response.close
        self._passing = self._passed_on()
        self._over = False
        response.streaming_content = self
        response.close = self._closed

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await to_the_end(self._step(), self.client_left)
        except asyncio.CancelledError:
            await to_the_end(self.work_off())
            raise
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def _step(self) -> bytes | None:
        return await anext(self._passing, None)

    def client_left(self) -> None:
        """Nobody listens any more."""
        self._is_left = True
        self._limit.client_left(self._call.clock.monotonic())
        self._wake.set()

    async def work_off(self) -> None:
        """Take the rest, which nobody asks for."""
        self.client_left()
        async for _ in self._passing:
            pass

    def _closed(self) -> None:
        """Called by Django in the request's thread; a test may call it in the thread of the loop."""
        try:
            if not self._over:
                self._finish()
        finally:
            self._close()

    def _finish(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            async_to_sync(self.work_off)()
        else:
            self._rest = loop.create_task(self.work_off())  # kept, so that it is not collected before it has ended

    async def _passed_on(self) -> AsyncIterator[bytes]:
        try:
            while (chunk := await self._next()) is not None:
                self._kept.add(chunk)
                if self._kept.is_complete:
                    self._held.append(chunk)  # a client that has it takes it for the end
                else:
                    yield chunk
        except Stopped as stopped:
            self._over = True
            await self._stop(str(stopped))
            return
        except Exception as error:
            self._over = True
            await self._call.raised(error)
            raise
        except BaseException as error:
            self._over = True
            await self._call.abandon(error)
            raise
        self._over = True
        if isinstance(await self._call.recorded(self._response, self._kept.whole()), Answer):
            # There is only the end to withhold; the server cuts the connection, and the client asks again.
            raise Undone("this answer does not count; what was sent is broken off")
        for chunk in self._held:
            yield chunk

    async def _stop(self, reason: str) -> None:
        """End the answer where it is: recorded as carried out and not kept, then its chunks are closed."""
        _log.warning("%s: the streamed answer was stopped: %s", self._call.operation, reason)
        await self._call.recorded(self._response, self._kept.cut_off())
        if hasattr(self._source, "aclose"):
            await self._source.aclose()
        if not self._is_left:
            raise Undone(f"the answer was stopped: {reason}")

    async def _next(self) -> bytes | None:
        """The next chunk, None at the end.

        Raises:
            Stopped: the answer has to end before that.
        """
        clock, limit = self._call.clock, self._limit
        wake = self._wake = asyncio.Event()  # for each chunk its own: what is worked off may be so in another loop
        self._refuse_to_go_on()
        pull = asyncio.ensure_future(self._pull())
        pull.add_done_callback(lambda _: wake.set())
        try:
            while not pull.done():
                self._refuse_to_go_on()
                await clock.arest(wake, limit.due())
                wake.clear()
        finally:
            if not pull.done():
                pull.cancel()
                await asyncio.wait([pull])
        return pull.result()

    def _refuse_to_go_on(self) -> None:
        reason = self._limit.reason(self._call.clock.monotonic())
        if reason is not None:
            raise Stopped(reason)

    async def _pull(self) -> bytes | None:
        with self._call.current():
            if self._is_async:
                found: bytes | None = await anext(self._chunks, None)
            else:
                found = await sync_to_async(functools.partial(next, self._chunks, None))()
        return found


class AsyncKeyedRequest:
    """A request on its way to its view and back.

    Args:
        front: engine and scope.
        route: that of the request.
        django: Django's request.
    """

    def __init__(self, front: Front[AsyncEngine], route: Route, django: Any) -> None:
        self._front = front
        self._route = route
        self._django = django
        self._going: Go | None = None
        self._noted = Carried()
        self._told = False
        self._stream: AsyncStream | None = None

    async def carry(self, view: Callable[[], Awaitable[Any]]) -> Any:
        """Claim, call the view if it is to run, and give what is sent."""
        verdict = await arun(self._front.exchange(request_of(self._django), self._route), self._perform)
        match verdict:
            case Answer(response):
                return response_of(response)
            case Go():
                return await self._gone(verdict, view)
        return await view()

    async def _gone(self, going: Go, view: Callable[[], Awaitable[Any]]) -> Any:
        self._going = going
        self._noted = carry(self._django)
        try:
            return await to_the_end(self._answered(going, view))
        except asyncio.CancelledError:
            if self._stream is not None:  # nobody will ask for what the view streams
                await to_the_end(self._stream.work_off())
            raise

    async def _perform(self, wanted: Any) -> Any:
        match wanted:
            case WhoAsks(rule, request):
                # A rule that is not awaited may look at request.user, which asks the database.
                who = rule(request) if iscoroutinefunction(rule) else await sync_to_async(rule)(request)
                return await who if inspect.isawaitable(who) else who
            case ReadBody(limit):
                return body_of(self._django, limit)
            case Open():
                return await self._front.engine.open(wanted.key, **wanted.settings())
        raise AssertionError(wanted)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside, code of the view finds its attempt."""
        with self._open.current():
            yield

    @property
    def _open(self) -> AsyncCall[Response]:
        assert self._going is not None  # noqa: S101 - asked for where there is a claim
        assert isinstance(self._going.opened, AsyncCall)  # noqa: S101 - the engine is of this colour
        return self._going.opened

    async def _answered(self, going: Go, view: Callable[[], Awaitable[Any]]) -> Any:
        try:
            with self.current():
                response = await view()
                if is_unrendered(response):
                    response = await sync_to_async(rendered)(response)
            return await self._ended(going, response)
        except Exception as error:
            if self._told:
                raise
            return await self._failed(error, None)
        except BaseException as error:
            if not self._told:
                await self.abandon(error)
            raise

    async def _ended(self, going: Go, response: Any) -> Any:
        most = going.route.settings.max_response
        noted = self._noted.counts(response)
        if noted is not None:
            return await self._failed(noted, response)
        if response.streaming and not ends_with_head(response):
            self._stream = AsyncStream(self, response, most)
            return response
        body = await self._drained(response) if response.streaming else response.content
        answer = kept_whole(most, response.status_code, pairs_of(response), body)
        return _decided(await self.recorded(response, answer), response)

    async def _drained(self, response: Any) -> bytes:
        """What a stream gives that ends with its head: nobody sends it, and all of it comes before the record."""
        kept = Kept(self._route.settings.max_response)
        kept.begin(response.status_code, pairs_of(response))
        chunks, limit = response.streaming_content, self.limit(kept)
        with self.current():
            if response.is_async:
                found = [chunk async for chunk in _checked(chunks, limit, self.clock)]
                response.streaming_content = _nothing()
            else:
                found = await sync_to_async(functools.partial(gather, chunks, limit, self.clock))()
                response.streaming_content = ()
        return b"".join(found)

    @property
    def operation(self) -> str:
        """What is done, as the record names it."""
        assert self._going is not None  # noqa: S101 - asked for where there is a claim
        return self._going.operation

    @property
    def clock(self) -> Clock:
        """The engine's."""
        return self._front.engine.clock

    def limit(self, kept: Kept) -> StreamLimit:
        """When the answer, which begins to leave now, is stopped before its end."""
        assert self._going is not None  # noqa: S101 - asked for where there is a claim
        return self._front.limit(self._going, kept)

    async def recorded(self, response: Any, answer: Answered) -> Send | Answer:
        """Settle with what the view answered; status and headers are those that the response has in the end."""
        going, error = self._going, self._noted.error
        assert going is not None  # noqa: S101 - asked for where there is a claim
        try:
            answer = replace(answer, status=response.status_code, headers=pairs_of(response))
            return await self._run(self._front.answered(going, answer, error))
        except Exception as failure:
            if self._told:
                raise
            return await self.raised(failure)  # an answer that cannot even be looked at is none

    async def raised(self, error: Exception) -> Send | Answer:
        """Settle with what the view raised; raises it again, unless somebody else's outcome is there."""
        assert self._going is not None  # noqa: S101 - asked for where there is a claim
        return await self._run(self._front.raised(self._going, error))

    async def abandon(self, error: BaseException) -> None:
        """The view was cut off."""
        self._told = True
        await self._open.abandon(error)

    async def _failed(self, error: Exception, response: Any) -> Any:
        """The view has raised; `response` is what Django made of it, if it has."""
        try:
            verdict = await self.raised(error)
        except Exception as told:
            if told is not error or response is None:
                raise
            return response
        return _decided(verdict, response)

    async def _run(self, flow: Flow[Send | Answer]) -> Send | Answer:
        settle = settlement(self._open)

        def perform(wanted: Any) -> Any:
            self._told = True  # not before: whatever fails until here is still the view's to answer for
            return settle(wanted)

        return await arun(flow, perform)


async def _checked(chunks: AsyncIterator[bytes], limit: StreamLimit, clock: Clock) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield chunk
        limit.check(clock.monotonic())


async def _nothing() -> AsyncIterator[bytes]:
    chunks: tuple[bytes, ...] = ()
    for chunk in chunks:
        yield chunk


def _decided(verdict: Send | Answer, response: Any) -> Any:
    match verdict:
        case Send(marks):
            add(response, marks)
            return response
        case Answer(instead):
            return response_of(instead)
