"""How often and how long to ask again: tries, pauses, and a budget for all requests of a client. No I/O.

What always holds: when a service is down, a client adds little to its load. Each retry costs a token, an answer gives
back a tenth of one, and without tokens nothing is asked again: the key stays, and `resume` asks later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

_EARNED = 0.1


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one request is tried, in seconds."""

    tries: int
    give_up_after: float
    shortest: float
    longest: float

    def pause(self, number: int, asked: float | None, chance: float) -> float:
        """How long to wait behind try `number`.

        What the service asks for is waited for, and up to half of the shortest pause more, so that those who were told
        the same do not come back together. Otherwise it is any time up to a bound that doubles with every try.
        """
        if asked is not None:
            return asked + chance * self.shortest / 2
        bound: float = min(self.longest, self.shortest * 2.0 ** min(number, 30))
        return float(bound * chance)


class Budget:
    """How many retries all requests of a client may still make."""

    def __init__(self, size: int) -> None:
        self._size = float(size)
        self._left = float(size)
        self._lock = threading.Lock()

    def spend(self) -> bool:
        """Take one, if there is one."""
        with self._lock:
            if self._left < 1:
                return False
            self._left -= 1
            return True

    def earn(self) -> None:
        """A request was answered."""
        with self._lock:
            self._left = min(self._size, self._left + _EARNED)


Chance = Callable[[], float]
