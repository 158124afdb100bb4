"""The rules for Prometheus: each alert fires on what it is about, and on nothing near it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from prometheus_client import generate_latest

from semel.core.observer import Signal
from semel.telemetry.prometheus import PrometheusObserver
from tests.docs.pages import ROOT
from tests.telemetry.data import ALERTS, RULES_FILE

Series = dict[str, str]
PAY = 'operation="pay"'
HELD = f'{PAY},policy="hold"'
STREAM = 'operation="default"'


class Row(NamedTuple):
    """An alert, series by which it fires after so many minutes, and series by which it does not.

    `early` is a minute at which it waits: what it is about is there, and not for long enough.
    """

    alert: str
    labels: dict[str, str]
    minutes: int
    firing: Series
    quiet: Series
    early: int | None
    also_quiet: tuple[Series, ...] = ()
    also_firing: tuple[Series, ...] = ()


def waiting(name: str, labels: str, number: str, oldest: str) -> Series:
    """A number of something that waits, and the age of the oldest."""
    stem = {"semel_in_doubt": "semel_in_doubt", "semel_outbox_backlog": "semel_outbox"}.get(
        name, name.removesuffix("_waiting")
    )
    return {f"{name}{{{labels}}}": number, f"{stem}_oldest_seconds{{{labels}}}": oldest}


def by_age(alert: str, name: str, labels: str, told: dict[str, str], old: int = 3601) -> Row:
    """An alert on the age of what waits: not on what is younger, not on an age of nothing.

    Two processes that tell the same age do not make it twice as old.
    """
    firing = waiting(name, labels, "1x30", f"{old}x30")
    quiet = waiting(name, labels, "9x30", f"{old - 1}x30")
    nothing = waiting(name, labels, "0x30", f"{old}x30")
    twice = {
        series: values
        for instance in "ab"
        for series, values in waiting(name, f"{labels},instance='{instance}'", "1x30", f"{old - 1}x30").items()
    }
    return Row(alert, told, 20, firing, quiet, 3, also_quiet=(nothing, twice))


def bucketed(fast: int, slow: int) -> Series:
    """A histogram with so many calls a minute below 0.2 s, and so many below 0.5 s."""
    bucket = f'semel_operation_seconds_bucket{{{PAY},outcome="ran",le='
    return {
        f'{bucket}"0.2"}}': f"0+{fast}x60",
        f'{bucket}"0.5"}}': f"0+{fast + slow}x60",
        f'{bucket}"+Inf"}}': f"0+{fast + slow}x60",
    }


def cached(hits: int, misses: int, replays: int) -> Series:
    """So many answers of a cache, and replays, a minute."""
    return {
        'semel_cache_total{tier="redis",answer="hit"}': f"0+{hits}x60",
        'semel_cache_total{tier="store",answer="miss"}': f"0+{misses}x60",
        f'semel_operations_total{{{PAY},outcome="replayed"}}': f"0+{replays}x60",
    }


def ended(outcome: str, values: str) -> Series:
    return {f'semel_operations_total{{{PAY},outcome="{outcome}"}}': values}


def noticed(outcome: str, values: str) -> Series:
    return {f'semel_notices_total{{operation="",outcome="{outcome}"}}': values}


def few(name: str, outcome: str) -> Series:
    """Eight in a quarter of an hour."""
    return {f'{name}{{{PAY},outcome="{outcome}"}}': "0x24 0+1x8 8x30"}


def of_two(name: str, outcome: str) -> Series:
    """Eight in a quarter of an hour in each of two processes."""
    return {f'{name}{{{PAY},outcome="{outcome}",instance="{one}"}}': "0+0.55x60" for one in "ab"}


OF_PAY = {"operation": "pay"}
OF_STREAM = {"operation": "default"}
ROWS = [
    by_age("SemelInDoubtWaiting", "semel_in_doubt", HELD, {"operation": "pay", "policy": "hold"}),
    Row(
        "SemelInDoubtMany",
        {"policy": "hold"},
        61,
        {f"semel_in_doubt{{{HELD},instance='{name}'}}": "51x80" for name in "ab"},
        # Two processes that export the same 30 are not 60.
        {f"semel_in_doubt{{{HELD},instance='{name}'}}": "30x80" for name in "ab"},
        55,
        also_quiet=({f"semel_in_doubt{{{HELD}}}": "50x80"},),
        also_firing=({f'semel_in_doubt{{operation="{name}",policy="hold"}}': "26x80" for name in "ab"},),
    ),
    by_age("SemelLapsedLeases", "semel_lapsed_leases", PAY, OF_PAY),
    by_age("SemelDeadLettersWaiting", "semel_dead_letters_waiting", PAY, OF_PAY),
    Row(
        "SemelDeadLettersRising",
        OF_PAY,
        40,
        {f'semel_dead_letters_total{{{PAY},outcome="exhausted"}}': "0+1x60"},
        {f'semel_dead_letters_total{{{PAY},outcome="exhausted"}}': "5x60"},
        13,
        also_quiet=(few("semel_dead_letters_total", "exhausted"),),
        also_firing=(of_two("semel_dead_letters_total", "exhausted"),),
    ),
    by_age("SemelKeysParked", "semel_parked_keys", STREAM, OF_STREAM),
    by_age("SemelBatchPaused", "semel_paused_batches", PAY, OF_PAY),
    by_age("SemelOutboxBehind", "semel_outbox_backlog", STREAM, OF_STREAM, old=61),
    Row("SemelStoreOpen", {}, 5, {"semel_store_open": "1x10"}, {"semel_store_open": "0x10"}, 0),
    Row("SemelCacheOpen", {}, 10, {"semel_cache_open": "1x20"}, {"semel_cache_open": "0x20"}, 3),
    Row(
        "SemelUnprotected",
        {},
        5,
        noticed("unprotected", "0+1x10"),
        noticed("unprotected", "7x10"),
        None,
        also_firing=(noticed("unprotected", "_x3 1x10"),),  # one call, with which the series begins
    ),
    Row("SemelLeasesLost", OF_PAY, 30, ended("lease_lost", "0+1x60"), ended("lease_lost", "7x60"), 6),
    Row("SemelStalled", {}, 5, noticed("stalled", "0+1x10"), noticed("stalled", "7x10"), None),
    Row(
        "SemelSweepOverdue",
        {},
        125,
        {"semel_last_sweep_timestamp_seconds": "1x130"},
        {"semel_last_sweep_timestamp_seconds": "0+60x130"},
        110,
        # One process sweeps: that others have not for long is nothing.
        also_quiet=(
            {
                'semel_last_sweep_timestamp_seconds{instance="a"}': "0+60x130",
                'semel_last_sweep_timestamp_seconds{instance="b"}': "1x130",
            },
            {"semel_last_sweep_timestamp_seconds": "3000x130"},
        ),
        also_firing=({"semel_attention_up": "1x130"},),  # no process has ever swept
    ),
    Row(
        "SemelAttentionUnknown",
        {},
        12,
        {"semel_attention_up": "0x20"},
        {"semel_attention_up": "1x20"},
        8,
        # One of two can find it out.
        also_quiet=({'semel_attention_up{instance="a"}': "0x20", 'semel_attention_up{instance="b"}': "1x20"},),
        also_firing=({"semel_sweeps_total": "1x20"},),  # nobody who is scraped asks
    ),
    Row(
        "SemelKeysReused",
        OF_PAY,
        40,
        ended("reused", "0+1x60"),
        ended("reused", "5x60"),
        13,
        (few("semel_operations_total", "reused"),),
        (of_two("semel_operations_total", "reused"),),
    ),
    Row(
        "SemelHighDuplicateRate",
        {},
        20,
        {f"semel_duplicates_total{{{PAY}}}": "0+6060x30"},
        {f"semel_duplicates_total{{{PAY}}}": "0+5940x30"},
        7,
    ),
    # Nine of ten calls are new, and the cache answers every replay: nothing is wrong.
    Row(
        "SemelLowCacheHitRate",
        {},
        40,
        cached(hits=60, misses=40, replays=100),
        cached(hits=100, misses=900, replays=100),
        7,
        # Of hardly any replays, a part says nothing.
        also_quiet=(cached(hits=0, misses=9, replays=9), cached(hits=0, misses=900, replays=0)),
        also_firing=(cached(hits=0, misses=12, replays=12),),
    ),
    Row("SemelHighLatency", OF_PAY, 40, bucketed(fast=90, slow=10), bucketed(fast=96, slow=4), 6),
]


def expected(row: Row) -> str:
    severity = ALERTS[row.alert]["labels"]["severity"]
    labels = {"alertname": row.alert, "alertstate": "firing", "severity": severity, **row.labels}
    return f"ALERTS{{{','.join(f'{name}={json.dumps(value)}' for name, value in sorted(labels.items()))}}}"


def cases_of(row: Row) -> list[dict[str, Any]]:
    """The same question for all: does it fire?"""
    fires = [{"labels": expected(row), "value": 1}]
    asked: list[tuple[str, int, Series, list[Any]]] = [("fires", row.minutes, row.firing, fires)]
    asked += [("also fires", row.minutes, series, fires) for series in row.also_firing]
    asked += [("is quiet", row.minutes, series, []) for series in (row.quiet, *row.also_quiet)]
    if row.early is not None:
        asked.append(("waits", row.early, row.firing, []))
    return [
        {
            "name": f"{row.alert} {name}",
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in given.items()],
            "promql_expr_test": [
                {
                    "expr": f'ALERTS{{alertname="{row.alert}",alertstate="firing"}}',
                    "eval_time": f"{minute}m",
                    "exp_samples": found,
                }
            ],
        }
        for name, minute, given, found in asked
    ]


def scraped(usual: Signal, *happened: tuple[int, Signal, int]) -> Series:
    """What processes show each minute: of each what is usual, and then something, so often, from its minute on."""
    series: Series = {}
    for process, (minute, signal, number) in enumerate(happened):
        observer = PrometheusObserver()
        observer.observe(usual)
        before = counted(observer)
        for _ in range(number):
            observer.observe(signal)
        for name, after in counted(observer).items():
            place = name.replace("{", f'{{instance="{process}",')
            series[place] = f"{before.get(name, '_')}x{minute - 1} {after}x60"
    return series


def counted(observer: PrometheusObserver) -> Series:
    """The counters with labels, as they are scraped."""
    lines = generate_latest(observer.registry).decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if "_total{" in line)


def told(kind: str, operation: str = "pay", detail: str = "") -> Signal:
    return msgspec.convert({"kind": kind, "operation": operation, "reference": "", "detail": detail}, Signal)


FIRST_TIMES = {
    "SemelStalled": scraped(told("ran"), (10, told("stalled", ""), 1)),
    "SemelLeasesLost": scraped(told("ran"), (10, told("lease_lost"), 1), (15, told("lease_lost"), 1)),
    "SemelKeysReused": scraped(told("ran"), (10, told("reused"), 11)),
    "SemelDeadLettersRising": scraped(
        told("consumed", detail="processed"), (10, told("dead_letter", detail="exhausted"), 11)
    ),
}
"""What happens to processes for the first time, and is worth an alert: nothing was counted before."""


def promtool_test(promtool: str, folder: Path, cases: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    path = folder / "test.yml"  # JSON is YAML
    path.write_text(json.dumps({"rule_files": [str(RULES_FILE)], "evaluation_interval": "1m", "tests": cases}))
    return subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False, timeout=60)


def test_each_alert_fires_on_what_it_is_about_and_on_nothing_near_it(promtool: str, tmp_path: Path) -> None:
    done = promtool_test(promtool, tmp_path, [case for row in ROWS for case in cases_of(row)])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", FIRST_TIMES)
def test_an_alert_fires_on_what_happens_to_a_process_for_the_first_time(
    promtool: str, tmp_path: Path, alert: str
) -> None:
    (row,) = (row for row in ROWS if row.alert == alert)
    only = row._replace(firing=FIRST_TIMES[alert], minutes=22, early=None, quiet={}, also_quiet=(), also_firing=())
    done = promtool_test(promtool, tmp_path, cases_of(only))
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_expectation_that_is_wrong_is_noticed(promtool: str, tmp_path: Path) -> None:
    row = ROWS[0]
    wrong = cases_of(row._replace(firing=row.quiet, also_firing=()))
    assert promtool_test(promtool, tmp_path, wrong).returncode != 0


def test_every_alert_has_a_row() -> None:
    assert [row.alert for row in ROWS] == list(ALERTS)


def test_promtool_finds_nothing_wrong_with_the_rules(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", RULES_FILE],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_leads_to_its_runbook(alert: str) -> None:
    path, _, anchor = ALERTS[alert]["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^## (\w+)$", (ROOT / path).read_text(), re.MULTILINE)
    assert anchor == alert.lower()
    assert alert in headings


def test_no_runbook_is_about_an_alert_that_does_not_exist() -> None:
    headings = re.findall(r"^## (Semel\w+)$", (ROOT / "docs/how-to/alerts.md").read_text(), re.MULTILINE)
    assert headings == list(ALERTS)
