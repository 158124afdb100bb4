"""One keyed request in its thread: claimed, answered by its view, settled. `async_call.py` is its twin.

What always holds: what the view answered is recorded before it is given to the server, and where the request has a
transaction, that is committed before, or taken back. What escapes from here has taken it back as well.

A stream that is iterated in a thread. `async_stream.py` is its twin.

Invariants: chunks pass on as they come, and the iteration ends after the outcome is recorded. A server that stops
asking for more stops nothing but a stream that `StreamLimit` ends: what is left is worked off when it closes the
response.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from asgiref.sync import async_to_sync, iscoroutinefunction
from msgspec.structs import replace

from semel.core.flow import Flow, run
from semel.engine.sync_engine import SyncCall, SyncEngine
from semel.http.django.adapters import add, body_of, ends_with_head, pairs_of, rendered, request_of, response_of
from semel.http.django.request_state import Carried, carry
from semel.http.exchange import (
    Answer,
    Front,
    Go,
    NotStored,
    Open,
    ReadBody,
    Send,
    StreamLimit,
    Undone,
    WhoAsks,
    gather,
    settlement,
)
from semel.http.problem import Refused
from semel.http.response import Answered, Kept, Response, kept_whole
from semel.http.route import Route
from semel.http.transaction import UnitOfWork, running_in

_log: Final = logging.getLogger("semel")


class SyncSettled(Protocol):
    """The call that a stream belongs to."""

    def current(self) -> AbstractContextManager[None]:
        """Inside, code of the view finds its attempt."""

    @property
    def operation(self) -> str:
        """What is done, as the record names it."""

    def now(self) -> float:
        """The instant, by the engine's clock."""

    def limit(self, kept: Kept) -> StreamLimit:
        """When the answer, which begins to leave now, is stopped before its end."""

    def recorded(self, response: Any, answer: Answered) -> Send | Answer:
        """Settle with what the view answered."""

    def raised(self, error: Exception) -> Send | Answer:
        """Settle with what the view raised, and raise it."""

    def abandon(self, error: BaseException) -> None:
        """The view was cut off."""


class SyncStream:
    """The chunks of a response, looked at as they pass.

    Attributes:
        response: the same, with the stream in place.
    """

    def __init__(self, call: SyncSettled, response: Any, most: int) -> None:
        self.response = response
        self._call = call
        self._chunks: Iterator[bytes] = iter(response.streaming_content)
        self._kept = Kept(most)
        self._kept.begin(response.status_code, pairs_of(response))
        self._limit = call.limit(self._kept)
        self._is_left = False
        self._held: list[bytes] = []
        self._close = response.close
        self._passing = self._passed_on()
        response.streaming_content = self
        response.close = self._closed

    def __iter__(self) -> Iterator[bytes]:
        return self._passing

    def _closed(self) -> None:
        self._is_left = True
        self._limit.client_left(self._call.now())
        try:
            for _ in self._passing:
                pass
        finally:
            self._close()

    def _passed_on(self) -> Iterator[bytes]:
        reason: str | None = None
        try:
            while reason is None and (chunk := self._next()) is not None:
                self._kept.add(chunk)
                if self._kept.is_complete:
                    self._held.append(chunk)  # a client that has it takes it for the end
                else:
                    yield chunk
                reason = self._limit.reason(self._call.now())
        except Exception as error:
            self._call.raised(error)
            raise
        except BaseException as error:
            self._call.abandon(error)
            raise
        if reason is not None:
            self._stop(reason)
            return
        if isinstance(self._call.recorded(self.response, self._kept.whole()), Answer):
            # There is only the end to withhold; the server cuts the connection, and the client asks again.
            raise Undone("this answer does not count; what was sent is broken off")
        yield from self._held

    def _stop(self, reason: str) -> None:
        """End the answer where it is: recorded as carried out and not kept, then its chunks are closed."""
        _log.warning("%s: the streamed answer was stopped: %s", self._call.operation, reason)
        self._call.recorded(self.response, self._kept.cut_off())
        self._close()
        if not self._is_left:
            raise Undone(f"the answer was stopped: {reason}")

    def _next(self) -> bytes | None:
        with self._call.current():
            return next(self._chunks, None)


