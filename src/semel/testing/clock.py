"""A virtual clock that moves only when told to. Give it to an engine, and its `store_clock` to a store.

- `advance` wakes exactly those whose instant has come; nobody ever sleeps in real time.
- A waiter that was woken, by the clock or otherwise, no longer counts as waiting, even before it had its turn to run.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from semel.validation import Duration, to_timedelta

START = datetime(2030, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, eq=False)
class _Rest:
    """Somebody who rests: until when at most, on what, and how to wake them."""

    until: float | None
    wake: threading.Event | asyncio.Event
    rouse: Callable[[], object]


class VirtualClock:
    """Both clocks of a test: the engine's monotonic one and, as `store_clock`, the store's."""

    def __init__(self, start: datetime = START) -> None:
        self._start_us = int(start.timestamp()) * 1_000_000
        self._now_us = 0
        self._lock = threading.Lock()
        self._rests: list[_Rest] = []

    def monotonic(self) -> float:
        """Seconds since the start of the test."""
        return self._now_us / 1_000_000

    def store_clock(self) -> int:
        """Microseconds since 1970, as a store counts them."""
        return self._start_us + self._now_us

    def advance(self, duration: Duration) -> None:
        """Let time pass: a `timedelta`, or so many seconds."""
        passed = to_timedelta("duration", duration, may_be_zero=True, outcome="no time has passed")
        with self._lock:
            self._now_us += passed // _MICROSECOND
            now = self.monotonic()
            due = [rest for rest in self._rests if rest.until is not None and rest.until <= now]
            self._rests = [rest for rest in self._rests if rest not in due]
        for rest in due:
            rest.rouse()

    def set_back(self, duration: Duration) -> None:
        """Let the clocks show an earlier time, as a machine's clock may that is corrected."""
        passed = to_timedelta("duration", duration, may_be_zero=True, outcome="the clock was not changed")
        with self._lock:
            self._now_us -= passed // _MICROSECOND

    def advance_to(self, instant: float) -> None:
        """Let time pass until `instant`, or the first whole microsecond after it; never back."""
        microseconds = round(instant * 1_000_000)
        if microseconds / 1_000_000 < instant:
            microseconds += 1
        self.advance(max(0, microseconds - self._now_us) / 1_000_000)

    def resting(self) -> int:
        """How many rest on this clock right now, waiting for an instant or a wake-up."""
        with self._lock:
            return sum(not rest.wake.is_set() for rest in self._rests)

    def rests_on(self, wake: threading.Event | asyncio.Event) -> bool:
        """Whether somebody rests with this very wake-up, and was not woken yet."""
        with self._lock:
            return any(rest.wake is wake and not wake.is_set() for rest in self._rests)

    def next_due(self, after: float = 0.0) -> float | None:
        """The next instant that somebody rests until; `after`: of those that are not before it."""
        with self._lock:
            instants = (rest.until for rest in self._rests if rest.until is not None)
            return min((until for until in instants if until >= after), default=None)

    def rest(self, wake: threading.Event, until: float | None) -> None:
        """Block until woken or until the clock is moved to `until`."""
        rest = _Rest(until, wake, wake.set)
        if self._begin(rest):
            try:
                wake.wait()
            finally:
                self._end(rest)

    async def arest(self, wake: asyncio.Event, until: float | None) -> None:
        """The same for a task; `advance` may be called from any thread, and does not set `wake`."""
        loop, is_due = asyncio.get_running_loop(), asyncio.Event()
        rest = _Rest(until, wake, lambda: loop.call_soon_threadsafe(is_due.set))
        if self._begin(rest):
            ends = [asyncio.ensure_future(end.wait()) for end in (wake, is_due)]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                self._end(rest)

    def _begin(self, rest: _Rest) -> bool:
        with self._lock:
            if rest.until is not None and rest.until <= self.monotonic():
                return False
            self._rests.append(rest)
            return True

    def _end(self, rest: _Rest) -> None:
        with self._lock:
            if rest in self._rests:
                self._rests.remove(rest)
