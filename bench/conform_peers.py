"""`python -m bench.conform_peers [--write]`: judge semel and its peers from outside, by the same cases, in one table.

What always holds: every product serves the same application, in a process of its own, under the same server, and is
asked the same. A target differs only where a product documents another wording, and the page says where.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from bench.conform_table import Column, markdown, replaced, terminal
from bench.machine import version_of
from semel_lab.conform import CASES, NotSeen, Result, Target, conform, served

PAGE: Final = Path(__file__).parents[1] / "docs" / "explanation" / "comparison.md"
BODY: Final = b'{"amount": 10, "currency": "EUR"}'
SLOW: Final = b'{"amount": 10, "currency": "EUR", "slow": true}'

app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class Product:
    """What is compared: the package, its app in `bench.peer_apps`, and what has to be known to ask it fairly.

    Attributes:
        running_status: what it answers to a duplicate of what still runs, by its own documentation.
        requires: whether it has a setting that requires keys.
    """

    package: str
    app: str
    running_status: int = 409
    requires: bool = True


PRODUCTS: Final = (
    Product("semel", "semel"),
    Product("idemkit", "idemkit", running_status=423),
    Product("asgi-idempotency-header", "asgi_idempotency_header", requires=False),
)


@app.command()
def main(
    *,
    write: Annotated[bool, typer.Option("--write", help="replace the table in docs/explanation/comparison.md")] = False,
) -> None:
    """Judge semel and its peers from outside."""
    console = Console()
    for product in PRODUCTS:
        if version_of(product.package) is None:
            console.print(
                f"{product.package} is not installed here; nothing was run. `scripts/setup-venv bench` installs it."
            )
            raise typer.Exit(1)
    columns = judged_all(console)
    table, notes = terminal(columns)
    console.print(table, *notes, sep="\n")
    if write:
        server = f"uvicorn {version_of('uvicorn')} with Starlette {version_of('starlette')}"
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(replaced(page, markdown(columns, server)), encoding="utf-8")
        console.print(f"Written to {PAGE.name}.")


def judged_all(console: Console) -> list[Column]:
    """Every product, one after the other."""
    columns = []
    with _progress(console) as progress:
        for product in PRODUCTS:
            task = progress.add_task(product.package, total=len(CASES))
            shown = partial(_show, progress, task)
            results = (*judged(product, shown), judged_required(product))
            columns.append(Column(product.package, version_of(product.package) or "", results))
    return columns


def judged(product: Product, progress: Callable[[int, int, str], None]) -> tuple[Result, ...]:
    """All cases, where keys are not required."""
    with served("asgi", f"bench.peer_apps:{product.app}") as url:
        return conform(target(url, product), progress=progress).results


def judged_required(product: Product) -> Result:
    """The case of the missing key once more, where keys are required: a row of its own."""
    [case] = [case for case in CASES if case.id == "missing-key"]
    named = replace(case, id="missing-key, where required")
    if not product.requires:
        return Result(named, NotSeen("it has no setting that requires keys"), 0.0)
    with served("asgi", f"bench.peer_apps:{product.app}_required") as url:
        [result] = conform(replace(target(url, product), required=True), cases=[named]).results
        return result


def target(url: str, product: Product) -> Target:
    """The same for every product, but for the wording that it documents."""
    return Target(
        url=f"{url}/orders",
        body=BODY,
        slow_body=SLOW,
        caller=(("Authorization", "Bearer alice"),),
        other_caller=(("Authorization", "Bearer bob"),),
        effects="/effects",
        other_path="/gifts",
        running_status=product.running_status,
    )


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def _show(progress: Progress, task: TaskID, done: int, total: int, name: str) -> None:
    progress.update(task, completed=done + 1)


if __name__ == "__main__":
    app()