_FIRST_REFUSAL = 400


class SyncKeyedRequest:
    """A request on its way to its view and back.

    Args:
        front: engine and scope.
        route: that of the request.
        django: Django's request.
    """

    def __init__(self, front: Front[SyncEngine], route: Route, django: Any) -> None:
        self._front = front
        self._route = route
        self._django = django
        self._unit = UnitOfWork(front, route.settings.transaction)
        self._gathered: list[bytes] | None = None
        self._going: Go | None = None
        self._noted = Carried()
        self._told = False
        self._ahead: Refused | tuple[bytes | None] | None = None

    def carry(self, view: Callable[[], Any]) -> Any:
        """Claim, call the view if it is to run, and give what is sent."""

        def called() -> Any:
            instead = self.begin()
            if instead is not None:
                return instead
            with self.current():
                return view()

        return self.see_through(called)

    def read_ahead(self) -> None:
        """Read the body of a request with a key now: what comes before the claim could take it as a stream."""
        settings = self._route.settings
        if settings.key is None and settings.key_header not in self._django.headers:
            return
        try:
            self._ahead = (body_of(self._django, settings.max_body),)
        except Refused as refused:
            self._ahead = refused

    def begin(self, native: Any = None) -> Any:
        """Claim. Gives what is sent instead of calling the view, or None.

        Args:
            native: what rules are given; Django's request where nothing else is named.
        """
        verdict = run(self._front.exchange(request_of(self._django, native), self._route), self._perform)
        match verdict:
            case Answer(response):
                return response_of(response)
            case Go():
                self._going = verdict
                self._noted = carry(self._django)
        return None

    def _perform(self, wanted: Any) -> Any:
        match wanted:
            case WhoAsks(rule, request):
                return (async_to_sync(rule) if iscoroutinefunction(rule) else rule)(request)
            case ReadBody(limit):
                return self._body(limit)
            case Open():
                return self._unit.open(wanted)
        raise AssertionError(wanted)

    def _body(self, limit: int) -> bytes | None:
        match self._ahead:
            case None:
                return body_of(self._django, limit)
            case Refused():
                raise self._ahead
            case (body,):
                return body

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside, code of the view finds its attempt and its transaction."""
        if self._going is None:
            yield
            return
        with running_in(self._unit.connection), self._open.current():
            yield

    @property
    def _open(self) -> SyncCall[Response]:
        assert self._going is not None  # noqa: S101 - asked for where there is a claim
        assert isinstance(self._going.opened, SyncCall)  # noqa: S101 - the engine is of this colour
        return self._going.opened

    def see_through(self, called: Callable[[], Any]) -> Any:
        """Give what `called` answers, once it is recorded. It claims on its way, or does not."""
        try:
            return self._seen_through(called)
        except BaseException as error:
            self._unit.roll_back(error)
            raise

    def _seen_through(self, called: Callable[[], Any]) -> Any:
        try:
            response = self._whole(rendered(called()))
            if self._going is not None:
                return self._ended(self._going, response)
        except Exception as error:
            if self._going is None or self._told:
                raise
            return self._failed(error, None)
        except BaseException as error:
            if self._going is not None and not self._told:
                self.abandon(error)
            raise
        self._unit.roll_back(Undone("the view did not run"))
        return response

    def _ended(self, going: Go, response: Any) -> Any:
        error = self._noted.counts(response)
        if error is not None:
            return self._failed(error, response)
        if response.streaming and self._gathered is None:
            return SyncStream(self, response, going.route.settings.max_response).response
        if self._unit.connection is not None and (self._noted.error is not None or self._is_given_up):
            return self._taken_back(going, response)
        body = response.content if self._gathered is None else b"".join(self._gathered)
        most = going.route.settings.max_response
        answer = kept_whole(most, response.status_code, pairs_of(response), body)
        return self._decided(self.recorded(response, answer), response)

    def _whole(self, response: Any) -> Any:
        """The response; a stream is read to its end where nothing of it may leave before the outcome is recorded."""
        if self._going is None or not response.streaming:
            return response
        if self._unit.connection is not None or ends_with_head(response):
            with self.current():
                self._gathered = self._gather(self._going, response)
            response.streaming_content = self._gathered
        return response

    def _gather(self, going: Go, response: Any) -> list[bytes]:
        """All chunks of a response, unless it has no end."""
        kept = Kept(going.route.settings.max_response)
        kept.begin(response.status_code, pairs_of(response))
        return gather(response.streaming_content, self.limit(kept), self._front.engine.clock)

    @property
    def _is_given_up(self) -> bool:
        """Whether Django will roll the transaction back, as the view or an error in it has said."""
        return bool(getattr(self._unit.connection, "needs_rollback", False))

    def _taken_back(self, going: Go, response: Any) -> Any:
        """The transaction is rolled back, nothing is kept, and what the view answers is sent if it says no."""
        undo = NotStored("the transaction is rolled back")
        self._told = True
        try:
            self._open.fail(undo)
        except Exception as told:  # noqa: BLE001 - the record goes with the transaction, whatever is said of it
            undo.__cause__ = None if told is undo else told
        is_success = response.status_code < _FIRST_REFUSAL
        return self._decided(self._front.not_committed(going) if is_success else Send((), undo), response)

    @property
    def operation(self) -> str:
        """What is done, as the record names it."""
        assert self._going is not None  # noqa: S101 - asked for where there is a claim
        return self._going.operation

    def now(self) -> float:
        """The instant, by the engine's clock."""
        return self._front.engine.clock.monotonic()

    def limit(self, kept: Kept) -> StreamLimit:
        """When the answer, which begins to leave now, is stopped before its end."""
        assert self._going is not None  # noqa: S101 - asked for where there is a claim
        return self._front.limit(self._going, kept)

    def recorded(self, response: Any, answer: Answered) -> Send | Answer:
        """Settle with what the view answered; status and headers are those that the response has in the end."""
        going, error = self._going, self._noted.error
        assert going is not None  # noqa: S101 - asked for where there is a claim
        try:
            answer = replace(answer, status=response.status_code, headers=pairs_of(response))
            return self._run(self._front.answered(going, answer, error))
        except Exception as failure:
            if self._told:
                raise
            return self.raised(failure)  # an answer that cannot even be looked at is none

    def raised(self, error: Exception) -> Send | Answer:
        """Settle with what the view raised; raises it again, unless somebody else's outcome is there."""
        assert self._going is not None  # noqa: S101 - asked for where there is a claim
        return self._run(self._front.raised(self._going, error))

    def abandon(self, error: BaseException) -> None:
        """The view was cut off."""
        self._told = True
        self._open.abandon(error)

    def _failed(self, error: Exception, response: Any) -> Any:
        """The view has raised; `response` is what Django made of it, if it has."""
        try:
            verdict = self.raised(error)
        except Exception as told:
            if told is not error or response is None:
                raise
            verdict = Send((), error)
        return self._decided(verdict, response)

    def _run(self, flow: Flow[Send | Answer]) -> Send | Answer:
        settle = settlement(self._open)

        def perform(wanted: Any) -> Any:
            self._told = True  # not before: whatever fails until here is still the view's to answer for
            return settle(wanted)

        return run(flow, perform)

    def _decided(self, verdict: Send | Answer, response: Any) -> Any:
        """Commit the transaction of the request, or take it back; then give what is sent."""
        match verdict:
            case Send(marks, None):
                assert self._going is not None  # noqa: S101 - there is a claim
                problem = self._unit.commit(self._going)
                if problem is not None:
                    return response_of(problem.response)
                add(response, marks)
                return response
            case Send(marks, Exception() as undo):
                self._unit.roll_back(undo)
                add(response, marks)
                return response
            case Answer(instead):
                self._unit.roll_back(Undone("another answer is sent"))
                return response_of(instead)
        raise AssertionError(verdict)
