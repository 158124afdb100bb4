"""Spans for OpenTelemetry, by its API alone: which SDK takes them, and where they go, is the application's affair.

- A call is one span. It begins when the call began, is the current one while the handler runs, and ends when the
  outcome is recorded, so that what the handler does is inside it and what the store made of it is known.
- What never reached a handler (a replay, a refusal) is a span made afterwards, with the times that it had.
- A replay is linked to the first run. Its span is remembered in this process, for the last so many records; with
  `keep_traces` the span that a key is claimed in is kept with the record too, so that other processes find it.
- A consumer and a relay make spans by the messaging conventions, linked to the spans in which the events were made.
- An attribute never holds a key, a scope or a value; of an error only its class.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Final

from semel.core.key import is_internal
from semel.core.observer import Signal, Tracer, Work
from semel.errors import UsageError
from semel.extras import requires
from semel.telemetry.tally import CALLS

with requires("semel.telemetry.opentelemetry", "opentelemetry"):
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

MAX_REMEMBERED: Final = 10_000
"""Of how many records the span of the first run is remembered in this process."""
_MAX_LINKS: Final = 128
_EVENT: Final = "event:"
_ERRORS: Final = frozenset({"failed", "in_doubt", "lease_lost", "store_down", "reused"})
_NAMES: Final = {"ran": "semel.run", "replayed": "semel.replay"}
_DELIVERY_ERRORS: Final = frozenset({"failed", "unavailable", "in_doubt"})
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class OpenTelemetryObserver:
    """An observer that makes spans.

    Args:
        provider: makes the tracer; by default the one that the application has set for the process.
        keep_traces: keep the span in which a key is claimed with its record, as the tag `semel.trace`, so that a replay
            in another process is linked, too. That is a row more in the table of searches for each first run.
        max_remembered: of how many records the first run's span is remembered in this process.
        clock: nanoseconds since the epoch.

    Raises:
        UsageError: the bound is less than zero.
    """

    def __init__(
        self,
        provider: TracerProvider | None = None,
        *,
        keep_traces: bool = False,
        max_remembered: int = MAX_REMEMBERED,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        if type(max_remembered) is not int or max_remembered < 0:
            message = (
                f"max_remembered must be a whole number, zero or more, not {max_remembered!r}; nothing was set up."
            )
            raise UsageError(message)
        self._spans = _Spans(provider, clock, keep_traces=keep_traces)
        self._first = _FirstRuns(max_remembered)
        self.tracer: Tracer = self._spans

    def observe(self, signal: Signal, /) -> None:
        """End the span of what `signal` tells of, or make one."""
        if signal.kind in CALLS:
            if not is_internal(signal.operation):
                self._end_call(signal)
        elif signal.kind == "consumed" and isinstance(signal.trace, Span):
            _end_delivery(signal.trace, signal)

    def _end_call(self, signal: Signal) -> None:
        span = signal.trace if isinstance(signal.trace, Span) else self._make_span(signal)
        span.set_attribute("semel.outcome", signal.kind)
        if signal.tier is not None:
            span.set_attribute("semel.tier", signal.tier)
        if signal.handler_seconds is not None:
            span.set_attribute("semel.handler_seconds", signal.handler_seconds)
        if signal.detail:
            span.set_attribute("error.type", signal.detail)
        if signal.kind in _ERRORS:
            span.set_status(Status(StatusCode.ERROR, signal.detail or signal.kind))
        if signal.kind == "ran":
            self._first.remember(signal.reference, span.get_span_context())
        span.end()

    def _make_span(self, signal: Signal) -> Span:
        """The span of a call that reached no handler here."""
        links: tuple[Link, ...] = ()
        if signal.kind == "replayed":
            first = self._first.find(signal.reference) or _context_of(signal.first_trace)
            links = () if first is None else (Link(first, {"semel.link": "first_run"}),)
        name = _NAMES.get(signal.kind, "semel.claim")
        return self._spans.start(
            f"{name} {signal.operation}",
            SpanKind.INTERNAL,
            {"semel.operation": signal.operation, "semel.reference": signal.reference},
            seconds=signal.seconds,
            links=links,
        )


class _FirstRuns:
    """The spans of the last so many records that ran here, by reference."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._contexts: OrderedDict[str, SpanContext] = OrderedDict()
        self._lock = Lock()

    def remember(self, reference: str, context: SpanContext) -> None:
        """Remember a span; the oldest one is forgotten where there are too many."""
        if not context.is_valid:
            return
        with self._lock:
            self._contexts[reference] = context
            while len(self._contexts) > self._most:
                self._contexts.popitem(last=False)

    def find(self, reference: str) -> SpanContext | None:
        """The span that ran it here, if it is remembered."""
        return self._contexts.get(reference)


