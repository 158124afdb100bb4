"""The table `[telemetry]` of a settings file, and what an engine is told to do by it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, generate_latest

from semel import Semel
from semel.core.observer import Logging
from semel.engine.engine import engine_of
from semel.errors import UsageError
from semel.telemetry.configured import _SHARED, observer_of


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    """The process's registry, without metrics of semel before and after."""
    _SHARED.clear()
    yield
    for observer in _SHARED.values():
        REGISTRY.unregister(observer)
    _SHARED.clear()


def opened(folder: Path, table: str) -> Semel:
    path = folder / "semel.toml"
    path.write_text(f'store = "memory://"\n[telemetry]\n{table}\n')
    return Semel.from_settings(path)


def test_without_the_table_it_is_logging(tmp_path: Path) -> None:
    with opened(tmp_path, "") as semel:
        assert type(engine_of(semel).observer) is Logging


def test_engines_of_a_process_share_its_registry(tmp_path: Path) -> None:
    for _ in range(2):
        with opened(tmp_path, "prometheus = true") as semel:
            semel.run("o-1", lambda: 7, operation="charge", fingerprint=None)
    assert b'semel_operations_total{operation="charge",outcome="ran"} 2.0' in generate_latest(REGISTRY)


def test_engines_of_a_process_that_differ_in_their_bound_are_refused(tmp_path: Path) -> None:
    with (
        opened(tmp_path, "prometheus = true\nmax_operations = 10"),
        pytest.raises(UsageError, match="max_operations is 20 here and 10"),
    ):
        opened(tmp_path, "prometheus = true\nmax_operations = 20")


def test_logs_are_lines_of_json(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "semel.telemetry")
    with opened(tmp_path, "logs = true") as semel:
        semel.run("o-1", lambda: 7, operation="charge", fingerprint=None)
    assert [json.loads(record.message)["event"] for record in caplog.records] == ["ran"]


def test_spans_are_made_by_the_tracer_of_the_process(tmp_path: Path) -> None:
    with opened(tmp_path, "opentelemetry = true\nkeep_traces = true") as semel:
        tracer = engine_of(semel).tracer
        assert tracer is not None
        assert tracer.keeps_traces


@pytest.mark.parametrize("name", ["max_operations", "keep_traces"])
def test_a_setting_of_what_is_switched_off_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not switched on"):
        observer_of({name: 5})
