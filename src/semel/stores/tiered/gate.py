"""The gate in front of a cache: shut while the cache does not answer, so that callers go past it at once.

What always holds: a round counts once, however many it was for. While it is shut one look at a time finds out whether
the cache is back. Each change of it is told to the observer, once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from semel.core.breaker import Breaker
from semel.core.observer import Event, Observer, is_heard, notify


class Gate:
    """A circuit breaker that threads share."""

    def __init__(self, breaker: Breaker, monotonic: Callable[[], float], observer: Observer) -> None:
        self._breaker = breaker
        self._monotonic = monotonic
        self._observer = observer
        self._lock = threading.Lock()
        self._shut = False

    def renew_lock(self) -> None:
        """After a fork: whoever held the lock may not be here."""
        self._lock = threading.Lock()

    @property
    def shut(self) -> bool:
        """Whether callers go past the cache, except for the one who tries it."""
        return self._shut

    @property
    def resting(self) -> bool:
        """Whether nobody is trying: what still waits to be sent need not be."""
        return self._shut and self._breaker.state == "open"

    def admits(self) -> bool:
        """Whether this caller may look. Of those who come while it is shut, one at a time may."""
        if not self._shut:
            return True
        with self._lock:
            return self._breaker.admits(self._monotonic())

    def answered(self) -> None:
        """The cache answered a round."""
        with self._lock:
            self._breaker.succeeded()
            changed, self._shut = self._shut, False
        if changed:
            self._tell("cache_closed", "")

    def silent(self, error: Exception) -> None:
        """The cache did not answer a round."""
        with self._lock:
            self._breaker.failed(self._monotonic())
            was, self._shut = self._shut, self._breaker.state != "closed"
            changed = self._shut and not was
        if changed:
            self._tell("cache_open", type(error).__name__)

    def _tell(self, kind: Literal["cache_open", "cache_closed"], detail: str) -> None:
        if is_heard(self._observer, kind):
            notify(self._observer, Event(kind=kind, operation="", reference="", detail=detail))
