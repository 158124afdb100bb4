"""What a keyed request does alike in a thread and in an event loop: it records its outcome and passes its stream on.

Invariants: what the view answered is recorded before it is given to the server. The chunks of a stream pass on as they
come, and the iteration ends after the outcome is recorded. A client that has left stops nothing but a stream that
`StreamLimit` ends.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

from msgspec.structs import replace

from semel.core.flow import arun, run
from semel.engine.async_engine import AsyncCall, AsyncEngine
from semel.engine.clock import Clock
from semel.engine.sync_engine import SyncCall, SyncEngine
from semel.http.django.adapters import add, body_of, pairs_of, request_of, response_of
from semel.http.django.request_state import RequestState, carry
from semel.http.exchange import Exchange, Forward, Open, ReadBody, ResolveScope, Respond, Rollback, RunApp, StreamLimit
from semel.http.response import Answered, Response, ResponseBuffer, kept_whole
from semel.http.route import Route

_log: Final = logging.getLogger("semel")


class Stopped(Exception):
    """Ends an answer where it is."""


class AsyncKeyedRequestBase(ABC):
    """A request on its way to its view and back.

    Args:
        exchange: engine and scope.
        route: that of the request.
        django: Django's request.
    """

    def __init__(self, exchange: Exchange[AsyncEngine], route: Route, django: Any) -> None:
        self._exchange = exchange
        self._route = route
        self._django = django
        self._run_app: RunApp | None = None
        self._noted = RequestState()

    @abstractmethod
    def current(self) -> AbstractContextManager[None]:
        """Inside, code of the view finds its attempt, and its transaction where it has one."""

    @abstractmethod
    async def _find_scope(self, rule: Callable[[Any], Any], request: Any) -> Any:
        """To whom the key belongs."""

    @abstractmethod
    async def _claim(self, wanted: Open) -> AsyncCall[Response]:
        """Claim, in a transaction where the route has one."""

    def _body(self, limit: int) -> bytes | None:
        return body_of(self._django, limit)

    def _end_transaction(self, verdict: Forward | Respond) -> Forward | Respond:
        """What is sent once the transaction has ended, where there is one."""
        return verdict

    def _conclude(self, verdict: Forward | Respond, response: Any) -> Any:
        """Give what is sent, after the outcome was recorded."""
        match self._end_transaction(verdict):
            case Forward(marks):
                add(response, marks)
                return response
            case Respond(instead):
                return response_of(instead)

    async def begin(self, native: Any = None) -> Any:
        """Claim. Gives what is sent instead of calling the view, or None.

        Args:
            native: what rules are given; Django's request where nothing else is named.
        """
        verdict = await arun(self._exchange.handle(request_of(self._django, native), self._route), self._perform)
        match verdict:
            case Respond(response):
                return response_of(response)
            case RunApp():
                self._run_app = verdict
                self._noted = carry(self._django)
        return None

    @abstractmethod
    async def _on_response(self, response: Any) -> Any:
        """The view, which was to run, has answered: record it, and give what is sent."""

    async def _run(self, answer: Callable[[], Awaitable[Any]]) -> Any:
        """Give what is sent for what `answer` gives or raises, once that is recorded where there is a claim."""
        try:
            response = await answer()
            return response if self._run_app is None else await self._on_response(response)
        except Exception as error:
            if self._run_app is None or self._run_app.is_settled:
                raise
            return await self._on_error(error, None)
        except BaseException as error:
            if self._run_app is not None and not self._run_app.is_settled:
                await self.abandon(error)
            raise

    async def _perform(self, wanted: Any) -> Any:
        match wanted:
            case ResolveScope(rule, request):
                return await self._find_scope(rule, request)
            case ReadBody(limit):
                return self._body(limit)
            case Open():
                return await self._claim(wanted)
        raise AssertionError(wanted)

    @property
    def _claimed(self) -> RunApp:
        assert self._run_app is not None  # noqa: S101 - asked for where there is a claim
        return self._run_app

    @property
    def _open(self) -> AsyncCall[Response]:
        call = self._claimed.call
        assert isinstance(call, AsyncCall)  # noqa: S101 - the engine is of this kind
        return call

    @property
    def operation(self) -> str:
        """What is done, as the record names it."""
        return self._claimed.operation

    @property
    def clock(self) -> Clock:
        """The engine's."""
        return self._exchange.engine.clock

    def limit(self, buffer: ResponseBuffer) -> StreamLimit:
        """When the answer, which begins to leave now, is stopped before its end."""
        return self._exchange.limit(self._claimed, buffer)

    def _keep(self, response: Any) -> ResponseBuffer:
        """What is kept of an answer, of which only status and headers are known yet."""
        buffer = ResponseBuffer(self._claimed.route.settings.max_response)
        buffer.begin(response.status_code, pairs_of(response))
        return buffer

    async def _record_whole(self, response: Any, body: bytes) -> Any:
        """Settle with an answer that has come to its end, and give what is sent."""
        most = self._claimed.route.settings.max_response
        answer = kept_whole(most, response.status_code, pairs_of(response), body)
        return self._conclude(await self.record(response, answer), response)

    async def record(self, response: Any, answer: Answered) -> Forward | Respond:
        """Settle with what the view answered; status and headers are those that the response has in the end."""
        try:
            answer = replace(answer, status=response.status_code, headers=pairs_of(response))
            flow = self._exchange.on_response(self._claimed, answer, self._noted.error)
            return await arun(flow, self._claimed.perform)
        except Exception as failure:
            if self._claimed.is_settled:
                raise
            return await self.record_error(failure)  # an answer that cannot even be looked at is none

    async def record_error(self, error: Exception) -> Forward | Respond:
        """Settle with what the view raised; raises it again, unless somebody else's outcome is there."""
        return await arun(self._exchange.on_error(self._claimed, error), self._claimed.perform)

    async def abandon(self, error: BaseException) -> None:
        """The view was cut off."""
        self._claimed.is_settled = True
        await self._open.abandon(error)

    async def _on_error(self, error: Exception, response: Any) -> Any:
        """The view has raised; `response` is what Django made of it, if it has."""
        try:
            verdict = await self.record_error(error)
        except Exception as told:
            if told is not error or response is None:
                raise
            verdict = Forward((), error)
        return self._conclude(verdict, response)


