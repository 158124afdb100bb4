"""One keyed request in its thread: claimed, answered by its view, settled. `async_call.py` has the one that is awaited.

What always holds: where the request has a transaction, that is committed before its answer is given to the server, or
taken back; what escapes from here has taken it back as well. What is left of a stream is worked off when the server
closes the response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction

from semel.engine.sync_engine import SyncCall, SyncEngine
from semel.http.django.adapters import body_of, ends_with_head, rendered
from semel.http.django.keyed_request import SyncKeyedRequestBase, SyncStreamBase
from semel.http.exchange import Exchange, Forward, Open, Respond, RetryableResponse, Rollback, gather
from semel.http.problem import Refused
from semel.http.response import Response
from semel.http.route import Route
from semel.http.transaction import UnitOfWork, running_in


class SyncStream(SyncStreamBase):
    """The chunks of a response, looked at as they pass."""

    def __iter__(self) -> Iterator[bytes]:
        return self._passing

    def _finish(self) -> None:
        self.work_off()

    def _close_chunks(self) -> None:
        self._close()

    def _next(self) -> bytes | None:
        self._check_limit()
        with self._call.current():
            return next(self._chunks, None)


_FIRST_REFUSAL = 400


class SyncKeyedRequest(SyncKeyedRequestBase):
    """A request in a thread, on its way to its view and back."""

    def __init__(self, exchange: Exchange[SyncEngine], route: Route, django: Any) -> None:
        super().__init__(exchange, route, django)
        self._unit = UnitOfWork(exchange, route.settings.transaction)
        self._gathered: list[bytes] | None = None
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

    def _find_scope(self, rule: Callable[[Any], Any], request: Any) -> Any:
        return (async_to_sync(rule) if iscoroutinefunction(rule) else rule)(request)

    def _claim(self, wanted: Open) -> SyncCall[Response]:
        return self._unit.open(wanted)

    def _body(self, limit: int) -> bytes | None:
        match self._ahead:
            case None:
                return super()._body(limit)
            case Refused():
                raise self._ahead
            case (body,):
                return body

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside, code of the view finds its attempt and its transaction."""
        if self._run_app is None:
            yield
            return
        with running_in(self._unit.connection), self._open.current():
            yield

    def see_through(self, called: Callable[[], Any]) -> Any:
        """Give what `called` answers, once it is recorded. It claims on its way, or does not."""
        try:
            response = self._run(lambda: self._whole(rendered(called())))
            if self._run_app is None:
                self._unit.roll_back(Rollback("the view did not run"))
        except BaseException as error:
            self._unit.roll_back(error)
            raise
        return response

    def _on_response(self, response: Any) -> Any:
        error = self._noted.counts(response)
        if error is not None:
            return self._on_error(error, response)
        if response.streaming and self._gathered is None:
            SyncStream(self, response, iter(response.streaming_content))
            return response
        if self._unit.connection is not None and (self._noted.error is not None or self._is_given_up):
            return self._taken_back(response)
        return self._record_whole(response, response.content if self._gathered is None else b"".join(self._gathered))

    def _whole(self, response: Any) -> Any:
        """The response; a stream is read to its end where nothing of it may leave before the outcome is recorded."""
        if self._run_app is None or not response.streaming:
            return response
        if self._unit.connection is not None or ends_with_head(response):
            with self.current():
                limit = self.limit(self._keep(response))  # a response that has no end is stopped
                self._gathered = gather(response.streaming_content, limit, self.clock)
            response.streaming_content = self._gathered
        return response

    @property
    def _is_given_up(self) -> bool:
        """Whether Django will roll the transaction back, as the view or an error in it has said."""
        return bool(getattr(self._unit.connection, "needs_rollback", False))

    def _taken_back(self, response: Any) -> Any:
        """The transaction is rolled back, nothing is kept, and what the view answers is sent if it says no."""
        undo = RetryableResponse("the transaction is rolled back")
        self._claimed.is_settled = True
        try:
            self._open.fail(undo)
        except Exception as told:  # noqa: BLE001 - the record goes with the transaction, whatever is said of it
            undo.__cause__ = None if told is undo else told
        is_success = response.status_code < _FIRST_REFUSAL
        return self._conclude(self._exchange.on_no_commit(self._claimed) if is_success else Forward((), undo), response)

    def _end_transaction(self, verdict: Forward | Respond) -> Forward | Respond:
        """Commit the transaction of the request, or take it back."""
        match verdict:
            case Forward(_, None):
                return self._unit.commit(self._claimed) or verdict
            case Forward(_, Exception() as undo):
                self._unit.roll_back(undo)
            case Respond():
                self._unit.roll_back(Rollback("another answer is sent"))
        return verdict
