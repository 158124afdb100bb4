"""One keyed call of an application that blocks: its answer looked at on the way, and recorded once.

Invariants: chunks leave as they come, but nothing that a client could take for the end leaves before the outcome is
recorded. What has left is never changed or sent again. A client that has left stops nothing but a stream that
`StreamLimit` ends: its outcome is recorded first, then its chunks are closed. In a transaction nothing leaves before it
is committed or taken back.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from semel.core.flow import Flow, run
from semel.engine.opened import SyncOpened
from semel.engine.sync import SyncEngine
from semel.http.exchange import Answer, Go, NoAnswer, Send, Undone, settlement
from semel.http.front import Front
from semel.http.kept import Answered, Kept
from semel.http.response import Response
from semel.http.stream_limit import StreamLimit
from semel.http.transaction import running_in
from semel.http.unit_of_work import UnitOfWork

_log: Final = logging.getLogger("semel")
T = TypeVar("T")
Pairs = list[tuple[str, str]]


class EndWithheld(Exception):
    """The answer had begun to leave when it turned out that it does not count, or has no end: it is broken off."""


class Recording:
    """The open call behind a request, and its transaction where it has one: settled once, both together."""

    def __init__(self, going: Go, front: Front[SyncEngine], unit: UnitOfWork) -> None:
        opened = going.opened
        assert isinstance(opened, SyncOpened)  # noqa: S101 - the engine is of this colour
        self.done = False
        self.settings = going.route.settings
        self.marks = going.marks
        self._going = going
        self._opened: SyncOpened[Response] = opened
        self._front = front
        self._unit = unit

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Around code of the application: it finds the current attempt, and the transaction."""
        if self.done:
            yield  # recorded and decided: there is no attempt and no transaction any more
            return
        with running_in(self._unit.connection), self._opened.current():
            yield

    @property
    def operation(self) -> str:
        """What is done, as the record names it."""
        return self._going.operation

    def limit(self, kept: Kept) -> StreamLimit:
        """When the answer, which begins to leave now, is stopped before its end."""
        return self._front.limit(self._going, kept)

    def now(self) -> float:
        """The instant, by the engine's clock."""
        return self._front.engine.clock.monotonic()

    def answered(self, answer: Answered, error: Exception | None = None) -> Send | Answer:
        """The application has answered: recorded, then committed, or taken back if nothing is to stay of it.

        Args:
            answer: what it answered.
            error: what its framework made the answer of, if it was raised.
        """
        try:
            return self._settled(self._front.answered(self._going, answer, error))
        except Exception as failure:
            if self.done:
                raise
            return Answer(self.raised(failure))  # an answer that cannot even be looked at is none

    def raised(self, error: Exception) -> Response:
        """The application has raised; so does this, unless somebody else's outcome is there to be sent."""
        verdict = self._settled(self._front.raised(self._going, error))
        if isinstance(verdict, Answer):
            return verdict.response
        raise error

    def abandon(self, error: BaseException) -> None:
        """The application was cut off."""
        self.done = True
        try:
            self._opened.abandon(error)
        finally:
            self._unit.roll_back(error)

    def _settled(self, flow: Flow[Send | Answer]) -> Send | Answer:
        settle = settlement(self._opened)

        def perform(wanted: Any) -> Any:
            self.done = True  # not before: whatever fails until here is still the application's to answer for
            return settle(wanted)

        try:
            verdict = run(flow, perform)
        except BaseException as error:
            if self.done:
                self._unit.roll_back(error)
            elif not isinstance(error, Exception):
                self.abandon(error)
            raise
        match verdict:
            case Send(undo=None):
                return self._unit.commit(self._going) or verdict
            case Send(undo=Exception() as undo):
                self._unit.roll_back(undo)
            case _:
                self._unit.roll_back(Undone("another answer is sent"))
        return verdict