class AsyncStreamBase(ABC):
    """The chunks of a response, looked at as they pass. Puts itself in the place of its stream.

    Args:
        call: the request that it belongs to.
        response: Django's response.
        chunks: its chunks.
    """

    def __init__(self, call: AsyncKeyedRequestBase, response: Any, chunks: AsyncIterator[bytes]) -> None:
        self._call = call
        self._response = response
        self._chunks = chunks
        self._buffer = call._keep(response)  # noqa: SLF001 - both are one request
        self._limit = call.limit(self._buffer)
        self._is_left = False
        self._is_over = False
        self._held: list[bytes] = []
        self._close = response.close
        self._passing = self._pass_on()
        response.streaming_content = self
        response.close = self._on_close

    @abstractmethod
    async def _next(self) -> bytes | None:
        """The next chunk, None at the end.

        Raises:
            Stopped: the answer has to end before that.
        """

    @abstractmethod
    async def _close_chunks(self) -> None:
        """No more chunks are taken."""

    @abstractmethod
    def _finish(self) -> None:
        """Have what is left worked off."""

    def _on_close(self) -> None:
        """The server has closed the response."""
        try:
            if not self._is_over:
                self._finish()
        finally:
            self._close()

    def client_left(self) -> None:
        """Nobody listens any more."""
        self._is_left = True
        self._limit.client_left(self._call.clock.monotonic())

    async def work_off(self) -> None:
        """Take the rest, which nobody asks for."""
        self.client_left()
        async for _ in self._passing:
            pass

    async def _pass_on(self) -> AsyncIterator[bytes]:
        try:
            while (chunk := await self._next()) is not None:
                self._buffer.add(chunk)
                if self._buffer.is_complete:
                    self._held.append(chunk)  # a client that has it takes it for the end
                else:
                    yield chunk
        except Stopped as stopped:
            self._is_over = True
            await self._stop(str(stopped))
            return
        except Exception as error:
            self._is_over = True
            await self._call.record_error(error)
            raise
        except BaseException as error:
            self._is_over = True
            await self._call.abandon(error)
            raise
        self._is_over = True
        if isinstance(await self._call.record(self._response, self._buffer.whole()), Respond):
            # There is only the end to withhold; the server cuts the connection, and the client asks again.
            raise Rollback("this answer does not count; what was sent is broken off")
        for chunk in self._held:
            yield chunk

    def _check_limit(self) -> None:
        reason = self._limit.reason(self._call.clock.monotonic())
        if reason is not None:
            raise Stopped(reason)

    async def _stop(self, reason: str) -> None:
        """End the answer where it is: recorded as carried out and not kept, then its chunks are closed."""
        _log.warning("%s: the streamed answer was stopped: %s", self._call.operation, reason)
        await self._call.record(self._response, self._buffer.cut_off())
        await self._close_chunks()
        if not self._is_left:
            raise Rollback(f"the answer was stopped: {reason}")


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class SyncKeyedRequestBase(ABC):
    """A request on its way to its view and back.

    Args:
        exchange: engine and scope.
        route: that of the request.
        django: Django's request.
    """

    def __init__(self, exchange: Exchange[SyncEngine], route: Route, django: Any) -> None:
        self._exchange = exchange
        self._route = route
        self._django = django
        self._run_app: RunApp | None = None
        self._noted = RequestState()

    @abstractmethod
    def current(self) -> AbstractContextManager[None]:
        """Inside, code of the view finds its attempt, and its transaction where it has one."""

    @abstractmethod
    def _find_scope(self, rule: Callable[[Any], Any], request: Any) -> Any:
        """To whom the key belongs."""

    @abstractmethod
    def _claim(self, wanted: Open) -> SyncCall[Response]:
        """Claim, in a transaction where the route has one."""

    def _body(self, limit: int) -> bytes | None:
        return body_of(self._django, limit)

    def _end_transaction(self, verdict: Forward | Respond) -> Forward | Respond:
        """What is sent once the transaction has ended, where there is one."""
        return verdict

    def _conclude(self, verdict: Forward | Respond, response: Any) -> Any:
        """Give what is sent, after the outcome was recorded."""
        match self._end_transaction(verdict):
            case Forward(marks):
                add(response, marks)
                return response
            case Respond(instead):
                return response_of(instead)

    def begin(self, native: Any = None) -> Any:
        """Claim. Gives what is sent instead of calling the view, or None.

        Args:
            native: what rules are given; Django's request where nothing else is named.
        """
        verdict = run(self._exchange.handle(request_of(self._django, native), self._route), self._perform)
        match verdict:
            case Respond(response):
                return response_of(response)
            case RunApp():
                self._run_app = verdict
                self._noted = carry(self._django)
        return None

    @abstractmethod
    def _on_response(self, response: Any) -> Any:
        """The view, which was to run, has answered: record it, and give what is sent."""

    def _run(self, answer: Callable[[], Any]) -> Any:
        """Give what is sent for what `answer` gives or raises, once that is recorded where there is a claim."""
        try:
            response = answer()
            return response if self._run_app is None else self._on_response(response)
        except Exception as error:
            if self._run_app is None or self._run_app.is_settled:
                raise
            return self._on_error(error, None)
        except BaseException as error:
            if self._run_app is not None and not self._run_app.is_settled:
                self.abandon(error)
            raise

    def _perform(self, wanted: Any) -> Any:
        match wanted:
            case ResolveScope(rule, request):
                return self._find_scope(rule, request)
            case ReadBody(limit):
                return self._body(limit)
            case Open():
                return self._claim(wanted)
        raise AssertionError(wanted)

    @property
    def _claimed(self) -> RunApp:
        assert self._run_app is not None  # noqa: S101 - asked for where there is a claim
        return self._run_app

    @property
    def _open(self) -> SyncCall[Response]:
        call = self._claimed.call
        assert isinstance(call, SyncCall)  # noqa: S101 - the engine is of this kind
        return call

    @property
    def operation(self) -> str:
        """What is done, as the record names it."""
        return self._claimed.operation

    @property
    def clock(self) -> Clock:
        """The engine's."""
        return self._exchange.engine.clock

    def limit(self, buffer: ResponseBuffer) -> StreamLimit:
        """When the answer, which begins to leave now, is stopped before its end."""
        return self._exchange.limit(self._claimed, buffer)

    def _keep(self, response: Any) -> ResponseBuffer:
        """What is kept of an answer, of which only status and headers are known yet."""
        buffer = ResponseBuffer(self._claimed.route.settings.max_response)
        buffer.begin(response.status_code, pairs_of(response))
        return buffer

    def _record_whole(self, response: Any, body: bytes) -> Any:
        """Settle with an answer that has come to its end, and give what is sent."""
        most = self._claimed.route.settings.max_response
        answer = kept_whole(most, response.status_code, pairs_of(response), body)
        return self._conclude(self.record(response, answer), response)

    def record(self, response: Any, answer: Answered) -> Forward | Respond:
        """Settle with what the view answered; status and headers are those that the response has in the end."""
        try:
            answer = replace(answer, status=response.status_code, headers=pairs_of(response))
            flow = self._exchange.on_response(self._claimed, answer, self._noted.error)
            return run(flow, self._claimed.perform)
        except Exception as failure:
            if self._claimed.is_settled:
                raise
            return self.record_error(failure)  # an answer that cannot even be looked at is none

    def record_error(self, error: Exception) -> Forward | Respond:
        """Settle with what the view raised; raises it again, unless somebody else's outcome is there."""
        return run(self._exchange.on_error(self._claimed, error), self._claimed.perform)

    def abandon(self, error: BaseException) -> None:
        """The view was cut off."""
        self._claimed.is_settled = True
        self._open.abandon(error)

    def _on_error(self, error: Exception, response: Any) -> Any:
        """The view has raised; `response` is what Django made of it, if it has."""
        try:
            verdict = self.record_error(error)
        except Exception as told:
            if told is not error or response is None:
                raise
            verdict = Forward((), error)
        return self._conclude(verdict, response)


