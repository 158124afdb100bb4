"""`semel batch`: load files of items, run them, watch them, and decide about them."""

from __future__ import annotations

from typing import Final

import typer

from semel.cli.commands.batch.deciding import cancel, pause, resume, retry
from semel.cli.commands.batch.results import results
from semel.cli.commands.batch.running import run, work
from semel.cli.commands.batch.starting import start
from semel.cli.commands.batch.status import status

_HELP: Final = "Load files of items, run them, and look after batches."

batch = typer.Typer(help=_HELP, no_args_is_help=True)
for _name, _command in (
    ("start", start),
    ("run", run),
    ("work", work),
    ("status", status),
    ("pause", pause),
    ("resume", resume),
    ("retry", retry),
    ("cancel", cancel),
    ("results", results),
):
    batch.command(_name)(_command)
