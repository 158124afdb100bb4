"""One keyed request that is awaited: claimed, answered by its view, settled. `sync_call.py` is its twin.

What always holds: from the claim on, it runs in a task that no disconnecting client stops, and what the view answered
is recorded before it is given to the server. There is no transaction here: Django has none that is awaited.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from msgspec.structs import replace

from semel.core.flow import Flow, arun
from semel.engine.aio import AsyncEngine
from semel.engine.clock import Clock
from semel.engine.opened import AsyncOpened
from semel.http.django.async_stream import AsyncStream
from semel.http.django.body import body_of
from semel.http.django.carried import Carried, carry
from semel.http.django.message import add, ends_with_head, is_unrendered, pairs_of, rendered, request_of, response_of
from semel.http.django.to_the_end import to_the_end
from semel.http.exchange import Answer, Go, Open, ReadBody, Send, WhoAsks, settlement
from semel.http.front import Front
from semel.http.kept import Answered, Kept, kept_whole
from semel.http.response import Response
from semel.http.route import Route
from semel.http.stream_limit import StreamLimit, gather


class AsyncCall:
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
    def _open(self) -> AsyncOpened[Response]:
        assert self._going is not None  # noqa: S101 - asked for where there is a claim
        assert isinstance(self._going.opened, AsyncOpened)  # noqa: S101 - the engine is of this colour
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
