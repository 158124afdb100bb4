"""`semel show`: all that is known of one record."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from semel.cli.lookup import Operation, Scope, Which, check_which, find
from semel.cli.printing import console
from semel.cli.record_view import as_line, as_object, as_objects, history_of, history_table, panel
from semel.cli.store_option import Url, open_engine
from semel.cli.timefmt import now


def show(
    which: Which,
    url: Url = None,
    *,
    operation: Operation = None,
    scope: Scope = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Show one record: its life, finished steps, error, resolution and history.

    Outcomes are never shown.
    """
    check_which(which, url)
    with open_engine(url) as semel:
        record = find(semel, which, operation, scope)
        entries = history_of(semel, record.key)
    if as_json:
        lists = {"steps": [step.name for step in record.steps], "history": as_objects(entries)}
        fields = as_object(record) | lists
        sys.stdout.write(as_line(fields) + "\n")
    else:
        further = [("history", history_table(entries))] if entries else []
        console().print(panel(record, now(), *further))
