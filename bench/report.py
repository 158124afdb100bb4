"""What was measured, for people as a table and for programs as JSON."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.harness import DISTURBED, Case, Effort, Figures, spread

Measured = list[tuple[Case, list[Figures]]]


def as_table(case: Case, figures: list[Figures]) -> Table:
    """One case: each variant with its median, the middle half of its rounds, and its ratio to the baseline."""
    table = Table(title=case.title, title_justify="left", caption="\n".join(case.notes), caption_justify="left")
    for name, justify in (
        ("variant", "left"),
        ("per call", "right"),
        ("CPU", "right"),
        ("calls/s", "right"),
        ("ratio", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]  # one of the two words just above
    table.add_column("target")
    table.add_column("")
    for measured in figures:
        table.add_row(
            measured.variant.name,
            f"{_microseconds(measured.median)} ({_range([1e6 * value for value in measured.seconds])})",
            _microseconds(statistics.median(measured.processor)),
            f"{1 / measured.median:,.0f}",
            _ratio(measured),
            measured.variant.by.target,
            _verdict(measured.verdict),
        )
    return table


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} µs"


def _ratio(measured: Figures) -> str:
    if measured.ratio is None:
        return "baseline"
    return f"{measured.ratio:.2f}× ({_range(measured.ratios)})"


def _range(values: list[float]) -> str:
    lower, upper = spread(values)
    digits = 0 if lower >= 100 else 2 if upper < 20 else 1
    return f"{lower:,.{digits}f}–{upper:,.{digits}f}"


def _verdict(verdict: bool | None) -> str:
    return "" if verdict is None else "[green]met[/]" if verdict else "[red]not met[/]"


def as_data(measured: Measured, effort: Effort, facts: dict[str, Any], durability: dict[str, Any]) -> dict[str, Any]:
    """Everything that was measured, and what it depends on."""
    return {
        "machine": facts,
        "durability": durability,
        "effort": dataclasses.asdict(effort),
        "cases": {case.name: _case(case, figures, effort) for case, figures in measured},
    }


def _case(case: Case, figures: list[Figures], effort: Effort) -> dict[str, Any]:
    return {
        "title": case.title,
        "notes": list(case.notes),
        "variants": {measured.variant.name: _variant(measured, effort) for measured in figures},
    }


def _variant(measured: Figures, effort: Effort) -> dict[str, Any]:
    variant = measured.variant
    return {
        "calls_per_round": effort.calls(variant.calls),
        "microseconds": _summary([1e6 * value for value in measured.seconds]),
        "processor_microseconds": _summary([1e6 * value for value in measured.processor]),
        "others_share": [round(share, 3) for share in measured.others],
        "against": variant.against,
        "compared": variant.by.kind if variant.against else None,
        "ratio": _summary(measured.ratios) if measured.ratios else None,
        "target": variant.by.bound,
        "met": measured.verdict,
    }


def _summary(values: list[float]) -> dict[str, Any]:
    lower, upper = spread(values)
    ordered = sorted(values)
    return {
        "median": round(statistics.median(values), 3),
        "quarter_below": round(lower, 3),
        "quarter_above": round(upper, 3),
        "least": round(ordered[0], 3),
        "most": round(ordered[-1], 3),
        "rounds": [round(value, 3) for value in values],
    }


def write(path: Path, data: dict[str, Any]) -> None:
    """Put the figures into a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def show(console: Console, measured: Measured, facts: dict[str, Any], durability: dict[str, Any]) -> None:
    """Print the tables and what they depend on."""
    for case, figures in measured:
        console.print()
        console.print(as_table(case, figures))
    console.print()
    console.print("Medians over the rounds, in brackets the middle half of them. Ratios are taken inside each round.")
    shares = [share for _, figures in measured for one in figures for share in one.others]
    disturbed = sum(share > DISTURBED for share in shares)
    console.print(
        f"{disturbed} of {len(shares)} measurements were disturbed: others took over {DISTURBED:.0%} meanwhile."
    )
    for name, value in {**facts, "durability": durability}.items():
        console.print(f"[dim]{name}: {_plain(value)}[/]", highlight=False)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
