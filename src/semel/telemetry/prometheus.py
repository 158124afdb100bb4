"""Metrics for Prometheus, made from signals.

- Labels are `operation` and `outcome`, and `tier` and `answer` of caches. No key, no scope and no tenant is one; the
  number of operations is bounded.
- Claims that semel makes for itself (`semel:…`) are not counted: they are no work of the application.
- What alerts count is shown as 0 before it first happens: `increase` does not see a series begin.
- The numbers are this process's own. What is true of the store as a whole is in `semel.telemetry.attention`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from semel.core.events.letters import REASONS
from semel.core.observer import Signal
from semel.errors import UsageError
from semel.extras import requires
from semel.telemetry.labels import MAX_OPERATIONS, OperationLabels
from semel.telemetry.tally import Tally, Times

with requires("semel.telemetry.prometheus", "prometheus_client"):
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["COUNTERS", "REGISTRY", "PrometheusObserver"]

_MULTIPROCESS: Final = "PROMETHEUS_MULTIPROC_DIR"


class _Counter(NamedTuple):
    """A counter: its name without `_total`, what it says, and its labels."""

    name: str
    help: str
    labels: tuple[str, ...]
    values: str
    """The attribute of the tally that it shows."""


COUNTERS: Final = (
    _Counter("semel_operations", "Calls of operations, by how they ended.", ("operation", "outcome"), "calls"),
    _Counter("semel_cache", "Answers of the caches in front of the store.", ("tier", "answer"), "caches"),
    _Counter(
        "semel_events_consumed",
        "Deliveries that consumers took, by what came of them.",
        ("operation", "outcome"),
        "consumed",
    ),
    _Counter(
        "semel_dead_letters",
        "Deliveries that became dead letters, by reason.",
        ("operation", "outcome"),
        "letters",
    ),
    _Counter(
        "semel_events_published",
        "Events of an outbox that were published, parked, or not taken by the broker and tried again.",
        ("operation", "outcome"),
        "published",
    ),
    _Counter("semel_batch_items", "Items of batches, by how they ended.", ("operation", "outcome"), "items"),
    _Counter(
        "semel_notices",
        "What is worth a look: lapsed leases, stalls, results that cannot be kept, calls without protection.",
        ("operation", "outcome"),
        "notices",
    ),
)
"""The counters with labels."""
_ALERTED: Final = ("lease_lost", "reused")
"""How a call ends that an alert counts."""


class PrometheusObserver:
    """An observer whose numbers a registry of prometheus-client shows.

    Args:
        registry: where to show them; by default one of its own, `.registry`.
        max_operations: how many operations get a label of their own; all others are `other`.

    Raises:
        UsageError: the bound is less than one, or prometheus-client is in its mode for several processes.
        ValueError: the registry shows metrics of another one already.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, max_operations: int = MAX_OPERATIONS) -> None:
        if os.environ.get(_MULTIPROCESS):
            raise UsageError(
                f"{_MULTIPROCESS} is set, and these metrics are kept in memory, so that a scrape would show one "
                f"process of several; nothing was set up. Have every process scraped by itself, on a port of its own."
            )
        self._tally = Tally(OperationLabels(max_operations))
        self.count_call = self._tally.note_call
        self.registry = CollectorRegistry() if registry is None else registry
        self.registry.register(self)

    def observe(self, signal: Signal, /) -> None:
        """Count `signal`."""
        self._tally.note(signal)

    def collect(self) -> Iterator[Metric]:
        """Everything that was counted until now."""
        tally = self._tally
        tally.add_up()
        for counter in COUNTERS:
            values: Mapping[tuple[str, str], int] = getattr(tally, counter.values)
            shown = CounterMetricFamily(counter.name, counter.help, labels=counter.labels)
            counted = dict(tuple(values.items()))
            for labels in _alert_labels(tally, counter.values):
                counted.setdefault(labels, 0)
            for labels, value in counted.items():
                shown.add_metric(labels, value)
            yield shown
        yield self._duplicates(tally)
        yield _histogram(
            "semel_operation_seconds",
            "How long calls took, waiting included.",
            ("operation", "outcome"),
            tally.call_times,
        )
        yield _histogram(
            "semel_handler_seconds",
            "How long handlers ran, without claim, waiting and record.",
            ("operation",),
            {(operation,): times for operation, times in tuple(tally.handler_times.items())},
        )
        yield from self._plain(tally)

    def _duplicates(self, tally: Tally) -> Metric:
        shown = CounterMetricFamily("semel_duplicates", "Calls that were answered by a replay.", labels=("operation",))
        for (operation, outcome), value in tuple(tally.calls.items()):
            if outcome == "replayed":
                shown.add_metric((operation,), value)
        return shown

    def _plain(self, tally: Tally) -> Iterator[Metric]:
        yield CounterMetricFamily("semel_sweeps", "Sweeps of this process that ended.", value=tally.sweeps)
        yield CounterMetricFamily("semel_swept_records", "Records that sweeps dealt with.", value=tally.swept)
        last = GaugeMetricFamily("semel_last_sweep_timestamp_seconds", "When the last sweep of this process ended.")
        if tally.last_sweep is not None:
            last.add_metric((), tally.last_sweep)
        yield last
        for which, value in tally.open_circuits.items():
            name = f"semel_{which}_open"
            yield GaugeMetricFamily(name, f"Circuits to a {which} that does not answer and is left alone.", value=value)


def _alert_labels(tally: Tally, values: str) -> Iterable[tuple[str, str]]:
    """The labels of what alerts count, whether it has happened or not."""
    match values:
        case "calls":
            return product({operation for operation, _ in tuple(tally.calls)}, _ALERTED)
        case "letters":
            return product({operation for operation, _ in tuple(tally.consumed)}, REASONS)
        case "notices":
            return (("", "stalled"),)
    return ()


def _histogram(name: str, text: str, labels: tuple[str, ...], series: Mapping[Any, Times]) -> Metric:
    shown = HistogramMetricFamily(name, text, labels=labels)
    for values, times in tuple(series.items()):
        shown.add_metric(values, times.cumulative(), times.seconds)
    return shown
