"""Turns: who of one process may claim a key in a transaction, and how the others wait for it outside of one.

A record that is claimed in a transaction is invisible until that commits, so whoever wants to wait for it would have to
ask again and again in a transaction of its own, and hold a connection of the caller's pool meanwhile. Invariants: of
all requests of a process that wait for the same key, one at a time claims; the others hold no connection, and are
served by the one look for all who wait. A turn is over when `end` is called, whatever became of the claim.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from semel.core.key import Key
from semel.core.policy import Policy
from semel.engine import call_errors
from semel.engine.background import Waiter
from semel.engine.clock import Clock
from semel.engine.effects import Crowded, News
from semel.errors import InProgress


class Queue(Protocol):
    """Where turns are taken: the moving parts of a process, or of an event loop."""

    def take_turn(self, digest: bytes) -> Waiter | None:
        """Become the one who claims; None while somebody else is."""

    def done(self, held: None, digest: bytes, waiter: Waiter | None) -> None:
        """End a turn, and let those who wait look."""


class Turn:
    """One request on its way to a claim in a transaction.

    Args:
        queue: gives the moving parts of the engine.
        clock: that of the engine.
        key: what is claimed.
        policy: says whether, and for how long, the request waits for somebody else.
        tell: told when the request is refused, because somebody else still runs the key.
    """

    def __init__(
        self, queue: Callable[[], Queue], clock: Clock, key: Key, policy: Policy, tell: Callable[[Key], None]
    ) -> None:
        self.key = key
        self._queue = queue
        self._clock = clock
        self._tell = tell
        self._waits = policy.when_running == "wait"
        self._until = clock.monotonic() + policy.wait_for.total_seconds()
        self._waiter: Waiter | None = None

    def take(self) -> bool:
        """Whether this request may claim now; otherwise it waits first.

        Raises:
            InProgress: somebody else runs the key, and as many wait already as may.
        """
        if self._waiter is not None:
            self._refuse_crowded(self._waiter.news)
        elif self._waits:
            self._waiter = self._queue().take_turn(self.key.digest)
            return self._waiter is not None
        return True

    def _refuse_crowded(self, news: News | None) -> None:
        if isinstance(news, Crowded):
            self._tell(self.key)
            raise call_errors.too_many_wait(self.key, 0, whole_process=news.whole_process)

    def refuse(self, error: InProgress) -> None:
        """Somebody else runs the key: return if there is time to wait for it.

        Raises:
            InProgress: there is none, and this is told.
        """
        if not self._waits or self._clock.monotonic() >= self._until:
            self._tell(self.key)
            raise error

    def end(self) -> None:
        """The request is over, or claims no more: the next one may."""
        if self._waits:
            self._queue().done(None, self.key.digest, self._waiter)


class SyncQueue(Queue, Protocol):
    """A queue for threads."""

    def wait(self, digest: bytes, until: float, last: Waiter | None) -> Waiter:
        """Block until there is news of the key, or until the time is over."""


class SyncTurn(Turn):
    """A turn for a thread."""

    _queue: Callable[[], SyncQueue]

    def wait(self) -> None:
        """Block until it is worth claiming: the key is settled, nobody is at it, or the time is over."""
        self._waiter = self._queue().wait(self.key.digest, self._until, self._waiter)


class AsyncQueue(Queue, Protocol):
    """A queue for an event loop."""

    def wait(self, digest: bytes, until: float, last: Waiter | None) -> Awaitable[Waiter]:
        """Wait until there is news of the key, or until the time is over."""


class AsyncTurn(Turn):
    """A turn for a task."""

    _queue: Callable[[], AsyncQueue]

    async def wait(self) -> None:
        """Wait until it is worth claiming: the key is settled, nobody is at it, or the time is over."""
        self._waiter = await self._queue().wait(self.key.digest, self._until, self._waiter)
