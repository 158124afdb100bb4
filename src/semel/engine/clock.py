"""Time in the engine: its clock, pauses between two tries and how many of them, and a death that a test plays.

The clock is only for waiting and for stopping before a lease ends, never for deciding who owns a key.

`RetryBudget` is pure: chance comes in from outside. Claims of all calls of a process are sent again out of one
budget, to which each call adds a little, so that at a loss of every reply the store is asked a tenth more and not
three times as often; what an attempt that runs has to write is sent again whatever the budget. After a `Crash` an
engine writes nothing for the attempt that raised it, and renews nothing, as if its process had been killed. Other
calls of the process go on.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from semel.errors import UsageError
from semel.validation import Duration, to_timedelta


class Clock(Protocol):
    """A monotonic clock that can be rested on until an instant or a wake-up, whichever comes first."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def rest(self, wake: threading.Event, until: float | None) -> None:
        """Block this thread until `wake` is set or the instant `until` is reached."""

    async def arest(self, wake: asyncio.Event, until: float | None) -> None:
        """The same for a task."""


class SystemClock:
    """The machine's monotonic clock."""

    monotonic = staticmethod(time.monotonic)

    def rest(self, wake: threading.Event, until: float | None) -> None:
        """Block until woken or due."""
        wake.wait(None if until is None else max(0.0, until - time.monotonic()))

    async def arest(self, wake: asyncio.Event, until: float | None) -> None:
        """Wait until woken or due."""
        if until is None:
            await wake.wait()
            return
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await wake.wait()
        except TimeoutError:
            pass


async def async_pause(clock: Clock, seconds: float, wake: asyncio.Event | None = None) -> None:
    """Let time pass, for a task; until it is woken, where that may be."""
    await clock.arest(wake or asyncio.Event(), clock.monotonic() + seconds)


def sync_pause(clock: Clock, seconds: float, wake: threading.Event | None = None) -> None:
    """Let time pass, for a thread; until it is woken, where that may be."""
    clock.rest(wake or threading.Event(), clock.monotonic() + seconds)


_FIRST, _LONGEST = 0.05, 1.0
_TIMES = 2
_PER_CALL = 0.1
_MOST = 10
_WRITE_FIRST = 0.02


class RetryBudget:
    """The budget of a process. `random` gives the jitter, from 0 to 1; `least` is what there is at the start.

    Threads share it without a lock: an update that is lost is worth one operation more or less, and costs nothing else.
    """

    __slots__ = ("_left", "_most", "_random")

    def __init__(self, random: Callable[[], float], least: float = 10.0) -> None:
        self._random = random
        self._left = least
        self._most = least * _MOST

    @property
    def left(self) -> float:
        """How many operations may be sent again now."""
        return self._left

    def on_call(self) -> None:
        """A call began."""
        left = self._left
        if left < self._most:
            self._left = left + _PER_CALL

    def of_claim(self, sent: int) -> float | None:
        """Seconds until a claim that was sent so many times is sent again; None: not any more."""
        if sent > _TIMES or self._left < 1:
            return None
        self._left -= 1
        return self.of_step(sent)

    def of_step(self, sent: int) -> float | None:
        """The same for the record of a step, whatever the budget."""
        return None if sent > _TIMES else self._random() * min(_LONGEST, _FIRST * 2.0 ** (sent - 1))

    def of_outcome(self, sent: int) -> float:
        """Seconds until an outcome is sent again: never at once, because only its lease puts an end to that."""
        return (0.5 + self._random() / 2) * min(_LONGEST, _WRITE_FIRST * 2.0 ** min(sent - 1, 32))


class Crash(BaseException):
    """Ends an attempt as SIGKILL would: its record stays as it is until its lease ends. For tests alone."""


@dataclass(frozen=True, slots=True, init=False)
class Backoff:
    """How long to wait after a failed attempt: twice as long after each, at most `most`, less a random part.

    Args:
        first: after the first attempt.
        most: at most.
        spread: how much of it is random, from 0 (nothing) to 1 (all); so that what failed together does not come back
            together.
    """

    first: timedelta
    most: timedelta
    spread: float

    def __init__(self, first: Duration = 1.0, most: Duration = timedelta(minutes=10), *, spread: float = 0.5) -> None:
        object.__setattr__(self, "first", to_timedelta("first", first, may_be_zero=True, error=UsageError))
        object.__setattr__(self, "most", to_timedelta("most", most, may_be_zero=True, error=UsageError))
        object.__setattr__(self, "spread", spread)
        if not 0 <= spread <= 1:
            raise UsageError(f"spread is between 0 and 1, not {spread!r}; nothing ran.")
        if self.most < self.first:
            raise UsageError(f"most is not less than first, and {self.most} is less than {self.first}; nothing ran.")

    def after(self, attempts: int, chance: Callable[[], float] = random.random) -> timedelta:
        """How long to wait after so many attempts; `chance` gives a number from 0 up to 1."""
        doublings = min(max(attempts, 1) - 1, 40)  # beyond, everything is more than any `most`
        seconds = min(self.first.total_seconds() * 2.0**doublings, self.most.total_seconds())
        return timedelta(seconds=seconds * (1 - self.spread * chance()))
