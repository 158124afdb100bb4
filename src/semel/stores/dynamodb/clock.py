"""The clock of the service, estimated from the Date header of its replies: conditions of DynamoDB have no `now`.

- The true time of the service lies between `low` and `high`. Whether a lease or a record has ended is judged at `low`;
  what is promised to last is written from `high`. So neither a wrong local clock nor the coarse Date lets anyone take
  over early.
- The local clock only measures durations; it may be set at will.

    request sent          Date made          reply received      in this order; a Date is cut to the second
         |                    |                    |
    service's clock                           service's clock
    at most Date + 1 s                        at least Date
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from semel.stores.settings import StoreClock

SECOND: Final = 1_000_000
_SPREAD: Final = 100_000
"""How far the clocks of two machines of the service may be apart."""
_DRIFT_PER: Final = 2_000
"""This machine's clock drifts by at most one part in so many: twice what NTP may slew."""
_BOOT_TIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
WIDEST: Final = 3 * SECOND
"""With less than this known, a reply is waited for before anything is judged."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant of the service, as far as it is known."""

    low: int
    high: int


def span_clock() -> int:
    """Microseconds of this machine, never set back; only their differences mean anything.

    Where there is a clock that goes on while the machine sleeps, it is that one: what was promised from an instant
    before a long sleep would be over at once.
    """
    return (time.monotonic_ns() if _BOOT_TIME is None else time.clock_gettime_ns(_BOOT_TIME)) // 1000


def instant_of(date: str) -> int | None:
    """The instant that a Date header names; None where it is none."""
    try:
        return int(parsedate_to_datetime(date).timestamp()) * SECOND
    except (TypeError, ValueError):
        return None


class ServiceClock:
    """What is known of the service's now. Every reply narrows it; shared by all drivers of a store."""

    def __init__(self, span: StoreClock = span_clock) -> None:
        self.span = span
        self._lock = threading.Lock()
        self._known: tuple[int, int, int] | None = None
        self._latest = 0
        # A fork while another thread holds the lock would leave it locked for ever in the child.
        renew = weakref.WeakMethod(self._renew_lock)
        os.register_at_fork(after_in_child=lambda: _call(renew()))

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def hear(self, sent: int, received: int, date: int) -> None:
        """Take in a reply with this Date, whose request was sent, and which was received, at these local instants."""
        low, high = date - received - _SPREAD, date + SECOND - sent + _SPREAD
        with self._lock:
            if self._known is not None:
                known_low, known_high = self._widened(received)
                both = max(low, known_low), min(high, known_high)
                if both[0] <= both[1]:
                    low, high = both
                else:
                    self._latest = 0  # this machine slept, or one of the two is wrong: only the newer one counts
            self._known = (low, high, received)

    def moment(self) -> Moment | None:
        """Now; None while nothing was heard. What is promised never goes back: a narrowing would look like that."""
        with self._lock:
            if self._known is None:
                return None
            here = self.span()
            low, high = self._widened(here)
            self._latest = max(self._latest, high + here)
            return Moment(low + here, self._latest)

    def _widened(self, here: int) -> tuple[int, int]:
        low, high, heard = self._known or (0, 0, 0)
        drift = max(here - heard, 0) // _DRIFT_PER
        return low - drift, high + drift


class VirtualServiceClock(ServiceClock):
    """A test's clock instead: exact."""

    def __init__(self, clock: StoreClock) -> None:
        super().__init__()
        self._clock = clock

    def moment(self) -> Moment:
        """Now, by the test."""
        now = self._clock()
        return Moment(now, now)


def _call(function: Callable[[], None] | None) -> None:
    if function is not None:
        function()
