"""Several observers as one."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import generate_latest

from semel import Semel
from semel.core.observer import Logging, Signal
from semel.errors import UsageError
from semel.telemetry import Observers
from semel.telemetry.opentelemetry import OpenTelemetryObserver
from semel.telemetry.prometheus import PrometheusObserver


class Ears:
    def __init__(self, error: Exception | None = None) -> None:
        self.kinds: list[str] = []
        self.error = error

    def observe(self, signal: Signal) -> None:
        self.kinds.append(signal.kind)
        if self.error is not None:
            raise self.error


def test_an_error_of_one_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Ears(ValueError()), Ears()
    Observers(first, second).observe(Signal(kind="ran", operation="pay", reference="ab"))
    assert first.kinds == second.kinds == ["ran"]
    assert "an observer failed" in caplog.text


def test_the_tracer_of_one_is_that_of_all() -> None:
    spans = OpenTelemetryObserver(TracerProvider())
    assert Observers(Ears(), spans).tracer is spans.tracer
    assert Observers(Ears()).tracer is None


def test_two_that_make_spans_are_refused() -> None:
    with pytest.raises(UsageError, match="2 would"):
        Observers(OpenTelemetryObserver(TracerProvider()), OpenTelemetryObserver(TracerProvider()))


def test_none_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one"):
        Observers()


def test_calls_are_counted_without_signals_where_nobody_else_hears_them() -> None:
    metrics = PrometheusObserver()
    assert Observers(Logging(), metrics).count_call == metrics.count_call
    assert Observers(Ears(), metrics).count_call is None


def test_with_an_ear_beside_it_calls_are_counted_and_heard() -> None:
    metrics, ears = PrometheusObserver(), Ears()
    with Semel("memory://", observer=Observers(metrics, ears)) as semel:
        for _ in range(2):
            semel.run("o-1", lambda: 7, operation="charge", fingerprint=None)
    assert ears.kinds == ["ran", "replayed"]
    assert b'semel_operations_total{operation="charge",outcome="replayed"} 1.0' in generate_latest(metrics.registry)


def test_a_counter_that_fails_disturbs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Counting(Ears):
        def count_call(self, kind: str, operation: str, seconds: float, handler_seconds: float | None) -> None:
            raise ValueError

    with Semel("memory://", observer=Counting()) as semel:
        assert semel.run("o-1", lambda: 7, operation="charge", fingerprint=None).value == 7
    assert "an observer failed" in caplog.text
