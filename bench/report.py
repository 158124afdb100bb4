"""What was measured, for people as a table and for programs as JSON."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.harness import DISTURBED, Case, Effort, Figures, Outcome, spread
from bench.site import Fact, shown

Measured = list[Outcome]


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
    baselines = {measured.variant.against for measured in figures}
    for measured in figures:
        table.add_row(
            measured.variant.name,
            f"{_microseconds(measured.median)} ({_range([1e6 * value for value in measured.seconds])})",
            _microseconds(statistics.median(measured.processor)),
            f"{1 / measured.median:,.0f}",
            _ratio(measured, baselines),
            measured.variant.by.target,
            _verdict(measured.verdict),
        )
    return table


def facts_table(case: Case, facts: Sequence[Fact]) -> Table:
    """What was counted, each beside its target."""
    title = f"{case.title}: counted" if case.variants else case.title
    table = Table(title=title, title_justify="left", caption_justify="left")
    if not case.variants:
        table.caption = "\n".join(case.notes)
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_column("target")
    table.add_column("")
    for fact in facts:
        table.add_row(fact.what, f"{shown(fact.figure)} {fact.unit}".rstrip(), fact.target, _verdict(fact.met))
    return table


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} µs"


def _ratio(measured: Figures, baselines: set[str | None]) -> str:
    if measured.ratio is None:
        return "baseline" if measured.variant.name in baselines else ""
    return f"{measured.ratio:.2f}× ({_range(measured.ratios)})"


def _range(values: list[float]) -> str:
    lower, upper = spread(values)
    digits = 0 if lower >= 100 else 2 if upper < 20 else 1
    return f"{lower:,.{digits}f}–{upper:,.{digits}f}"


def _verdict(verdict: bool | None) -> str:
    return "" if verdict is None else "[green]met[/]" if verdict else "[red]not met[/]"


def as_data(
    measured: Measured, effort: Effort, facts: dict[str, Any], durability: dict[str, Any], left_out: dict[str, str]
) -> dict[str, Any]:
    """Everything that was measured, what it depends on, and what could not be measured."""
    return {
        "machine": facts,
        "durability": durability,
        "effort": dataclasses.asdict(effort),
        "cases": {outcome.case.name: _case(outcome, effort) for outcome in measured},
        "left_out": left_out,
    }


def _case(outcome: Outcome, effort: Effort) -> dict[str, Any]:
    return {
        "title": outcome.case.title,
        "notes": list(outcome.case.notes),
        "settings": dict(outcome.settings),
        "variants": {measured.variant.name: _variant(measured, effort) for measured in outcome.figures},
        "facts": [{**dataclasses.asdict(fact), "met": fact.met} for fact in outcome.facts],
    }


def _variant(measured: Figures, effort: Effort) -> dict[str, Any]:
    variant = measured.variant
    return {
        "calls_per_round": effort.calls(variant.calls),
        "microseconds": _summary([1e6 * value for value in measured.seconds]),
        "processor_microseconds": _summary([1e6 * value for value in measured.processor]),
        "others_share": [round(share, 3) for share in measured.others],
        "against": variant.against,
        "added": variant.added,
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


def missed(measured: Measured) -> int:
    """How many targets were not met."""
    verdicts = [figures.verdict for outcome in measured for figures in outcome.figures]
    verdicts += [fact.met for outcome in measured for fact in outcome.facts]
    return verdicts.count(False)


def show(console: Console, measured: Measured, facts: dict[str, Any], durability: dict[str, Any]) -> None:
    """Print the tables and what they depend on."""
    for outcome in measured:
        console.print()
        if outcome.figures:
            console.print(as_table(outcome.case, outcome.figures))
        if outcome.facts:
            console.print(facts_table(outcome.case, outcome.facts))
        if outcome.settings:
            console.print(f"[dim]set to: {_plain(outcome.settings)}[/]", highlight=False)
    console.print()
    console.print("Medians over the rounds, in brackets the middle half of them. Ratios are taken inside each round.")
    shares = [share for outcome in measured for one in outcome.figures for share in one.others]
    disturbed = sum(share > DISTURBED for share in shares)
    console.print(
        f"{disturbed} of {len(shares)} measurements were disturbed: others took over {DISTURBED:.0%} meanwhile."
    )
    for name, value in {**facts, "durability": durability}.items():
        console.print(f"[dim]{name}: {_plain(value)}[/]", highlight=False)


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
