"""Rules and dashboard name only metrics that there are, and a real scrape is what Prometheus expects."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import promql_parser
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from semel.core.observer import Signal
from semel.telemetry import Attention, AttentionCollector
from semel.telemetry.attention import GAUGES
from semel.telemetry.prometheus import PrometheusObserver
from tests.docs.pages import ROOT
from tests.telemetry.data import DASHBOARDS, RULES

HAPPENED = (
    "ran",
    "replayed",
    "cache_hit",
    "consumed",
    "dead_letter",
    "published",
    "batch_items",
    "lapsed",
    "swept",
)
"""Signals after which every metric has a series."""
WIDTH = 24


async def find_everything() -> list[Attention]:
    return [Attention(kind=kind, operation="pay", number=1, policy="hold") for kind in GAUGES]


def scrape() -> str:
    """What is exported once everything has happened."""
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    attention = AttentionCollector(find_everything)
    registry.register(attention)
    asyncio.run(attention.refresh())
    for kind in HAPPENED:
        told = {"kind": kind, "operation": "pay", "reference": "", "detail": "redis"}
        observer.observe(msgspec.convert({**told, "seconds": 0.1, "handler_seconds": 0.1}, Signal))
    return generate_latest(registry).decode()


def names_in(expression: promql_parser.Expr) -> Iterator[tuple[str, set[str]]]:
    """The metrics of an expression, with the labels that it asks for."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression.name or "", {matcher.name for matcher in expression.matchers.matchers}
        return
    if isinstance(expression, promql_parser.MatrixSelector):
        yield from names_in(expression.vector_selector)
        return
    for part in ("lhs", "rhs", "expr"):
        inner = getattr(expression, part, None)
        if inner is not None:
            yield from names_in(inner)
    for argument in getattr(expression, "args", ()):
        yield from names_in(argument)


def parse(expression: str) -> promql_parser.Expr:
    """An expression of a rule or of a dashboard, whose variables Grafana fills in."""
    return promql_parser.parse(expression.replace("$__rate_interval", "5m").replace("$operation", ".*"))


def family_of(name: str) -> str:
    """The metric that a series belongs to."""
    return name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")


def shown() -> Iterator[tuple[str, str]]:
    """The expressions of dashboards, with their places."""
    for name, dashboard in DASHBOARDS.items():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']} {target['refId']}", target["expr"]


EXPRESSIONS = [*((rule.get("alert") or rule["record"], rule["expr"]) for rule in RULES), *shown()]


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """The labels of each metric that is exported or recorded."""
    known: dict[str, set[str]] = {rule["record"]: set() for rule in RULES if "record" in rule}
    for line in scrape().splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{")
            labels = {part.partition("=")[0] for part in rest.partition("}")[0].split(",") if part}
            known.setdefault(name.split()[0], set()).update(labels)
    return known


@pytest.mark.parametrize("expression", [one for _, one in EXPRESSIONS], ids=[place for place, _ in EXPRESSIONS])
def test_every_metric_of_an_expression_exists(exported: dict[str, set[str]], expression: str) -> None:
    found = list(names_in(parse(expression)))
    assert found
    for name, labels in found:
        assert name in exported
        assert labels <= exported[name], name


def test_metrics_are_found_wherever_they_stand_in_an_expression() -> None:
    found = names_in(parse('sum by (x) (rate(a_total{l="b"}[5m])) / clamp_max((b), 1) > 0 or -c'))
    assert list(found) == [("a_total", {"l"}), ("b", set()), ("c", set())]


def test_dashboards_and_panels_have_names_of_their_own() -> None:
    uids = [dashboard["uid"] for dashboard in DASHBOARDS.values()]
    assert uids
    assert len(uids) == len(set(uids))
    for dashboard in DASHBOARDS.values():
        for member in ("id", "title"):
            names = [panel[member] for panel in dashboard["panels"]]
            assert len(names) == len(set(names))


def test_no_panel_covers_another() -> None:
    for dashboard in DASHBOARDS.values():
        taken: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            columns = range(place["x"], place["x"] + place["w"])
            cells = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
            assert max(columns) < WIDTH
            assert not cells & taken, panel["title"]
            taken |= cells


def test_every_metric_is_on_the_dashboard(exported: dict[str, set[str]]) -> None:
    on_it = {family_of(name) for _, expression in shown() for name, _ in names_in(parse(expression))}
    assert {family_of(name) for name in exported if ":" not in name} - on_it == set()


def test_every_metric_is_on_the_reference_page(exported: dict[str, set[str]]) -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    for name in map(family_of, exported):
        assert f"`{name}`" in page or f"`{name}{{" in page, name


FIRST_ROW = [one for _, one in shown() if any(f"({gauge.number})" in one for gauge in GAUGES.values())]
"""How many there are of each kind that needs a person."""


def test_a_number_of_what_needs_a_person_is_shown_only_where_it_is_known(promtool: str, tmp_path: Path) -> None:
    assert len(FIRST_ROW) == len(GAUGES)
    nothing_found: dict[str, list[dict[str, Any]]] = {"1": [{"labels": "{}", "value": 0}], "0": [], "_": []}
    cases = [
        {
            "interval": "1m",
            "input_series": [{"series": "semel_attention_up", "values": f"{is_up}x5"}],
            "promql_expr_test": [{"expr": one, "eval_time": "5m", "exp_samples": found} for one in FIRST_ROW],
        }
        for is_up, found in nothing_found.items()
    ]
    path = tmp_path / "test.yml"  # JSON is YAML
    path.write_text(json.dumps({"evaluation_interval": "1m", "tests": cases}))
    command = [promtool, "test", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_wrong_with_a_scrape(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "metrics"], input=scrape(), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
