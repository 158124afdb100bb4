"""The benchmarks run and write what they measured. How fast anything is, is never asserted."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.catalogue import CASES, missing

TINY = ["--rounds", "1", "--scale", "0.01", "--rows", "20", "--tries", "1"]


@pytest.mark.parametrize("name", CASES)
def test_a_case_runs_and_writes_its_figures(name: str, tmp_path: Path) -> None:
    output = tmp_path / "figures.json"
    result = CliRunner().invoke(app, [name, *TINY, "--output", str(output), "--folder", str(tmp_path)])
    assert result.exit_code == 0, result.output
    data = json.loads(output.read_text(encoding="utf-8"))
    assert data["machine"]["python"]
    assert data["durability"]["synchronous"] == 2
    if missing(CASES[name]):
        pytest.skip(f"{missing(CASES[name])} is not installed here; `make bench` has it")
    variants = data["cases"][name]["variants"]
    assert set(variants) == {variant.name for variant in CASES[name].variants}
    for figures in variants.values():
        assert figures["microseconds"]["median"] > 0
        assert (figures["against"] is None) == (figures["ratio"] is None)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    CliRunner().invoke(app, ["sqlite-replay", *TINY, "--output", str(tmp_path / "out.json"), "--folder", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_an_unknown_case_is_refused_with_the_names_there_are() -> None:
    result = CliRunner().invoke(app, ["sqlite-65"])
    assert result.exit_code == 2
    assert "sqlite-64" in result.output
