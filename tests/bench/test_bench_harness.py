"""The harness itself: what cannot be measured is said, what fails is no figure, and what is counted is judged."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from bench.__main__ import measure
from bench.callers import in_threads
from bench.harness import Case, Effort, run_case, steps
from bench.machine import party_seconds
from bench.site import Fact, Site, Unavailable


@contextmanager
def no_server(folder: Path, rows: int) -> Iterator[Site]:
    raise Unavailable("there is no server here")
    yield Site()


def counted(folder: Path, effort: Effort) -> list[Fact]:
    return [Fact("calls", 2, "", 2, "exactly")]


def test_a_case_without_its_server_is_left_out_with_the_reason(tmp_path: Path) -> None:
    cases = [Case("away", "Away", site=no_server), Case("here", "Here", facts=counted)]
    outcomes, left_out = measure(Console(quiet=True), cases, Effort(), tmp_path)
    assert left_out == {"away": "there is no server here"}
    assert [outcome.case.name for outcome in outcomes] == ["here"]


def test_a_case_may_consist_of_facts_alone(tmp_path: Path) -> None:
    case, told = Case("counts", "Counts", facts=counted), list[int]()
    outcome = run_case(case, Effort(), tmp_path, lambda what, steps: told.append(steps))
    assert [fact.met for fact in outcome.facts] == [True]
    assert sum(told) == steps(case, Effort())


def test_a_call_that_fails_in_a_thread_fails_the_measurement() -> None:
    with pytest.raises(ZeroDivisionError):
        in_threads(2, [1, 0], lambda number: 1 / number)


@pytest.mark.parametrize(
    ("fact", "met", "target"),
    [
        pytest.param(Fact("a", 2.0, "trips", 2, "exactly"), True, "2 trips", id="exactly, met"),
        pytest.param(Fact("a", 1.9, "trips", 2, "exactly"), False, "2 trips", id="exactly, missed"),
        pytest.param(Fact("a", 99.5, "ms", 100, source="hospital"), True, "≤ 100 ms (hospital)", id="at most, met"),
        pytest.param(Fact("a", 100.5, "ms", 100), False, "≤ 100 ms", id="at most, missed"),
        pytest.param(Fact("a", 5), None, "", id="without a target"),
    ],
)
def test_a_fact_is_held_against_its_bound(fact: Fact, met: bool | None, target: str) -> None:
    assert fact.met is met
    assert fact.target == target


def test_the_work_of_a_server_includes_that_of_its_children() -> None:
    burn = "import subprocess, sys, os; subprocess.run([sys.executable, '-c', 'sum(range(10_000_000))'])"
    told = "print(sum(os.times()[2:4]), flush=True); input()"
    command = [sys.executable, "-c", f"{burn}; {told}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        by_children = float(server.stdout.readline())
        # Both are whole clock ticks, summed as floats in another order: half a tick tells equal from less.
        half_a_tick = 0.5 / os.sysconf("SC_CLK_TCK")
        assert party_seconds(frozenset({server.pid})) > by_children - half_a_tick > 0
        server.communicate(b"\n")
