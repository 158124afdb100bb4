"""When an answer that is sent in chunks is stopped before its end. No I/O.

Invariants: an answer is never stopped because its client left while it can still be kept and replayed in time; one of
which nothing will be kept is stopped as soon as nobody listens; and none outlives `max_runtime`, after which its lease
is no longer renewed. What was answered whole is never stopped.
"""

from __future__ import annotations

from collections.abc import Iterable

from semel.engine.clock import Clock
from semel.http.exchange import Go, NoAnswer, policy_of
from semel.http.kept import Kept


class StreamLimit:
    """The limits of one answer, which begins to leave now.

    Args:
        going: the call.
        kept: what is kept of its answer.
        now: the instant, by the engine's clock.
    """

    def __init__(self, going: Go, kept: Kept, now: float) -> None:
        settings = going.route.settings
        self._kept = kept
        self._keeps = settings.store == "response" and settings.meaning(kept.status) == "stored"
        self._is_joined = going.opened.is_joined
        self._after_disconnect = settings.after_disconnect.total_seconds()
        end = going.opened.claimed_at + policy_of(going.route).max_runtime.total_seconds()
        # An answer that only begins after max_runtime gets a moment all the same: most are whole then.
        self._end = end if now < end else now + self._after_disconnect
        self._left: float | None = None

    def client_left(self, now: float) -> None:
        """Nobody listens any more."""
        if self._left is None:
            self._left = now

    def due(self) -> float:
        """When it is stopped, as far as is known now; the past means now."""
        if self._left is None or self._is_joined:
            return self._end  # a transaction ends with its answer, whoever listens
        if self._kept.is_over_limit or not self._keeps:
            return self._left
        return min(self._end, self._left + self._after_disconnect)

    def reason(self, now: float) -> str | None:
        """Why it is stopped at this instant, if it is."""
        if now < self.due():
            return None
        if now >= self._end:
            return "it went on for longer than max_runtime"
        if self._kept.is_over_limit or not self._keeps:
            return "its client left, and nothing of it would be kept"
        return "its client left, and it went on for longer than after_disconnect"

    def check(self, now: float) -> None:
        """Refuse to go on with an answer that has to stop.

        Raises:
            NoAnswer: it has to stop; nothing of it was sent.
        """
        reason = self.reason(now)
        if reason is not None:
            raise NoAnswer(f"the answer was stopped: {reason}")


def gather(chunks: Iterable[bytes], limit: StreamLimit, clock: Clock) -> list[bytes]:
    """All chunks of an answer of which nothing is sent before its end.

    Raises:
        NoAnswer: it has to stop before that.
    """
    gathered: list[bytes] = []
    for chunk in chunks:
        gathered.append(chunk)
        limit.check(clock.monotonic())
    return gathered
