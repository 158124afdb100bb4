"""The observer that the table `[telemetry]` of a settings file asks for."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from semel.core.observer import Logging, Observer
from semel.errors import UsageError
from semel.telemetry.labels import MAX_OPERATIONS
from semel.telemetry.several import Observers

if TYPE_CHECKING:
    from semel.telemetry.prometheus import PrometheusObserver

_SHARED: Final[dict[int, PrometheusObserver]] = {}
"""What counts in the registry of the process, by its bound; at most one."""
_SHARING: Final = Lock()


def observer_of(telemetry: Mapping[str, Any]) -> Observer:
    """What a settings file asks for; without `logs`, what needs a look goes to `logging` all the same.

    Metrics are shown by the registry that prometheus-client has for the process, beside the application's own.

    Raises:
        UsageError: a setting belongs to something that is not switched on, or is out of bounds.
        DependencyMissing: a package is not installed.
    """
    for name, owner in (("max_operations", "prometheus"), ("keep_traces", "opentelemetry")):
        if name in telemetry and not telemetry.get(owner):
            message = f"telemetry.{name} is about {owner}, which is not switched on; nothing was opened."
            raise UsageError(message)
    observers: list[Observer] = [_logging(told_all=telemetry.get("logs", False))]
    if telemetry.get("prometheus"):
        observers.append(_of_process(telemetry.get("max_operations", MAX_OPERATIONS)))
    if telemetry.get("opentelemetry"):
        from semel.telemetry.opentelemetry import OpenTelemetryObserver

        observers.append(OpenTelemetryObserver(keep_traces=telemetry.get("keep_traces", False)))
    return observers[0] if len(observers) == 1 else Observers(*observers)


def _logging(*, told_all: bool) -> Observer:
    if not told_all:
        return Logging()
    from semel.telemetry.logs import LogObserver

    return LogObserver()


def _of_process(max_operations: int) -> PrometheusObserver:
    """One for all engines of the process: a registry shows a metric once.

    Raises:
        UsageError: another engine of the process was given another bound.
    """
    from semel.telemetry.prometheus import REGISTRY, PrometheusObserver

    with _SHARING:
        for bound, observer in _SHARED.items():
            if bound == max_operations:
                return observer
            raise UsageError(
                f"telemetry.max_operations is {max_operations} here and {bound} for another engine of this process, "
                f"and both count in one registry; nothing was opened. Write the same number."
            )
        made = _SHARED[max_operations] = PrometheusObserver(REGISTRY, max_operations=max_operations)
        return made
