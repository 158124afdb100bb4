"""Spans: one for each call, around what its handler does; replays linked to the first run; messaging conventions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from semel import AsyncSemel, Policy, Semel
from semel.core.observer import Signal, Work, tracing
from semel.engine.engine import engine_of
from semel.errors import InDoubt, KeyReused, UsageError
from semel.events import Consumer, Event, Outbox, Relay
from semel.stores.memory import MemoryStore
from semel.telemetry.opentelemetry import OpenTelemetryObserver

CARD = "card 4111"
"""With a word: four digits alone may be in the id or the time of a span."""


class Traces:
    """An observer that makes spans, and the spans that it has made."""

    def __init__(self, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.observer = OpenTelemetryObserver(self.provider, **settings)
        self.tracer = self.provider.get_tracer("application")

    def span(self, name: str) -> ReadableSpan:
        (found,) = (span for span in self.exporter.get_finished_spans() if span.name == name)
        return found

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.exporter.get_finished_spans()]


@pytest.fixture
def traces() -> Traces:
    return Traces()


def id_of(span: ReadableSpan) -> int:
    return context_of(span).span_id


def context_of(span: ReadableSpan) -> SpanContext:
    context: SpanContext | None = span.context
    assert context is not None
    return context


def run(semel: Semel, key: str = "o-1", **settings: Any) -> Any:
    return semel.run(key, lambda: 7, operation="charge", fingerprint=None, **settings)


def test_what_a_handler_does_is_inside_the_span_of_its_call(traces: Traces) -> None:
    def handler() -> int:
        with traces.tracer.start_as_current_span("inner"):
            return 7

    with Semel("memory://", observer=traces.observer) as semel, traces.tracer.start_as_current_span("outer"):
        semel.run("o-1", handler, operation="charge", fingerprint=None)
    inner, call, outer = (traces.span(name) for name in ("inner", "semel.run charge", "outer"))
    assert inner.parent is not None
    assert inner.parent.span_id == id_of(call)
    assert call.parent is not None
    assert call.parent.span_id == id_of(outer)


def test_the_span_of_a_run_says_what_came_of_it(traces: Traces) -> None:
    with Semel("memory://", observer=traces.observer) as semel:
        result = run(semel)
    call = traces.span("semel.run charge")
    assert call.attributes is not None
    assert call.attributes["semel.operation"] == "charge"
    assert call.attributes["semel.outcome"] == "ran"
    assert call.attributes["semel.reference"] == result.record.key.reference
    assert call.status.status_code is StatusCode.UNSET


def test_awaited_calls_make_the_same_spans(traces: Traces) -> None:
    async def handler() -> int:
        with traces.tracer.start_as_current_span("inner"):
            await asyncio.sleep(0)
        return 7

    async def main() -> None:
        async with AsyncSemel("memory://", observer=traces.observer) as semel:
            for _ in range(2):
                await semel.run("o-1", handler, operation="charge", fingerprint=None)

    asyncio.run(main())
    assert traces.names == ["inner", "semel.run charge", "semel.replay charge"]
    parent = traces.span("inner").parent
    assert parent is not None
    assert parent.span_id == id_of(traces.span("semel.run charge"))


def test_a_replay_is_linked_to_the_first_run(traces: Traces) -> None:
    with Semel("memory://", observer=traces.observer) as semel:
        run(semel)
        run(semel)
    (link,) = traces.span("semel.replay charge").links
    assert link.context.span_id == id_of(traces.span("semel.run charge"))


def test_only_so_many_first_runs_are_remembered() -> None:
    traces = Traces(max_remembered=1)
    with Semel("memory://", observer=traces.observer) as semel:
        run(semel, "o-1")
        run(semel, "o-2")
        run(semel, "o-1")
    assert traces.span("semel.replay charge").links == ()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_another_process_finds_the_first_span_where_it_is_kept(kind: str, tmp_path: Path) -> None:
    place = MemoryStore() if kind == "memory" else tmp_path / "semel.db"
    there, here = Traces(keep_traces=True), Traces()
    with there.tracer.start_as_current_span("request"), Semel(place, observer=there.observer) as semel:
        run(semel, about={"tags": {"tenant": "acme"}})
    with Semel(place, observer=here.observer) as semel:
        replay = run(semel)
    (link,) = here.span("semel.replay charge").links
    assert link.context.trace_id == context_of(there.span("semel.run charge")).trace_id
    assert link.context.span_id == id_of(there.span("request"))
    assert replay.record.about.tags["tenant"] == "acme"


def test_nothing_is_kept_with_a_record_by_default(traces: Traces) -> None:
    with Semel("memory://", observer=traces.observer) as semel, traces.tracer.start_as_current_span("request"):
        assert run(semel).record.about.tags == {}


def test_a_tag_that_is_no_trace_links_to_nothing(traces: Traces) -> None:
    signal = Signal(kind="replayed", operation="charge", reference="ab", first_trace="00-zz-zz-00")
    traces.observer.observe(signal)
    assert traces.span("semel.replay charge").links == ()


def test_a_call_that_ends_in_doubt_is_an_error_without_its_text(traces: Traces) -> None:
    def handler() -> int:
        raise OSError(CARD)

    with Semel("memory://", observer=traces.observer) as semel, contextlib.suppress(OSError):
        semel.run("o-1", handler, operation="charge", fingerprint=None, policy=Policy(in_doubt="hold"))
    call = traces.span("semel.run charge")
    assert call.status.status_code is StatusCode.ERROR
    assert call.attributes is not None
    assert (call.attributes["semel.outcome"], call.attributes["error.type"]) == ("in_doubt", "OSError")
    assert CARD not in call.to_json()
    with pytest.raises(InDoubt):
        run(semel, policy=Policy(in_doubt="hold"))
    assert traces.names[-1] == "semel.claim charge"


def test_a_reused_key_reaches_no_handler(traces: Traces) -> None:
    with Semel("memory://", observer=traces.observer) as semel:
        semel.run("o-1", lambda: 7, operation="charge", fingerprint="a")
        with pytest.raises(KeyReused):
            semel.run("o-1", lambda: 7, operation="charge", fingerprint="b")
    assert traces.span("semel.claim charge").status.status_code is StatusCode.ERROR


def test_a_call_that_is_opened_is_one_span_however_often_it_is_entered(traces: Traces) -> None:
    with Semel("memory://", observer=traces.observer) as semel:
        call = engine_of(semel).open("o-1", operation="charge", fingerprint=None)
        for name in ("first", "second"):
            with call.current(), traces.tracer.start_as_current_span(name):
                pass
        call.finish(7)
    ran = traces.span("semel.run charge")
    parents = [traces.span(name).parent for name in ("first", "second")]
    assert [parent and parent.span_id for parent in parents] == [id_of(ran)] * 2


def test_a_delivery_is_a_span_of_a_consumer_linked_to_its_event(traces: Traces) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    event = Event(
        type="asset.registered", source="/f/7", id="e-1", subject="asset-1", extensions={"traceparent": trace}
    )
    with Semel("memory://", observer=traces.observer) as semel:
        consumer = Consumer(semel, "billing")

        @consumer.on("asset.registered")
        def registered(event: Event) -> None: ...

        consumer.handle(event)
    span, call = traces.span("process billing"), traces.span("semel.run event:billing")
    assert span.kind is SpanKind.CONSUMER
    assert span.attributes is not None
    assert span.attributes["messaging.operation.name"] == "process"
    assert span.attributes["messaging.consumer.group.name"] == "billing"
    assert span.attributes["cloudevents.event_type"] == "asset.registered"
    assert span.attributes["semel.outcome"] == "processed"
    assert f"{span.links[0].context.span_id:016x}" == "b7ad6b7169203331"
    assert call.parent is not None
    assert call.parent.span_id == id_of(span)
    assert "asset-1" not in span.to_json()


def test_an_error_of_the_program_ends_the_span_of_a_delivery(traces: Traces) -> None:
    with Semel("memory://", observer=traces.observer) as semel:
        consumer = Consumer(semel, "billing")

        @consumer.on("asset.registered")
        def registered(session: Any) -> None: ...

        with pytest.raises(UsageError):
            consumer.handle(Event(type="asset.registered", source="/f/7", id="e-1"))
    assert traces.span("process billing").status.status_code is StatusCode.ERROR


def test_an_event_carries_the_span_it_was_added_in_to_the_relay(traces: Traces) -> None:
    published: list[Event] = []

    class Broker:
        async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
            published.extend(events)
            return [None] * len(events)

    async def main() -> None:
        async with AsyncSemel("memory://", observer=traces.observer) as semel:
            outbox = Outbox(semel)
            with traces.tracer.start_as_current_span("request"):
                await outbox.add(Event(type="order.placed", source="/shop", id="e-1"), autonomous=True)
            await Relay(outbox, Broker()).run_once()

    asyncio.run(main())
    request, sent = traces.span("request"), traces.span("send default")
    assert sent.kind is SpanKind.CLIENT
    assert sent.attributes is not None
    assert sent.attributes["messaging.batch.message_count"] == 1
    assert [link.context.span_id for link in sent.links] == [id_of(request)]
    assert f"{id_of(request):016x}" in str(published[0].extensions["traceparent"])


def test_a_trace_that_the_producer_gave_is_left_alone(traces: Traces) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with Semel("memory://", observer=traces.observer) as semel, traces.tracer.start_as_current_span("request"):
        event = Event(type="order.placed", source="/shop", id="e-1", extensions={"traceparent": trace})
        assert Outbox(semel).add(event, autonomous=True).extensions == {"traceparent": trace}


def test_a_tracer_that_fails_disturbs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        keeps_traces = True

        def begin(self, work: Work) -> Any:
            raise ValueError

        def traceparent(self) -> str | None:
            raise ValueError

    class Observing:
        tracer = Broken()

        def observe(self, signal: Signal) -> None: ...

    with Semel("memory://", observer=Observing()) as semel:
        assert run(semel).value == 7
    assert "a tracer failed" in caplog.text


def test_an_error_that_is_handled_outside_is_not_the_works(traces: Traces) -> None:
    try:
        raise ValueError
    except ValueError:
        with tracing(traces.observer.tracer, Work(kind="send", operation="default")):
            pass
    assert traces.span("send default").status.status_code is StatusCode.UNSET


def test_claims_of_semel_itself_make_no_spans(traces: Traces) -> None:
    traces.observer.observe(Signal(kind="ran", operation="semel:page", reference="ab"))
    assert traces.names == []


def test_without_an_sdk_nothing_happens() -> None:
    with Semel("memory://", observer=OpenTelemetryObserver()) as semel:
        assert run(semel).value == 7
        assert run(semel).replayed


@pytest.mark.parametrize("bound", [-1, True, "5"])
def test_a_bound_that_is_none_is_refused(bound: Any) -> None:
    with pytest.raises(UsageError, match="max_remembered"):
        OpenTelemetryObserver(max_remembered=bound)
