"""Log lines: one JSON object each, with what a signal tells and no more."""

from __future__ import annotations

import json
import logging

import pytest

from semel import Semel
from semel.core.observer import Signal
from semel.telemetry.logs import LogObserver


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [json.loads(record.message) for record in caplog.records if record.name == "semel.telemetry"]


def test_a_run_and_a_replay_are_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "semel.telemetry")
    with Semel("memory://", observer=LogObserver()) as semel:
        for _ in range(2):
            semel.run("o-1", lambda: 7, operation="charge", fingerprint=None)
    ran, replayed = lines(caplog)
    assert (ran["event"], ran["operation"]) == ("ran", "charge")
    assert {"reference", "duration_ms", "handler_ms"} <= ran.keys()
    assert (replayed["event"], replayed["tier"]) == ("replayed", "store")
    assert replayed["reference"] == ran["reference"]


@pytest.mark.parametrize(("kind", "level"), [("ran", "INFO"), ("in_doubt", "WARNING"), ("dead_letter", "WARNING")])
def test_what_needs_a_look_is_a_warning(caplog: pytest.LogCaptureFixture, kind: str, level: str) -> None:
    caplog.set_level(logging.INFO, "semel.telemetry")
    LogObserver().observe(Signal(kind=kind, operation="charge", reference="ab"))  # type: ignore[arg-type]
    assert [record.levelname for record in caplog.records] == [level]


def test_what_is_not_told_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "semel.telemetry")
    LogObserver().observe(Signal(kind="store_open", operation="", reference="", detail="PostgreSQL"))
    assert lines(caplog) == [{"event": "store_open", "detail": "PostgreSQL"}]


def test_a_logger_and_a_level_can_be_given(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "shop")
    observer = LogObserver(logging.getLogger("shop"), level=logging.DEBUG)
    observer.observe(Signal(kind="ran", operation="charge", reference="ab", number=3))
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("shop", "DEBUG")
    assert json.loads(record.message)["number"] == 3
