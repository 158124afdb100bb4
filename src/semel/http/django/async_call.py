"""One keyed request that is awaited: claimed, answered by its view, settled. `sync_call.py` has the one of a thread.

What always holds: from the claim on, it runs in a task that no disconnecting client stops. There is no transaction
here: Django has none that is awaited. What is left of a stream whose client has left is worked off. Iterators that are
not awaited are taken chunk by chunk in the request's thread, so that the loop goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async

from semel.engine.async_engine import AsyncCall
from semel.engine.clock import Clock
from semel.http.django.adapters import ends_with_head, is_unrendered, rendered
from semel.http.django.keyed_request import AsyncKeyedRequestBase, AsyncStreamBase
from semel.http.django.shield import to_the_end
from semel.http.exchange import Open, StreamLimit, gather
from semel.http.response import Response


class AsyncStream(AsyncStreamBase):
    """The chunks of a response, looked at as they pass."""

    def __init__(self, call: AsyncKeyedRequestBase, response: Any) -> None:
        self._is_async = response.is_async
        self._source: Any = response._iterator  # noqa: SLF001 - the chunks as the view gave them, to be closed
        self._wake = asyncio.Event()
        super().__init__(call, response, response.streaming_content)

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
        super().client_left()
        self._wake.set()

    def _finish(self) -> None:
        # Called by Django in the request's thread; a test may call it in the thread of the loop.
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            async_to_sync(self.work_off)()
        else:
            self._rest = loop.create_task(self.work_off())  # kept, so that it is not collected before it has ended

    async def _close_chunks(self) -> None:
        if hasattr(self._source, "aclose"):
            await self._source.aclose()

    async def _next(self) -> bytes | None:
        clock, limit = self._call.clock, self._limit
        wake = self._wake = asyncio.Event()  # for each chunk its own: what is worked off may be so in another loop
        self._check_limit()
        pull = asyncio.ensure_future(self._pull())
        pull.add_done_callback(lambda _: wake.set())
        try:
            while not pull.done():
                self._check_limit()
                await clock.arest(wake, limit.due())
                wake.clear()
        finally:
            if not pull.done():
                pull.cancel()
                await asyncio.wait([pull])
        return pull.result()

    async def _pull(self) -> bytes | None:
        with self._call.current():
            if self._is_async:
                found: bytes | None = await anext(self._chunks, None)
            else:
                found = await sync_to_async(functools.partial(next, cast("Iterator[bytes]", self._chunks), None))()
        return found


class AsyncKeyedRequest(AsyncKeyedRequestBase):
    """A request that is awaited on its way to its view and back."""

    _stream: AsyncStream | None = None

    async def carry(self, view: Callable[[], Awaitable[Any]]) -> Any:
        """Claim, call the view if it is to run, and give what is sent."""
        instead = await self.begin()
        if instead is not None:
            return instead
        if self._run_app is None:
            return await view()
        try:
            return await to_the_end(self._run(functools.partial(self._call_view, view)))
        except asyncio.CancelledError:
            if self._stream is not None:  # nobody will ask for what the view streams
                await to_the_end(self._stream.work_off())
            raise

    async def _find_scope(self, rule: Callable[[Any], Any], request: Any) -> Any:
        # A rule that is not awaited may look at request.user, which asks the database.
        who = rule(request) if iscoroutinefunction(rule) else await sync_to_async(rule)(request)
        return await who if inspect.isawaitable(who) else who

    async def _claim(self, wanted: Open) -> AsyncCall[Response]:
        return await self._exchange.engine.open(wanted.key, **wanted.settings())

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside, code of the view finds its attempt."""
        with self._open.current():
            yield

    async def _call_view(self, view: Callable[[], Awaitable[Any]]) -> Any:
        with self.current():
            response = await view()
            return await sync_to_async(rendered)(response) if is_unrendered(response) else response

    async def _on_response(self, response: Any) -> Any:
        noted = self._noted.counts(response)
        if noted is not None:
            return await self._on_error(noted, response)
        if response.streaming and not ends_with_head(response):
            self._stream = AsyncStream(self, response)
            return response
        body = await self._drained(response) if response.streaming else response.content
        return await self._record_whole(response, body)

    async def _drained(self, response: Any) -> bytes:
        """What a stream gives that ends with its head: nobody sends it, and all of it comes before the record."""
        chunks, limit = response.streaming_content, self.limit(self._keep(response))
        with self.current():
            if response.is_async:
                found = [chunk async for chunk in _checked(chunks, limit, self.clock)]
                response.streaming_content = _nothing()
            else:
                found = await sync_to_async(functools.partial(gather, chunks, limit, self.clock))()
                response.streaming_content = ()
        return b"".join(found)


async def _checked(chunks: AsyncIterator[bytes], limit: StreamLimit, clock: Clock) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield chunk
        limit.check(clock.monotonic())


async def _nothing() -> AsyncIterator[bytes]:
    chunks: tuple[bytes, ...] = ()
    for chunk in chunks:
        yield chunk
