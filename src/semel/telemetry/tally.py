"""Counts of what signals told: kept as plain numbers, and shown as families of prometheus-client when somebody scrapes.

- Noting the end of a call is one append, which is atomic for threads. Calls are added up some hundred at a time, or
  when somebody looks: metrics must not slow down what they measure, and a counter of prometheus-client takes a lock
  each time.
- Nothing is lost in between: whoever looks adds up first.
- After a fork the child begins at zero; what the parent has counted is shown by the parent.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final

from semel.core.key import is_internal
from semel.core.observer import Signal
from semel.telemetry.labels import OperationLabels

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histograms, in seconds."""
CALLS: Final = frozenset(
    {
        "ran",
        "replayed",
        "failed",
        "rolled_back",
        "in_doubt",
        "lease_lost",
        "waited",
        "refused",
        "reused",
        "store_down",
    }
)
"""The signals that end a call: outcomes of `semel_operations_total`."""
TIMED: Final = frozenset({"ran", "replayed"})
"""The outcomes of which it is known how long the call took."""
NOTICES: Final = frozenset({"lapsed", "stalled", "not_kept", "unprotected"})
"""What is worth a look and ends no call: outcomes of `semel_notices_total`."""
_PUBLISHING: Final = {"published": "published", "parked": "parked", "publishing_failed": "failed"}
_FOLD_AT: Final = 512
_Call = tuple[str, str, float, float | None]
"""The end of a call: its operation and kind, how long it took, and its handler."""


class Times:
    """How long something took: how often, in which bucket, and all in all."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Add one."""
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds

    def add_many(self, seconds: list[float]) -> None:
        """Add many; the list is put in order."""
        if len(seconds) < len(BUCKETS):
            for one in seconds:
                self.add(one)
            return
        seconds.sort()
        before = 0
        for place, bound in enumerate(BUCKETS):
            until = bisect_right(seconds, bound, before)
            self.buckets[place] += until - before
            before = until
        self.buckets[-1] += len(seconds) - before
        self.seconds += sum(seconds)

    def cumulative(self) -> Sequence[tuple[str, float]]:
        """Upper bounds with the number up to each, as Prometheus has them."""
        count, shown = 0, []
        for bound, number in zip((*map(str, BUCKETS), "+Inf"), self.buckets, strict=True):
            count += number
            shown.append((bound, float(count)))
        return shown


class Tally:
    """All counts of one observer.

    Args:
        labels: bounds the names of operations.
        clock: seconds since the epoch, for when the last sweep was.

    Attributes:
        calls: how calls ended, by operation and outcome.
        call_times: how long they took, by operation and outcome.
        handler_times: how long their handlers took, by operation.
        caches: answers of caches, by tier and answer.
        consumed: deliveries, by operation and outcome.
        letters: dead letters, by operation and reason.
        published: what became of events of an outbox, by stream and outcome.
        items: items of batches, by operation and status.
        notices: what is worth a look, by operation and kind.
        swept: records that sweeps have dealt with.
        sweeps: how many there were.
        last_sweep: when the last one ended; None: there was none in this process.
        open_circuits: stores and caches that are left alone now, by kind.
    """

    def __init__(self, labels: OperationLabels, clock: Callable[[], float] = time.time) -> None:
        self._labels = labels
        self._clock = clock
        self._clear()
        method = weakref.WeakMethod(self._clear)
        os.register_at_fork(after_in_child=lambda: _call(method()))

    def _clear(self) -> None:
        self._pending: deque[_Call] = deque()
        self._folding = threading.Lock()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.call_times: dict[tuple[str, str], Times] = {}
        self.handler_times: dict[str, Times] = {}
        self.caches: Counter[tuple[str, str]] = Counter()
        self.consumed: Counter[tuple[str, str]] = Counter()
        self.letters: Counter[tuple[str, str]] = Counter()
        self.published: Counter[tuple[str, str]] = Counter()
        self.items: Counter[tuple[str, str]] = Counter()
        self.notices: Counter[tuple[str, str]] = Counter()
        self.swept = self.sweeps = 0
        self.last_sweep: float | None = None
        self.open_circuits = {"store": 0, "cache": 0}

    def note(self, signal: Signal) -> None:
        """Count a signal; one that ends a call is noted, to be added up with others."""
        if signal.kind in CALLS:
            self.note_call(signal.kind, signal.operation, signal.seconds, signal.handler_seconds)
        else:
            with self._folding:
                self._add_other(signal)

    def note_call(self, kind: str, operation: str, seconds: float, handler_seconds: float | None) -> None:
        """Note the end of a call, to be added up with others."""
        pending = self._pending
        pending.append((operation, kind, seconds, handler_seconds))
        # Whoever finds another one at it leaves it to that one, which takes all that there is.
        if len(pending) >= _FOLD_AT and self._folding.acquire(blocking=False):
            try:
                self._fold()
            finally:
                self._folding.release()

    def add_up(self) -> None:
        """Add up all that was noted until now."""
        with self._folding:
            self._fold()

    def _fold(self) -> None:
        take = self._pending.popleft
        groups: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
        for _ in range(len(self._pending)):
            operation, kind, seconds, handler_seconds = take()
            group = groups.get((operation, kind))
            if group is None:
                group = groups[operation, kind] = ([], [])
            group[0].append(seconds)
            if handler_seconds is not None:
                group[1].append(handler_seconds)
        for (operation, kind), (seconds_of_calls, seconds_of_handlers) in groups.items():
            if not is_internal(operation):
                self._add_calls((self._labels.label(operation), kind), seconds_of_calls, seconds_of_handlers)

    def _add_calls(self, place: tuple[str, str], of_calls: list[float], of_handlers: list[float]) -> None:
        """Add the calls of one operation that ended in one way."""
        self.calls[place] += len(of_calls)
        if place[1] in TIMED:
            self.call_times.setdefault(place, Times()).add_many(of_calls)
        if of_handlers:
            self.handler_times.setdefault(place[0], Times()).add_many(of_handlers)

    def _add_other(self, signal: Signal) -> None:
        """Add a signal that ends no call."""
        kind, place = signal.kind, (self._labels.label(signal.operation), signal.detail)
        if kind == "cache_hit":
            self.caches[signal.detail, "hit"] += 1
        elif kind == "cache_miss":
            self.caches["store", "miss"] += 1
        elif kind == "consumed":
            self.consumed[place] += 1
        elif kind == "dead_letter":
            self.letters[place] += 1
        elif kind == "batch_items":
            self.items[place] += signal.number
        elif kind in _PUBLISHING:
            self.published[place[0], _PUBLISHING[kind]] += signal.number
        elif kind in NOTICES:
            self.notices[place[0], kind] += 1
        elif kind == "swept":
            self.sweeps += 1
            self.swept += signal.number
            self.last_sweep = self._clock()
        else:
            self._count_circuit(kind)

    def _count_circuit(self, kind: str) -> None:
        which, _, change = kind.partition("_")
        if which in self.open_circuits and change in ("open", "closed"):
            self.open_circuits[which] = max(0, self.open_circuits[which] + (1 if change == "open" else -1))


def _call(function: Callable[[], None] | None) -> None:
    if function is not None:
        function()
