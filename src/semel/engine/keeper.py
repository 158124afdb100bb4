"""The keeper: the one timer of a process. It renews every lease, looks for every waiter, and writes down replays.

A flow: it asks for lists of operations and for rest, and a shell gives it a thread or a task. What always holds: an
error of the store never ends it, and it rests when there is nothing to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from semel.core.flow import Flow
from semel.core.operations import Operation, Read, Renew, Tally
from semel.engine.clock import Clock
from semel.engine.effects import Rest, Together
from semel.engine.heartbeat import Heartbeat
from semel.engine.waiting import Waiter, Waiting

# With nothing to do a keeper stays half awake for so many seconds after the last call, so that in a busy process not
# every call has to rouse it: a thread that wakes up costs more than the call.
DOZE = 1.0
TALLY_EVERY = 10.0
TALLY_AGAIN = 0.1
_MOST_COUNTED = 1000
_MOST_WRITTEN = 32


class Keeper:
    """What a process keeps an eye on: leases, and who waits. `wake_up` is told which waiter has news."""

    def __init__(self, clock: Clock, waiting: Waiting, wake_up: Callable[[Waiter], None]) -> None:
        self.heartbeat = Heartbeat()
        self.waiting = waiting
        self.replays: Counter[bytes] = Counter()
        self._clock = clock
        self._wake_up = wake_up
        self._tally_at: float | None = None

    def replayed(self, digest: bytes) -> None:
        """Count a replay; it is written down later, off the way of callers. Under heavy load some stay uncounted."""
        if digest in self.replays or len(self.replays) < _MOST_COUNTED:
            self.replays[digest] += 1
        if self._tally_at is None:
            self._tally_at = self._clock.monotonic() + TALLY_EVERY

    def due(self) -> float | None:
        """When the keeper has something to do next."""
        times = (self.heartbeat.due(), self.waiting.due(), self._tally_at)
        return min((time for time in times if time is not None), default=None)

    def watch(self) -> Flow[None]:
        """Do what is due, for ever."""
        while True:
            due = self.due()
            now = self._clock.monotonic()
            if due is None or due > now:
                yield Rest(due)
            else:
                yield from self.tick(now)

    def tick(self, now: float) -> Flow[None]:
        """Do what is due now."""
        renewals = self.heartbeat.beats(now)
        late, reads = self.waiting.look(now)
        for waiter in late:
            self._wake_up(waiter)
        operations: list[Operation] = [*renewals, *reads, *self._tallies(now)]
        if not operations:
            return
        answers = yield Together(operations)
        for operation, answer in zip(operations, answers, strict=True):
            match operation:
                case Renew():
                    self.heartbeat.answered(operation, answer, now)
                case Read():
                    for waiter in self.waiting.looked(operation, answer):
                        self._wake_up(waiter)
                case _:
                    pass  # a tally that failed is not worth a second try

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
