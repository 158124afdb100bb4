"""`semel count` and `semel counts`: how many records there are."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.table import Table

from semel.cli.exit_codes import IN_DOUBT
from semel.cli.filters import takes_filter
from semel.cli.printing import as_text, console
from semel.cli.store_option import Url, open_engine
from semel.core.record import Count
from semel.engine.engine import RecordFilter


@takes_filter
def count(url: Url = None, *, wanted: RecordFilter) -> None:
    """Print how many records there are, those included that are expired and not swept yet.

    With --stuck the exit code is 4 if there are any. Redis and DynamoDB count only with --scan.
    """
    with open_engine(url) as semel:
        number = semel.count(**wanted)
    sys.stdout.write(f"{number}\n")
    if wanted["stuck"] and number:
        raise typer.Exit(IN_DOUBT)


@takes_filter
def counts(
    url: Url = None,
    *,
    wanted: RecordFilter,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Print how many records there are of each operation and status.

    With --stuck the exit code is 4 if there are any. Redis and DynamoDB count only with --scan.
    """
    with open_engine(url) as semel:
        found = semel.counts(**wanted)
    if as_json:
        for one in found:
            sys.stdout.write(msgspec.json.encode(one).decode() + "\n")
    else:
        console().print(_table(found) if found else as_text("No records.", "dim"))
    if wanted["stuck"] and found:
        raise typer.Exit(IN_DOUBT)


def _table(found: list[Count]) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    grid.add_column("operation", overflow="fold")
    grid.add_column("status", no_wrap=True)
    grid.add_column("number", justify="right", no_wrap=True)
    for one in found:
        grid.add_row(as_text(one.operation), one.status.value, f"{one.number:,}")
    return grid
