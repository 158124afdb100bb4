"""Several observers as one."""

from __future__ import annotations

from semel.core.observer import CountCall, Logging, Observer, Signal, Tracer, counter_of, is_heard, notify, tracer_of
from semel.errors import UsageError


class Observers:
    """Hands each signal to all of them, in this order; an error of one keeps no other from it.

    Attributes:
        all: those that were given.

    Raises:
        UsageError: none was given, or more than one makes spans.
    """

    def __init__(self, *observers: Observer) -> None:
        if not observers:
            message = "Observers() needs at least one observer; nothing was set up."
            raise UsageError(message)
        tracers = [tracer for tracer in map(tracer_of, observers) if tracer is not None]
        if len(tracers) > 1:
            message = f"One observer can make the spans of a call, and {len(tracers)} would; nothing was set up."
            raise UsageError(message)
        self.all = observers
        self.count_call = _common_counter(observers)
        self.tracer: Tracer | None = tracers[0] if tracers else None

    def observe(self, signal: Signal, /) -> None:
        """Hand `signal` on."""
        for observer in self.all:
            notify(observer, signal)


def _common_counter(observers: tuple[Observer, ...]) -> CountCall | None:
    """What counts calls without signals, where no other of these observers would hear the signals."""
    heard = [observer for observer in observers if type(observer) is not Logging or is_heard(observer, "ran")]
    return counter_of(heard[0]) if len(heard) == 1 else None
