"""`semel list`: which records there are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from semel.cli.found import SHORTEST
from semel.cli.place import Url, opened
from semel.cli.printing import console, shown
from semel.cli.record_view import SHORT, as_line, as_object, key_text, scope_text, status_text, until_text
from semel.cli.times import moment, now, span
from semel.core.key import SHARED
from semel.core.record import Record, Status

_PAGE = 100
_WIDE = 118
_FIXED = 84  # what the other columns and the gaps take in a wide table
_NARROW_UNTIL = 8
_PIPE = 1000


def list_records(
    url: Url = None,
    *,
    status: Annotated[Status | None, typer.Option(help="Only records in this status.", show_default=False)] = None,
    operation: Annotated[str | None, typer.Option(help="Only this operation.", show_default=False)] = None,
    scope: Annotated[str | None, typer.Option(help="Only this scope; '' means shared.", show_default=False)] = None,
    before: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Claimed before: 2026-03-01T14:30, or 2h for two hours ago.")
    ] = None,
    after: Annotated[str | None, typer.Option(metavar="WHEN", help="Claimed at or after, written likewise.")] = None,
    process: Annotated[str | None, typer.Option(help="Only this process instance.", show_default=False)] = None,
    business_key: Annotated[str | None, typer.Option(help="Only this business key.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help=f"At most so many. Default: {_PAGE}, all with --json.", show_default=False),
    ] = None,
) -> None:
    """List records, oldest first.

    Key values may be personal data. Long ones are cut to fit a terminal; semel show and --json give all of them.
    """
    earliest, latest = None if after is None else moment(after), None if before is None else moment(before)
    with opened(url) as semel:
        records = semel.records(
            status=status,
            operation=operation,
            scope=SHARED if scope == "" else scope,
            before=latest,
            after=earliest,
            process_instance=process,
            business_key=business_key,
        )
        if as_json:
            _print_lines(records, limit)
        else:
            _print_table(records, limit or _PAGE)


def _print_lines(records: Iterator[Record], limit: int | None) -> None:
    for record in islice(records, limit):
        sys.stdout.write(as_line(as_object(record)) + "\n")


def _print_table(records: Iterator[Record], limit: int) -> None:
    found = list(islice(records, limit))
    out = console(in_a_pipe=_PIPE)
    if not found:
        out.print("No records.", style="dim")
        return
    out.print(table(found, now(), out.width))
    if next(records, None) is not None:
        out.print(f"There are more than these {limit}: narrow the search, or raise --limit.", style="dim")


def table(records: list[Record], today: datetime, width: int) -> Table:
    """The records as a table; a narrow one gives each record two lines or three."""
    wide = width >= _WIDE
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), expand=not wide)
    grid.add_column("reference", no_wrap=True, style="dim")
    if wide:
        columns = zip(*(_names(record) for record in records), strict=True)
        widest = [max(name.cell_len for name in column) for column in columns]
        for name, most in zip(("operation", "scope", "key"), fitted(widest, width - _FIXED), strict=True):
            grid.add_column(name, no_wrap=True, overflow="ellipsis", max_width=most)
    else:
        grid.add_column("operation, scope, key", no_wrap=True, overflow="ellipsis", ratio=1)
    grid.add_column("status", no_wrap=True)
    grid.add_column("attempts", justify="right", no_wrap=True)
    grid.add_column("age", justify="right", no_wrap=True)
    grid.add_column("until", no_wrap=wide, max_width=None if wide else _NARROW_UNTIL)
    if wide:
        grid.add_column("in doubt", no_wrap=True)
    for record in records:
        grid.add_row(*(_wide_row(record, today) if wide else _narrow_row(record, today)))
    return grid


def fitted(widths: list[int], room: int) -> list[int]:
    """The widths, the largest ones cut back evenly until all of them fit into `room`."""
    if sum(widths) <= room:
        return widths
    share = room // len(widths)
    small = [width for width in widths if width <= share]
    if not small:
        return [share] * len(widths)
    large = fitted([width for width in widths if width > share], room - sum(small))
    return [width if width <= share else large.pop(0) for width in widths]


def _names(record: Record) -> tuple[Text, Text, Text]:
    return shown(record.key.operation), scope_text(record), key_text(record)


def _wide_row(record: Record, today: datetime) -> list[str | Text]:
    head, tail = record.reference[:SHORT], record.in_doubt_policy
    return [head, *_names(record), status_text(record), *_times(record, today), tail]


def _narrow_row(record: Record, today: datetime) -> list[str | Text]:
    operation, scope, key = _names(record)
    names = Text.assemble(operation, "\n", scope, (" · ", "dim"), key)
    status = Text.assemble(status_text(record, "\n"), (f"\n{record.in_doubt_policy}", "dim"))
    return [record.reference[:SHORTEST], names, status, *_times(record, today)]


def _times(record: Record, today: datetime) -> list[str | Text]:
    return [str(record.attempts), span(today - record.created_at), until_text(record, today)]