class SyncStreamBase(ABC):
    """The chunks of a response, looked at as they pass. Puts itself in the place of its stream.

    Args:
        call: the request that it belongs to.
        response: Django's response.
        chunks: its chunks.
    """

    def __init__(self, call: SyncKeyedRequestBase, response: Any, chunks: Iterator[bytes]) -> None:
        self._call = call
        self._response = response
        self._chunks = chunks
        self._buffer = call._keep(response)  # noqa: SLF001 - both are one request
        self._limit = call.limit(self._buffer)
        self._is_left = False
        self._is_over = False
        self._held: list[bytes] = []
        self._close = response.close
        self._passing = self._pass_on()
        response.streaming_content = self
        response.close = self._on_close

    @abstractmethod
    def _next(self) -> bytes | None:
        """The next chunk, None at the end.

        Raises:
            Stopped: the answer has to end before that.
        """

    @abstractmethod
    def _close_chunks(self) -> None:
        """No more chunks are taken."""

    @abstractmethod
    def _finish(self) -> None:
        """Have what is left worked off."""

    def _on_close(self) -> None:
        """The server has closed the response."""
        try:
            if not self._is_over:
                self._finish()
        finally:
            self._close()

    def client_left(self) -> None:
        """Nobody listens any more."""
        self._is_left = True
        self._limit.client_left(self._call.clock.monotonic())

    def work_off(self) -> None:
        """Take the rest, which nobody asks for."""
        self.client_left()
        for _ in self._passing:
            pass

    def _pass_on(self) -> Iterator[bytes]:
        try:
            while (chunk := self._next()) is not None:
                self._buffer.add(chunk)
                if self._buffer.is_complete:
                    self._held.append(chunk)  # a client that has it takes it for the end
                else:
                    yield chunk
        except Stopped as stopped:
            self._is_over = True
            self._stop(str(stopped))
            return
        except Exception as error:
            self._is_over = True
            self._call.record_error(error)
            raise
        except BaseException as error:
            self._is_over = True
            self._call.abandon(error)
            raise
        self._is_over = True
        if isinstance(self._call.record(self._response, self._buffer.whole()), Respond):
            # There is only the end to withhold; the server cuts the connection, and the client asks again.
            raise Rollback("this answer does not count; what was sent is broken off")
        for chunk in self._held:
            yield chunk

    def _check_limit(self) -> None:
        reason = self._limit.reason(self._call.clock.monotonic())
        if reason is not None:
            raise Stopped(reason)

    def _stop(self, reason: str) -> None:
        """End the answer where it is: recorded as carried out and not kept, then its chunks are closed."""
        _log.warning("%s: the streamed answer was stopped: %s", self._call.operation, reason)
        self._call.record(self._response, self._buffer.cut_off())
        self._close_chunks()
        if not self._is_left:
            raise Rollback(f"the answer was stopped: {reason}")
