"""Several observers as one."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider

from semel.core.observer import Signal
from semel.errors import UsageError
from semel.telemetry import Observers
from semel.telemetry.opentelemetry import OpenTelemetryObserver


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
