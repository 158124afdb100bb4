"""`python -m bench [name…]`: measure, show a table, write a JSON file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.catalogue import CASES, chosen, missing
from bench.harness import Case, Effort, run_case, steps
from bench.machine import facts
from bench.report import Measured, as_data, missed, show, write
from bench.site import Unavailable
from bench.sqlite_files import durability, filled

LATEST = Path(__file__).parent / "results" / "latest.json"

app = typer.Typer(add_completion=False)


@app.command()
def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"which cases ({', '.join(CASES)}); all, if none")] = None,
    *,
    rounds: Annotated[int, typer.Option(help="how many rounds count")] = Effort.rounds,
    scale: Annotated[float, typer.Option(help="calls in a round, as a multiple of the usual number")] = Effort.scale,
    rows: Annotated[
        int, typer.Option(help="how many records the tables hold before; rows-5m and sweep have more")
    ] = Effort.rows,
    tries: Annotated[int, typer.Option(help="how often a round that other processes disturb is begun")] = Effort.tries,
    output: Annotated[Path, typer.Option(help="where the figures go")] = LATEST,
    folder: Annotated[Path, typer.Option(help="where the databases are put: the disk to measure")] = LATEST.parent,
) -> None:
    """Compare semel with the bare store and with peers. Only ratios inside one run mean something."""
    console = Console()
    effort = Effort(rounds, scale, rows, tries)
    try:
        cases = chosen(names or [])
    except LookupError as problem:
        raise typer.BadParameter(str(problem.args[0])) from None
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="databases-", dir=folder) as place:
        measured, left_out = measure(console, cases, effort, Path(place))
        known, durable = facts(Path(place)), durability(filled(Path(place), Effort(rows=1), "settings"))
    show(console, measured, known, durable)
    for name, why in left_out.items():
        console.print(f"[bold yellow]NOT MEASURED: {name}.[/] {escape(why)}")
    write(output, as_data(measured, effort, known, durable, left_out))
    console.print(f"Written to {output}.")
    if missed(measured):
        console.print(f"[yellow]{missed(measured)} target(s) not met.[/]")


def measure(console: Console, cases: list[Case], effort: Effort, place: Path) -> tuple[Measured, dict[str, str]]:
    """Run the cases one after the other, with a bar that shows how far they are. Second: why some could not run."""
    measured: Measured = []
    left_out: dict[str, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Drawn between measurements only: a thread that draws would take part in them.
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("", total=sum(steps(case, effort) for case in cases))

        def advance(what: str, steps: int) -> None:
            progress.update(task, advance=steps, description=what, refresh=True)

        done = 0
        for case in cases:
            try:
                package = missing(case)
                if package is not None:
                    raise Unavailable(f"{package} is not installed; `make bench` installs it.")
                measured.append(run_case(case, effort, place, advance))
            except Unavailable as problem:
                left_out[case.name] = str(problem)
            done += steps(case, effort)
            progress.update(task, completed=done)
    return measured, left_out


if __name__ == "__main__":
    app()
