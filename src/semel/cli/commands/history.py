"""`semel history`: what happened to one record, and who held it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from semel.cli.lookup import Operation, Scope, Which, check_which, find
from semel.cli.printing import console
from semel.cli.record_view import as_line, as_objects, history_of, history_table
from semel.cli.store_option import Url, open_engine


def history(
    which: Which,
    url: Url = None,
    *,
    operation: Operation = None,
    scope: Scope = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per entry and line.")] = False,
) -> None:
    """Show what happened to one record: attempts, take-overs, decisions, and who held it."""
    check_which(which, url)
    with open_engine(url) as semel:
        entries = history_of(semel, find(semel, which, operation, scope).key)
    if as_json:
        sys.stdout.write("".join(f"{as_line(fields)}\n" for fields in as_objects(entries)))
    else:
        console().print(history_table(entries))
