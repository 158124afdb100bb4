"""A stream that is iterated in a thread. `async_stream.py` is its twin.

Invariants: chunks pass on as they come, and the iteration ends after the outcome is recorded. A server that stops
asking for more stops nothing but a stream that `StreamLimit` ends: what is left is worked off when it closes the
response.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from semel.http.django.message import pairs_of
from semel.http.exchange import Answer, Send, Undone
from semel.http.kept import Answered, Kept
from semel.http.stream_limit import StreamLimit

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
