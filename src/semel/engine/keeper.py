"""The keeper: looks for every waiter of a process, and writes down replays.

What a watch looks after. What always holds: an error of the store never ends it, and it rests when there is nothing to
do. Leases are not its business (`renewal`): what callers wait for must not hold them up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from semel.core.flow import Flow
from semel.core.operations import Operation, Read, Tally
from semel.engine.clock import Clock
from semel.engine.effects import Together
from semel.engine.waiting import Waiter, Waiting

TALLY_EVERY = 10.0
TALLY_AGAIN = 0.1
_MOST_COUNTED = 1000
_MOST_WRITTEN = 32


class Keeper:
    """What a process keeps an eye on: who waits. `wake_up` is told which waiter has news."""

    def __init__(self, clock: Clock, waiting: Waiting, wake_up: Callable[[Waiter], None]) -> None:
        self.waiting = waiting
        self.replays: Counter[bytes] = Counter()
        self._clock = clock
        self._wake_up = wake_up
        self._tally_at: float | None = None

    def replayed(self, digest: bytes) -> bool:
        """Count a replay, to be written down later; whether it is the first since the last time that was done.

        Under heavy load some stay uncounted.
        """
        if digest in self.replays or len(self.replays) < _MOST_COUNTED:
            self.replays[digest] += 1
        first = self._tally_at is None
        if first:
            self._tally_at = self._clock.monotonic() + TALLY_EVERY
        return first

    def due(self) -> float | None:
        """When the keeper has something to do next."""
        times = (self.waiting.due(), self._tally_at)
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: float) -> Flow[None]:
        """Do what is due now."""
        late, reads = self.waiting.look(now)
        for waiter in late:
            self._wake_up(waiter)
        operations: list[Operation] = [*reads, *self._tallies(now)]
        if not operations:
            return
        answers = yield Together(operations)
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(operation, Read):  # a tally that failed is not worth a second try
                for waiter in self.waiting.looked(operation, answer):
                    self._wake_up(waiter)

    def _tallies(self, now: float) -> list[Operation]:
        if self._tally_at is None or now < self._tally_at:
            return []
        tallies = self.drain(_MOST_WRITTEN)
        self._tally_at = now + TALLY_AGAIN if self.replays else None
        return tallies

    def drain(self, most: int = _MOST_COUNTED) -> list[Operation]:
        """Replays counted and not yet written down, a few at a time, so that no caller waits behind them."""
        digests = list(self.replays)[:most]
        return [Tally(digest, self.replays.pop(digest)) for digest in digests]