class Stream(Iterator[bytes]):
    """The chunks of an answer, for a server to take: each as soon as it may leave, and the end once it is recorded.

    Attributes:
        instead: what is sent and not the answer, where nothing of it has left yet.
        marks: headers to be added.

    Args:
        recording: the call.
        holds_all: whether nothing leaves before all of it is recorded.
        error: what the framework made the answer of, if it was raised.
    """

    def __init__(self, recording: Recording, *, holds_all: bool = False, error: Exception | None = None) -> None:
        self.recording = recording
        self.instead: Response | None = None
        self.marks = recording.marks
        self.begun = False
        self._head: tuple[int, Pairs] | None = None
        self._holds_all = holds_all or recording.settings.within is not None
        self._chunks: Iterator[bytes] = iter(())
        self._close: Callable[[], object] | None = None
        self._held: deque[bytes] = deque()
        self._kept = Kept(recording.settings.max_response)
        self._error = error
        self._gone = False
        self._is_whole = False
        self._limit: StreamLimit | None = None

    @property
    def has_body(self) -> bool:
        """Whether the application has given any of it, whether or not it has left."""
        return self._kept.seen > 0

    def head(self, status: int, headers: Pairs) -> None:
        """The answer has this status and these headers."""
        self._head = (status, headers)
        self._kept.begin(status, headers)

    def take(self, call: Callable[[], Iterable[bytes]], close: Callable[[], object] | None = None) -> None:
        """Call what gives the chunks; `close` is called once at the end, the `close` of the chunks where none is given.

        Raises:
            Exception: what the call raises, unless somebody else's outcome is there to be sent.
        """
        self.guarded(lambda: self._taken(call(), close))

    def _taken(self, chunks: Iterable[bytes], close: Callable[[], object] | None) -> None:
        self._close = close or getattr(chunks, "close", None)
        self._is_whole = isinstance(chunks, list | tuple)
        self._holds_all = self._holds_all or self._is_whole
        self._chunks = iter(chunks)

    def feed(self, chunk: bytes) -> None:
        """The next chunk of the answer."""
        if not isinstance(chunk, bytes):
            raise TypeError(f"a body is made of bytes, not of {type(chunk).__name__}")
        if not chunk:
            return  # with it nothing leaves, and until something has left the head may be replaced
        if self._head is None:
            raise NoAnswer("the application gave a body before its status")
        if not self._gone:
            self._held.append(chunk)
        self._kept.add(chunk)
        if self._limit is None and not self._is_whole:
            self._limit = self.recording.limit(self._kept)
            if self._gone:
                self._limit.client_left(self.recording.now())

    def ready(self) -> None:
        """Go on until something may leave, or until all is recorded or stopped."""
        while not self.recording.done and not self.may_leave:
            if self.stop_if_due():
                return
            if self.guarded(self._pull):
                self._ended()

    def stop_if_due(self) -> bool:
        """Stop the answer where it has to be: recorded as carried out and not kept, then its chunks are closed.

        Raises:
            EndWithheld: somebody listens, who must not take it for the end.
        """
        reason = None if self._limit is None else self._limit.reason(self.recording.now())
        if reason is None:
            return False
        stopped = EndWithheld(f"the answer was stopped: {reason}")
        _log.warning("%s: the streamed answer was stopped: %s", self.recording.operation, reason)
        if self.recording.settings.within is not None:
            self._replaced(self.recording.raised(stopped), stopped)
            return True
        self.recording.answered(self._kept.cut_off(), self._error)
        self._held.clear()
        self.closed()
        if not self._gone:
            raise stopped
        return True

    @property
    def may_leave(self) -> bool:
        """Whether a chunk may leave now: a client that has all the bytes it was promised takes them for the end."""
        if self.recording.done:
            return bool(self._held)
        return bool(self._held) and not self._holds_all and not self._kept.is_complete

    def leave(self) -> bytes:
        """The chunk that may leave now."""
        self.begun = True
        return self._held.popleft()

    def rest(self) -> list[bytes]:
        """All that is still held, once it is recorded."""
        held, self._held = self._held, deque()
        return [] if self._gone else list(held)

    def __next__(self) -> bytes:
        self.begun = True  # whoever asks has sent the head
        self.ready()
        if not self._held or self._gone:
            raise StopIteration
        return self.leave()

    def close(self) -> None:
        """The server asks for no more. Where the client has left, the answer is brought to its end all the same.

        Raises:
            Exception: what the application raises on the way.
        """
        self.lose()
        try:
            self.ready()
        finally:
            self.closed()

    def lose(self) -> None:
        """Nobody takes the chunks any more: from now on they are only kept."""
        self._gone = self._holds_all = True
        if self._limit is not None:
            self._limit.client_left(self.recording.now())

    def closed(self) -> None:
        """Close what gave the chunks, once."""
        close, self._close = self._close, None
        if close is not None:
            close()

    def _pull(self) -> bool:
        """Take the next chunk; True where there is none."""
        try:
            chunk = next(self._chunks)
        except StopIteration:
            if self._head is None:
                raise NoAnswer("the application ended without an answer") from None
            return True
        self.feed(chunk)
        return False

    def guarded(self, work: Callable[[], T]) -> T | None:
        """Do work of the application: what it raises is recorded, and raised again unless `instead` is to be sent."""
        try:
            with self.recording.inside():
                return work()
        except Exception as error:
            if self.recording.done:
                raise
            self._replaced(self.recording.raised(error), error)
        except BaseException as error:
            if not self.recording.done:
                self.recording.abandon(error)
            raise
        return None

    def _ended(self) -> None:
        assert self._head is not None  # noqa: S101 - it was looked for
        verdict = self.recording.answered(self._kept.whole(), self._error)
        if isinstance(verdict, Answer):
            self._replaced(verdict.response, EndWithheld("this answer does not count; what was sent is broken off"))

    def _replaced(self, response: Response, error: Exception) -> None:
        self._held.clear()
        if not self.begun:
            self.instead = response
        elif not self._gone:
            raise error