class _Spans:
    """Makes spans of work that is under way."""

    def __init__(self, provider: TracerProvider | None, clock: Callable[[], int], *, keep_traces: bool) -> None:
        self._tracer = trace.get_tracer("semel", tracer_provider=provider)
        self._clock = clock
        self.keeps_traces = keep_traces

    def traceparent(self) -> str | None:
        """The current span as a W3C trace context; None: there is none."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier.get("traceparent")

    @contextmanager
    def begin(self, work: Work, /) -> Iterator[object]:
        """A block in which the span of `work` is the current one. That of a call is ended by its signal."""
        span = work.trace if isinstance(work.trace, Span) else self._start_work(work)
        ends_here = work.kind != "run"
        try:
            with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
                yield span
        except BaseException as error:
            if ends_here:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR, type(error).__qualname__))
            raise
        finally:
            if ends_here:
                span.end()

    def _start_work(self, work: Work) -> Span:
        if work.kind == "run":
            attributes = {"semel.operation": work.operation, "semel.reference": work.reference}
            name = f"semel.run {work.operation}"
            return self.start(name, SpanKind.INTERNAL, attributes, seconds=work.seconds)
        destination = work.operation.removeprefix(_EVENT)
        described: dict[str, str | int] = {
            "messaging.system": "semel",
            "messaging.operation.name": work.kind,
            "messaging.operation.type": work.kind,
            "messaging.destination.name": destination,
        }
        if work.kind == "process":
            described |= {"messaging.consumer.group.name": destination, "cloudevents.event_type": work.event_type}
            kind = SpanKind.CONSUMER
        else:
            described["messaging.batch.message_count"] = work.number
            kind = SpanKind.CLIENT
        links = _links_to(work.parents)
        return self.start(f"{work.kind} {destination}", kind, described, seconds=work.seconds, links=links)

    def start(
        self,
        name: str,
        kind: SpanKind,
        attributes: Mapping[str, str | int],
        *,
        seconds: float = 0.0,
        links: Iterable[Link] = (),
    ) -> Span:
        """A span that began so many seconds ago, below the current one."""
        began = self._clock() - int(seconds * 1_000_000_000)
        return self._tracer.start_span(
            name, kind=kind, attributes=dict(attributes), links=tuple(links), start_time=began
        )


def _end_delivery(span: Span, signal: Signal) -> None:
    """Say what came of a delivery; its block ends the span."""
    span.set_attribute("semel.operation", signal.operation)
    span.set_attribute("semel.outcome", signal.detail)
    if signal.reference:
        span.set_attribute("semel.reference", signal.reference)
    if signal.detail in _DELIVERY_ERRORS:
        span.set_status(Status(StatusCode.ERROR, signal.detail))


def _links_to(parents: Iterable[str]) -> tuple[Link, ...]:
    """Links to the spans that events were made in, each once, and not more than backends take."""
    contexts = (_context_of(parent) for parent in dict.fromkeys(parents))
    return tuple(Link(context) for context in contexts if context is not None)[:_MAX_LINKS]


def _context_of(traceparent: str | None) -> SpanContext | None:
    """What a W3C trace context names; None where it is none: events and tags are written by others."""
    if traceparent is None:
        return None
    context = trace.get_current_span(_PROPAGATOR.extract({"traceparent": traceparent}, Context())).get_span_context()
    return context if context.is_valid else None
