"""A stream that is iterated in an event loop. `sync_stream.py` is its twin.

Invariants: chunks pass on as they come, and the iteration ends after the outcome is recorded. A client that has left
stops nothing but a stream that `StreamLimit` ends: what is left is worked off. Iterators that are not awaited are taken
chunk by chunk in the request's thread, so that the loop goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from asgiref.sync import async_to_sync, sync_to_async

from semel.engine.clock import Clock
from semel.http.django.message import pairs_of
from semel.http.django.to_the_end import to_the_end
from semel.http.exchange import Answer, Send, Undone
from semel.http.kept import Answered, Kept
from semel.http.stream_limit import StreamLimit

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
