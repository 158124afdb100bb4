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

from semel.cli.exit_codes import IN_DOUBT
from semel.cli.filters import takes_filter
from semel.cli.lookup import SHORTEST
from semel.cli.printing import as_text, console
from semel.cli.record_view import SHORT, as_line, as_object, key_text, scope_text, status_text, until_text
from semel.cli.store_option import Url, open_engine
from semel.cli.timefmt import now
from semel.core.record import Record
from semel.engine.engine import RecordFilter
from semel.texts import span

_PAGE = 100
_WIDE = 118
_FIXED = 84  # what the other columns and the gaps take in a wide table
_NARROW_UNTIL = 8
_WITH_AGE = 68
_WITH_ATTEMPTS = 58
_NAMES = ("operation", "scope", "key")
_PIPE = 1000


@takes_filter
def list_records(
    url: Url = None,
    *,
    wanted: RecordFilter,
    newest: Annotated[bool, typer.Option("--newest", help="Newest first.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help=f"At most so many. Default: {_PAGE}, all with --json.", show_default=False),
    ] = None,
) -> None:
    """List records, oldest first, or with --newest newest first.

    Key values may be personal data. Long ones are cut to fit a terminal; semel show and --json give all of them. With
    --stuck the exit code is 4 if there are any. Redis, and DynamoDB without its index, search only with --scan.
    """
    with open_engine(url) as semel:
        wanted["newest_first"] = newest
        records = semel.records(**wanted)
        found = _print_lines(records, limit) if as_json else _print_table(records, limit or _PAGE)
    if wanted["stuck"] and found:
        raise typer.Exit(IN_DOUBT)


def _print_lines(records: Iterator[Record], limit: int | None) -> int:
    """Print them, and answer how many there were."""
    count = 0
    for count, record in enumerate(islice(records, limit), 1):  # noqa: B007 - the last count is what is asked for
        sys.stdout.write(as_line(as_object(record)) + "\n")
    return count


def _print_table(records: Iterator[Record], limit: int) -> int:
    """Print them, and answer how many there were."""
    found = list(islice(records, limit))
    out = console(in_a_pipe=_PIPE)
    if not found:
        out.print("No records.", style="dim")
        return 0
    out.print(table(found, now(), out.width))
    if next(records, None) is not None:
        out.print(f"There are more than these {limit}: narrow the search, or raise --limit.", style="dim")
    return len(found)


def table(records: list[Record], today: datetime, width: int) -> Table:
    """The records as a table; a narrow one gives each record two lines or three, and leaves columns out."""
    wide = width >= _WIDE
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), expand=not wide)
    grid.add_column("reference", no_wrap=True, style="dim")
    if wide:
        columns = zip(*(_names(record) for record in records), strict=True)
        widest = [
            max(len(name), *(text.cell_len for text in texts)) for name, texts in zip(_NAMES, columns, strict=True)
        ]
        for name, most in zip(_NAMES, fitted(widest, width - _FIXED), strict=True):
            grid.add_column(name, no_wrap=True, overflow="ellipsis", max_width=most)
    else:
        grid.add_column("operation,\nscope, key", no_wrap=True, overflow="ellipsis", ratio=1)
    grid.add_column("status", no_wrap=True)
    if width >= _WITH_ATTEMPTS:
        grid.add_column("attempts", justify="right", no_wrap=True)
    if width >= _WITH_AGE:
        grid.add_column("age", justify="right", no_wrap=True)
    if width >= _WITH_ATTEMPTS:
        grid.add_column("until", no_wrap=wide, max_width=None if wide else _NARROW_UNTIL)
    if wide:
        grid.add_column("in doubt", no_wrap=True)
    for record in records:
        grid.add_row(*(_wide_row(record, today) if wide else _narrow_row(record, today, width)))
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
    return as_text(record.key.operation), scope_text(record), key_text(record)


def _wide_row(record: Record, today: datetime) -> list[str | Text]:
    head, tail = record.reference[:SHORT], record.in_doubt_policy
    return [head, *_names(record), status_text(record), *_times(record, today), tail]


def _narrow_row(record: Record, today: datetime, width: int) -> list[str | Text]:
    operation, scope, key = _names(record)
    names = Text.assemble(operation, "\n", scope, (" · ", "dim"), key)
    status = Text.assemble(status_text(record, "\n"), (f"\n{record.in_doubt_policy}", "dim"))
    attempts, age, until = _times(record, today)
    if width < _WITH_ATTEMPTS:
        return [record.reference[:SHORTEST], names, status]
    times = [attempts, age, until] if width >= _WITH_AGE else [attempts, until]
    return [record.reference[:SHORTEST], names, status, *times]


def _times(record: Record, today: datetime) -> list[str | Text]:
    return [str(record.attempts), span(today - record.created_at), until_text(record, today)]
