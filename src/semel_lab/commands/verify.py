"""`semel verify`: run the simulator, show how far it got, and what it found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from semel.cli.exit_codes import OTHER
from semel.cli.printing import console

if TYPE_CHECKING:
    from semel_lab.simulate import Report

_SCHEDULES = 200_000
_BETWEEN_LINES = 5.0
_SOMETIMES = 40


def verify(
    *,
    schedules: Annotated[int, typer.Option(min=1, help="At least so many schedules.")] = _SCHEDULES,
    seed: Annotated[int, typer.Option(min=0, help="Another seed tries other schedules.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Over how many processes. Default: one per core.", show_default=False)
    ] = None,
) -> None:
    """Run the simulator: the real engine under every order of moves and every fault.

    From 180,000 schedules on, small set-ups are explored to the end; chance does the rest. The exit code is 0 only if
    every invariant held, and everything that should happen sometimes did happen.
    """
    from semel_lab.simulate import verify as simulate

    out = console()
    processes = workers or len(os.sched_getaffinity(0))
    with _progress(out, schedules) as progress:
        report = simulate(schedules, seed, processes, progress)
    for part in shown(report, out.width):
        out.print(part)
    if not report.passed:
        raise typer.Exit(OTHER)


@contextmanager
def _progress(out: Console, schedules: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, a line now and then elsewhere."""
    if not out.is_terminal:
        yield _lines(out)
        return
    columns = (TextColumn("schedules"), BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("", total=schedules)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(out: Console) -> Callable[[int, int], None]:
    next_at = time.monotonic() + _BETWEEN_LINES

    def tell(done: int, total: int) -> None:
        nonlocal next_at
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + _BETWEEN_LINES
            out.print(f"{done:,} of {total:,} schedules")

    return tell


def shown(report: Report, width: int) -> Iterator[RenderableType]:
    """The report, part by part."""
    yield _numbers(report)
    if report.worlds:
        yield _worlds(report)
    yield _invariants(report)
    yield _reached(report, width)
    for failing in report.failing:
        yield Padding(Text(str(failing), "red"), (1, 0, 0, 1))
    yield Padding(_conclusion(report), (1, 0, 0, 1))


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=bool(number))
    return table


def _numbers(report: Report) -> Table:
    rate = report.schedules / report.seconds if report.seconds else 0.0
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    rows = {
        "schedules": f"{report.schedules:,}  ({report.exhaustive:,} exhaustive, {report.by_chance:,} by chance)",
        "cut short": f"{report.cut:,}  where they reached a state seen before",
        "steps": f"{report.moves:,}  (longest schedule {report.longest:,})",
        "states": f"{report.states:,}",
        "seed": str(report.seed),
        "time": f"{report.seconds:.1f} s  ({rate:,.0f} schedules/s)",
    }
    for name, text in rows.items():
        grid.add_row(f" {name}", text)
    return grid


def _worlds(report: Report) -> Table:
    table = _table("explored to the end", "faults", "slow", "schedules", "states", "")
    for world in report.worlds:
        end = Text("✔", "green") if world.complete else Text("not to the end", "yellow")
        numbers = (str(world.faults), str(world.slow), f"{world.schedules:,}", f"{world.states:,}")
        table.add_row(world.name, *numbers, end)
    return table


def _invariants(report: Report) -> Table:
    from semel_lab.simulate import INVARIANTS

    broken = {failing.invariant for failing in report.failing}
    table = _table("invariant")
    table.add_column("what always holds")
    table.add_column("verdict", no_wrap=True)
    for name, meaning in INVARIANTS.items():
        table.add_row(name, meaning, Text("✘ broken", "bold red") if name in broken else Text("✔ held", "green"))
    return table


def _reached(report: Report, width: int) -> Table:
    """How often everything that should happen sometimes did, in as many columns as there is room for."""
    counts = [(f"{count:,}", Text(name)) for name, count in sorted(report.seen.items())]
    counts += [("never", Text(name, "bold yellow")) for name in report.missing]
    across = max(width // _SOMETIMES, 1)
    down = -(-len(counts) // across)
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), width=min(width, across * _SOMETIMES))
    for _ in range(across):
        table.add_column("times", justify="right", no_wrap=True)
        table.add_column("sometimes", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in range(down):
        table.add_row(*(cell for pair in counts[row::down] for cell in pair))
    return table


def _conclusion(report: Report) -> Text:
    if report.failing:
        seed = next((failing.seed for failing in report.failing if failing.seed), str(report.seed))
        text = f"✘ {len(report.failing)} schedules break an invariant; the shrunk trace is above, the seed is {seed}."
        return Text(text, "bold red")
    if report.missing:
        text = f"? Not proved: {len(report.missing)} things that should happen sometimes never did. Run more schedules."
        return Text(text, "bold yellow")
    return Text("✔ Every invariant held in every schedule, and everything that should be reached was.", "bold green")
