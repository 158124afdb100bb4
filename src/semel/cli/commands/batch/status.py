"""`semel batch status`: how far batches are, once or again and again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.live import Live

from semel.api import Semel
from semel.batch import Batch, Batches, BatchStatus
from semel.batch.status import STATES
from semel.cli.commands.batch.opening import AsJson, Scope, find_batch, open_batches
from semel.cli.commands.batch.view import (
    FailureClass,
    batch_table,
    failure_objects,
    failures_by_class,
    status_object,
    status_view,
)
from semel.cli.commands.sweep import Ending
from semel.cli.exit_codes import IN_DOUBT, usage_error
from semel.cli.printing import console
from semel.cli.record_view import as_line
from semel.cli.store_option import Url
from semel.cli.timefmt import duration

_OVER = ("completed", "cancelled", "failed")


def status(
    id_: Annotated[
        str | None, typer.Argument(metavar="ID", help="The id of the batch. Default: all.", show_default=False)
    ] = None,
    url: Url = None,
    *,
    state: Annotated[
        str | None, typer.Option(help=f"Only batches of this state: {', '.join(STATES)}.", show_default=False)
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again and again, until the batch is over, Ctrl-C or SIGTERM.")
    ] = False,
    every: Annotated[str, typer.Option(metavar="DURATION", help="How often --watch looks.")] = "1s",
    scope: Scope = None,
    as_json: AsJson = False,
) -> None:
    """Show how far a batch is, how fast, when it is ready, and why items failed; or all batches.

    The exit code of a single look is 4 if items are in doubt: somebody has to look at them.
    """
    if id_ is not None and url is None and _is_place(id_):
        id_, url = None, id_
    if state is not None and state not in STATES:
        raise usage_error(f"--state is one of {', '.join(STATES)}, not {state!r}; nothing was read.")
    pause = duration(every).total_seconds()
    with open_batches(url, scope) as batches, Ending() as ending:
        look = _Look(batches, id_, state)
        look.again()
        if watch and sys.stdout.isatty() and not as_json:
            with Live(look.view(), console=console(), auto_refresh=False) as live:
                while not (ending.asked or look.is_over):
                    ending.wait(pause)
                    look.again()
                    live.update(look.view(), refresh=True)
            return
        while True:
            look.print(as_json=as_json)
            if not watch or look.is_over:
                break
            ending.wait(pause)
            if ending.asked:
                return
            look.again()
    if not watch and any(one.in_doubt for one in look.found):
        raise typer.Exit(IN_DOUBT)


def _is_place(text: str) -> bool:
    """Whether a single argument names a database, and no batch."""
    return "://" in text or text.endswith(".toml") or Path(text).is_file()


class _Look:
    """What was seen of one batch, or of all."""

    def __init__(self, batches: Batches[Semel], id_: str | None, state: str | None) -> None:
        self._batches = batches
        self._id = id_
        self._state: Any = state
        self.found: list[BatchStatus] = []
        self._classes: list[FailureClass] = []

    def again(self) -> None:
        """Look again."""
        if self._id is None:
            self.found = [batch.status() for batch in self._batches.list(state=self._state)]
            return
        batch: Batch[Semel] = find_batch(self._batches, self._id)
        self.found = [batch.status()]
        self._classes = failures_by_class(batch) if self.found[0].failed else []

    @property
    def is_over(self) -> bool:
        """Whether the one batch that is watched changes no more by itself."""
        return self._id is not None and self.found[0].state in _OVER

    def view(self) -> RenderableType:
        """For people."""
        if self._id is not None:
            return status_view(self.found[0], self._classes)
        return batch_table(self.found) if self.found else "There are no batches."

    def print(self, *, as_json: bool) -> None:
        """One look."""
        if not as_json:
            console().print(self.view())
            return
        for one in self.found:
            failures = {} if self._id is None else {"failures": failure_objects(self._classes)}
            sys.stdout.write(as_line(status_object(one) | failures) + "\n")
        sys.stdout.flush()
