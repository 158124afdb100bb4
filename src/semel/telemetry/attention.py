"""What needs a person, as gauges: asked of the store by a query that is handed in, shown to whoever scrapes.

- A scrape never waits for a store: `refresh` asks, `collect` shows what was found last.
- However often and by however many it is called, `refresh` asks once at a time, and not again before `every` is over.
- What could not be found out is not shown: after a query that failed the gauges are absent, and `semel_attention_up`
  is 0. An old number would look like a present one.
- Values have no key, no scope and no tenant; the number of operations is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from semel.core.policy import Doubt
from semel.extras import requires
from semel.telemetry.labels import MAX_OPERATIONS, OperationLabels
from semel.validation import Duration, to_timedelta

if TYPE_CHECKING:
    from prometheus_client import Metric

_log = logging.getLogger("semel.telemetry")

AttentionKind = Literal["in_doubt", "lapsed", "dead_letter", "parked_key", "paused_batch", "outbox"]
"""What there can be: records in doubt, leases that are over and not swept, dead letters, held ordering keys, paused
batches, and events that are not published yet."""


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """So many of one kind, of one operation, and how long the oldest has been there.

    Attributes:
        kind: what they are.
        operation: whose they are; for `parked_key` and `outbox` the name of the stream.
        number: how many there are; 0 says that it was looked and nothing found.
        oldest_seconds: how long ago the oldest began to wait.
        policy: for `in_doubt`, what is done about it.
    """

    kind: AttentionKind
    operation: str
    number: int
    oldest_seconds: float = 0.0
    policy: Doubt | None = None


Query = Callable[[], Awaitable[Iterable[Attention]]]
"""Finds out what needs a person."""


class _Gauge(NamedTuple):
    """How one kind is shown."""

    number: str
    number_help: str
    oldest: str
    oldest_help: str
    labels: tuple[str, ...] = ("operation",)


GAUGES: Final[dict[AttentionKind, _Gauge]] = {
    "in_doubt": _Gauge(
        "semel_in_doubt",
        "Records in doubt that need a person.",
        "semel_in_doubt_oldest_seconds",
        "For how long the oldest of the records in doubt has needed a person.",
        ("operation", "policy"),
    ),
    "lapsed": _Gauge(
        "semel_lapsed_leases",
        "Attempts whose lease is over, and which no sweep has marked as in doubt yet.",
        "semel_lapsed_leases_oldest_seconds",
        "How long ago the oldest of these leases was over.",
    ),
    "dead_letter": _Gauge(
        "semel_dead_letters_waiting",
        "Dead letters that are neither redriven nor discarded.",
        "semel_dead_letters_oldest_seconds",
        "For how long the oldest dead letter has been waiting.",
    ),
    "parked_key": _Gauge(
        "semel_parked_keys",
        "Ordering keys of an outbox that are held because an event could not be published.",
        "semel_parked_keys_oldest_seconds",
        "For how long the oldest of these keys has been held.",
    ),
    "paused_batch": _Gauge(
        "semel_paused_batches",
        "Batches that are paused.",
        "semel_paused_batches_oldest_seconds",
        "For how long the oldest of these batches has been paused.",
    ),
    "outbox": _Gauge(
        "semel_outbox_backlog",
        "Events of an outbox that are not published yet.",
        "semel_outbox_oldest_seconds",
        "For how long the oldest of these events has been waiting.",
    ),
}
"""The gauges of each kind. The label `operation` holds the stream where the kind is one of an outbox."""
UP: Final = "semel_attention_up"
"""Whether the last query could find out what needs a person."""

_EVERY: Final = timedelta(seconds=15)


class AttentionCollector:
    """A collector for a registry of prometheus-client, filled by `refresh`.

    Args:
        query: finds out what needs a person.
        every: what was found is shown for so long before it is asked again.
        max_operations: how many operations get a label of their own; all others are `other`.
        monotonic: seconds that only grow.

    Raises:
        DependencyMissing: prometheus-client is not installed.
        UsageError: a setting is out of bounds.
    """

    def __init__(
        self,
        query: Query,
        *,
        every: Duration = _EVERY,
        max_operations: int = MAX_OPERATIONS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        with requires("semel.telemetry", "prometheus_client"):
            from prometheus_client.core import GaugeMetricFamily
        self._family = GaugeMetricFamily
        self._query = query
        self._every = to_timedelta("every", every, may_be_zero=True, outcome="nothing was set up").total_seconds()
        self._labels = OperationLabels(max_operations)
        self._monotonic = monotonic
        self._asked: float | None = None
        self._found: tuple[Attention, ...] | None = None
        self._asking = asyncio.Lock()

    async def refresh(self) -> None:
        """Ask again, unless that was done less than `every` ago; whoever comes meanwhile waits for the same answer.

        An error of the query is logged, and shown as `semel_attention_up 0`; it does not leave this method.
        """
        async with self._asking:
            now = self._monotonic()
            if self._asked is not None and now - self._asked < self._every:
                return
            try:
                self._found = tuple(await self._query())
            except Exception as error:  # noqa: BLE001 - whatever it is, the process goes on being scraped
                self._found = None
                _log.warning("what needs a person could not be found out: %s", type(error).__qualname__)
            self._asked = self._monotonic()

    def describe(self) -> Iterator[Metric]:
        """The gauges without values, so that a registry can refuse a second collector of the same names."""
        yield from self._families({}, is_up=False)

    def collect(self) -> Iterator[Metric]:
        """The gauges as they were found last; none, but `semel_attention_up`, before the first `refresh`."""
        found = self._found
        yield from self._families({} if found is None else self._merge(found), is_up=found is not None)

    def _merge(self, found: Iterable[Attention]) -> dict[tuple[AttentionKind, str, str], tuple[int, float]]:
        """Number and age for each series: what shares the label `other` is added up, of ages the oldest counts."""
        series: dict[tuple[AttentionKind, str, str], tuple[int, float]] = {}
        for one in found:
            place = (one.kind, self._labels.label(one.operation), one.policy or "")
            number, oldest = series.get(place, (0, 0.0))
            series[place] = (number + one.number, max(oldest, one.oldest_seconds))
        return series

    def _families(
        self, series: dict[tuple[AttentionKind, str, str], tuple[int, float]], *, is_up: bool
    ) -> Iterator[Metric]:
        for kind, gauge in GAUGES.items():
            numbers = self._family(gauge.number, gauge.number_help, labels=gauge.labels)
            ages = self._family(gauge.oldest, gauge.oldest_help, labels=gauge.labels)
            for (one, operation, policy), (number, oldest) in series.items():
                if one == kind:
                    values = (operation, policy)[: len(gauge.labels)]
                    numbers.add_metric(values, number)
                    ages.add_metric(values, oldest)
            yield numbers
            yield ages
        yield self._family(UP, "Whether the last look for what needs a person succeeded.", value=int(is_up))
