"""Sending again: after how long, and how often in all, so that a store in trouble is not asked three times as much.

Pure: chance comes in from outside. What always holds: claims of all calls of a process are sent again out of one
budget, to which each call adds a little, so that at a loss of every reply the store is asked a tenth more and not
three times as often; what an attempt that runs has to write is sent again whatever the budget.
"""

from __future__ import annotations

from collections.abc import Callable

_FIRST, _LONGEST = 0.05, 1.0
_TIMES = 2
_PER_CALL = 0.1
_MOST = 10
_WRITE_FIRST = 0.02


class Resends:
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

    def called(self) -> None:
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
