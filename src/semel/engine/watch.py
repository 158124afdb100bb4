"""A background watch: do what is due, rest until something is, for as long as there is something to watch.

A flow: it asks for lists of operations, for rest, and for reports; a thread (`sync_watch`) or a task (`aio_watch`) of
an event loop carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from semel.core.flow import Flow
from semel.core.operations import Answer, Operation
from semel.engine.clock import Clock
from semel.engine.effects import Rest

DOZE = 1.0
"""Seconds that an idle watch stays half awake after the last call, so that not every call of a busy process has to
rouse it: a thread that wakes up costs more than the call."""

Perform = Callable[[Sequence[Operation]], list[Answer | Exception]]


class Watched(Protocol):
    """What a watch looks after."""

    def due(self) -> float | None:
        """When there is something to do next; None: nothing is known of."""

    def tick(self, now: float) -> Flow[None]:
        """Do what is due at `now`."""


def watching(watched: Watched, clock: Clock) -> Flow[None]:
    """Do what is due, for ever."""
    while True:
        due = watched.due()
        now = clock.monotonic()
        if due is None or due > now:
            yield Rest(due)
        else:
            yield from watched.tick(now)
