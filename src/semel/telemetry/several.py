"""Several observers as one."""

from __future__ import annotations

from semel.core.observer import Observer, Signal, Tracer, notify, tracer_of
from semel.errors import UsageError


class Observers:
    """Hands each signal to all of them, in this order; an error of one keeps no other from it.

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
        self._observers = observers
        self.tracer: Tracer | None = tracers[0] if tracers else None

    def observe(self, signal: Signal, /) -> None:
        """Hand `signal` on."""
        for observer in self._observers:
            notify(observer, signal)
