"""The benchmarks run and write what they measured. How fast anything is, is never asserted."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.catalogue import CASES, missing
from bench.site import in_this_process
from tests.servers.plugin import verdict

TINY = ["--rounds", "1", "--scale", "0.01", "--rows", "20", "--tries", "1"]
DURABLE = {"fsync": "on", "synchronous_commit": "on", "innodb_flush_log_at_trx_commit": 1}
COUNTED = ("round-trips", "within")
"""Cases whose counts depend on no machine."""


def by_effort(names: list[str]) -> list[Any]:
    """Cases that start a server take seconds."""
    marks = {name: () if CASES[name].site is in_this_process else (pytest.mark.slow,) for name in names}
    return [pytest.param(name, marks=marks[name], id=name) for name in names]


def measured(name: str, folder: Path) -> dict[str, Any]:
    """What the command wrote for one case; without it, a skip that says what is missing, or a failure in CI."""
    output = folder / "figures.json"
    result = CliRunner().invoke(app, [name, *TINY, "--output", str(output), "--folder", str(folder)])
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    if missing(CASES[name]):
        pytest.skip(f"{missing(CASES[name])} is not installed here; `make bench` has it")
    if name in data["left_out"]:
        raise verdict(data["left_out"][name])
    return data


@pytest.mark.parametrize("name", by_effort(list(CASES)))
def test_a_case_runs_and_writes_its_figures(name: str, tmp_path: Path) -> None:
    data = measured(name, tmp_path)
    assert data["machine"]["python"]
    assert data["durability"]["synchronous"] == 2
    case = data["cases"][name]
    assert set(case["variants"]) == {variant.name for variant in CASES[name].variants}
    assert bool(case["facts"]) == (CASES[name].facts is not None)
    assert case["variants"] or case["facts"]
    for figures in case["variants"].values():
        assert figures["microseconds"]["median"] > 0
        assert (figures["against"] is None) == (figures["ratio"] is None)
    settings = case["settings"]
    assert {setting: settings[setting] for setting in DURABLE.keys() & settings.keys()}.items() <= DURABLE.items()
    assert (CASES[name].site is in_this_process) == (not settings)
    if name in COUNTED:
        assert [fact for fact in case["facts"] if fact["met"] is not True] == []


@pytest.mark.parametrize("name", by_effort(["sqlite-replay", "round-trips", "sweep"]))
def test_nothing_is_left_behind(name: str, tmp_path: Path) -> None:
    before = children()
    measured(name, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
    assert children() <= before


def children() -> set[str]:
    """The processes that this one has started and that are still there."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {number for task in tasks for number in task.read_text(encoding="ascii").split()}


def test_an_unknown_case_is_refused_with_the_names_there_are() -> None:
    result = CliRunner().invoke(app, ["sqlite-65"])
    assert result.exit_code == 2
    assert "sqlite-64" in result.output
