"""A stream that is iterated in a thread. `async_stream.py` is its twin.

What always holds: chunks pass on as they come, and the iteration ends after the outcome is recorded. A server that
stops asking for more stops nothing: what is left is worked off when it closes the response.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from semel.http.django.message import pairs_of
from semel.http.exchange import Answer, Send, Undone
from semel.http.kept import Kept


class SyncSettled(Protocol):
    """The call that a stream belongs to."""

    def current(self) -> AbstractContextManager[None]:
        """Inside, code of the view finds its attempt."""

    def recorded(self, response: Any, body: bytes | None) -> Send | Answer:
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
        self._held: list[bytes] = []
        self._close = response.close
        self._passing = self._passed_on()
        response.streaming_content = self
        response.close = self._closed

    def __iter__(self) -> Iterator[bytes]:
        return self._passing

    def _closed(self) -> None:
        try:
            for _ in self._passing:
                pass
        finally:
            self._close()

    def _passed_on(self) -> Iterator[bytes]:
        try:
            while (chunk := self._next()) is not None:
                self._kept.add(chunk)
                if self._kept.is_complete:
                    self._held.append(chunk)  # a client that has it takes it for the end
                else:
                    yield chunk
        except Exception as error:
            self._call.raised(error)
            raise
        except BaseException as error:
            self._call.abandon(error)
            raise
        if isinstance(self._call.recorded(self.response, self._kept.body), Answer):
            # There is only the end to withhold; the server cuts the connection, and the client asks again.
            raise Undone("somebody else's outcome was recorded while this answer was on its way")
        yield from self._held

    def _next(self) -> bytes | None:
        with self._call.current():
            return next(self._chunks, None)
