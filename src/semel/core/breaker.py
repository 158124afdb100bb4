"""The circuit breaker: when to leave a place alone that does not answer, and when to try it again.

A pure state machine; the instants and the chance come in from outside. What always holds: only a place that could not
answer counts as a failure, whatever it answered; while it is open at most one try at a time is let through, after a
rest that doubles with each failed one and never exceeds `longest`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

BreakerState = Literal["closed", "open", "half-open"]


class Breaker:
    """Closed: everything goes through. Open: nothing does. Half-open: one try is on its way.

    Args:
        failures: how many in a row open it.
        rest: seconds until the first try after that.
        longest: the longest rest.
        chance: a number from 0 up to 1; a rest is between half and all of its length, so that processes do not come
            back together.
    """

    def __init__(self, *, failures: int, rest: float, longest: float, chance: Callable[[], float]) -> None:
        self._most = failures
        self._first_rest = rest
        self._longest = longest
        self._chance = chance
        self._failed = 0
        self._tries = 0
        self._again_at = 0.0
        self._trying_since: float | None = None

    @property
    def state(self) -> BreakerState:
        """What it does with the next one who asks."""
        if self._failed < self._most:
            return "closed"
        return "open" if self._trying_since is None else "half-open"

    def admits(self, now: float) -> bool:
        """Whether somebody may ask the place now. Whoever may says how it went."""
        if self._failed < self._most:
            return True
        # A try whose end was never told (its caller is gone) does not keep the place shut for ever.
        if self._trying_since is not None and now - self._trying_since < self._longest:
            return False
        if now < self._again_at:
            return False
        self._trying_since = now
        return True

    def remaining(self, now: float) -> float:
        """Seconds until the next try; 0 when there may be one."""
        return max(0.0, self._again_at - now) if self._failed >= self._most else 0.0

    def succeeded(self) -> None:
        """The place answered."""
        self._failed = self._tries = 0
        self._trying_since = None

    def unheard(self) -> None:
        """What was let through told nothing of the place: the next try need not wait for it."""
        self._trying_since = None

    def failed(self, now: float, *, at_once: bool = False) -> None:
        """The place did not answer. `at_once`: this one failure is enough to open it."""
        self._failed = self._most if at_once else min(self._failed + 1, self._most)
        if self._failed < self._most:
            return
        length = min(self._first_rest * 2.0 ** min(self._tries, 32), self._longest)
        self._again_at = now + length * (0.5 + self._chance() / 2)
        self._tries += 1
        self._trying_since = None
