"""A stream that is iterated in an event loop. `sync_stream.py` is its twin.

What always holds: chunks pass on as they come, and the iteration ends after the outcome is recorded. A client that has
left stops nothing: what is left is worked off. Iterators that are not awaited are taken chunk by chunk in the request's
thread, so that the loop goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from asgiref.sync import async_to_sync, sync_to_async

from semel.http.django.message import pairs_of
from semel.http.django.to_the_end import to_the_end
from semel.http.exchange import Answer, Send, Undone
from semel.http.kept import Kept


class AsyncSettled(Protocol):
    """The call that a stream belongs to."""

    def current(self) -> AbstractContextManager[None]:
        """Inside, code of the view finds its attempt."""

    async def recorded(self, response: Any, body: bytes | None) -> Send | Answer:
        """Settle with what the view answered."""

    async def raised(self, error: Exception) -> Send | Answer:
        """Settle with what the view raised, and raise it."""

    async def abandon(self, error: BaseException) -> None:
        """The view was cut off."""


class AsyncStream:
    """The chunks of a response, looked at as they pass. Puts itself in the place of its stream."""

    def __init__(self, call: AsyncSettled, response: Any, most: int) -> None:
        self._call = call
        self._response = response
        self._is_async = response.is_async
        self._chunks: Any = response.streaming_content
        self._kept = Kept(most)
        self._kept.begin(response.status_code, pairs_of(response))
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
            chunk = await to_the_end(self._step())
        except asyncio.CancelledError:
            await to_the_end(self.work_off())
            raise
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def _step(self) -> bytes | None:
        return await anext(self._passing, None)

    async def work_off(self) -> None:
        """Take the rest, which nobody asks for."""
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
        except Exception as error:
            self._over = True
            await self._call.raised(error)
            raise
        except BaseException as error:
            self._over = True
            await self._call.abandon(error)
            raise
        self._over = True
        if isinstance(await self._call.recorded(self._response, self._kept.body), Answer):
            # There is only the end to withhold; the server cuts the connection, and the client asks again.
            raise Undone("somebody else's outcome was recorded while this answer was on its way")
        for chunk in self._held:
            yield chunk

    async def _next(self) -> bytes | None:
        with self._call.current():
            if self._is_async:
                found: bytes | None = await anext(self._chunks, None)
            else:
                found = await sync_to_async(functools.partial(next, self._chunks, None))()
        return found
