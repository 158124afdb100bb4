"""No key, scope, value, subject or error text reaches a metric, a span or a log line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest

from semel import AsyncSemel, Policy
from semel.batch import Batches
from semel.events import Backoff, Consumer, Event, Outbox, Relay
from semel.telemetry import Observers
from semel.telemetry.logs import LogObserver
from semel.telemetry.opentelemetry import OpenTelemetryObserver
from semel.telemetry.prometheus import PrometheusObserver

CANARY = "canary4111"
HOLD = Policy(in_doubt="hold")
FINAL = Policy(final_errors=(ValueError,))


class Refused(Exception):
    """What a broker says."""


class Broker:
    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        return [Refused(f"{CANARY} refused") if event.subject else None for event in events]


class Watched:
    """All three observers, and what they have let out."""

    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.tracer = provider.get_tracer("application")
        self.metrics = PrometheusObserver()
        self.observer = Observers(self.metrics, OpenTelemetryObserver(provider, keep_traces=True), LogObserver())

    def seen(self) -> Iterator[str]:
        yield generate_latest(self.metrics.registry).decode()
        for span in self.spans.get_finished_spans():
            yield span.to_json()


async def call_in_every_way(semel: AsyncSemel) -> None:
    about = {"subject": f"{CANARY}-s", "business_key": f"{CANARY}-b", "tags": {f"{CANARY}-t": CANARY}}

    async def give(error: type[Exception] | None = None) -> dict[str, str]:
        if error is not None:
            raise error(f"{CANARY} went wrong")
        return {"card": CANARY}

    for number, (error, policy) in enumerate([(None, None), (ValueError, FINAL), (OSError, HOLD)]):
        for fingerprint in (f"{CANARY}-a", f"{CANARY}-a", f"{CANARY}-b"):  # a run, a duplicate, a key that is reused
            with suppress(Exception):
                await semel.run(
                    f"{CANARY}-{number}",
                    lambda error=error: give(error),  # type: ignore[misc]  # mypy takes it for a function of one argument
                    operation="charge",
                    scope=f"{CANARY}-tenant",
                    fingerprint=fingerprint,
                    policy=policy,
                    about=about,
                )


async def pass_events_on(semel: AsyncSemel) -> None:
    consumer = Consumer(semel, "billing", scope=f"{CANARY}-tenant", final_errors=(ValueError,))

    @consumer.on("paid", "refused")
    async def take(event: Event, data: Any) -> None:
        if event.type == "refused":
            message = f"{CANARY} refused"
            raise ValueError(message)

    for type_ in ("paid", "refused", "unknown"):
        event = Event(type=type_, source=f"/{CANARY}", id=f"{CANARY}-{type_}", subject=CANARY, data={"card": CANARY})
        for _ in range(2):
            await consumer.handle(event)
    await consumer.receive({"ce-id": CANARY}, f'{{"{CANARY}"'.encode())
    outbox = Outbox(semel)
    for subject in (CANARY, None):
        event = Event(type="paid", source=f"/{CANARY}", id=f"{CANARY}-{subject}", subject=subject, data=CANARY)
        await outbox.add(event, ordering_key=CANARY, autonomous=True)
    await Relay(outbox, Broker(), max_attempts=2, backoff=Backoff(first=0.001, most=0.001)).run_once()


async def run_a_batch(semel: AsyncSemel) -> None:
    async def pay(data: str) -> str:
        if data.endswith("0"):
            message = f"{CANARY} went wrong"
            raise ValueError(message)
        return data

    batch = await Batches(semel).start(f"{CANARY}-batch", [f"{CANARY}-{n}" for n in range(3)], operation="bulk")
    await batch.run(pay, concurrency=2)


def test_nothing_of_a_caller_reaches_metrics_spans_or_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "semel")
    watched = Watched()

    async def main() -> None:
        async with AsyncSemel("memory://", observer=watched.observer) as semel:
            with watched.tracer.start_as_current_span("request"):
                for scenario in (call_in_every_way, pass_events_on, run_a_batch):
                    await scenario(semel)
            await semel.sweep()

    asyncio.run(main())
    seen = "\n".join([*watched.seen(), *(record.getMessage() for record in caplog.records)])
    for shown in (
        "charge",
        "event:billing",
        "process billing",
        "send default",
        "bulk",
        '"event":"dead_letter"',
        "swept",
    ):
        assert shown in seen
    assert CANARY not in seen


def test_what_a_canary_looks_like_in_a_span_is_found() -> None:
    watched = Watched()
    watched.tracer.start_span(CANARY).end()
    assert CANARY in "".join(watched.seen())
