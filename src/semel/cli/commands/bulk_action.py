"""What the commands share that do something with all that match: count, ask, begin, show how far it is and what came.

Nothing is changed before somebody has agreed; ended by a kill, the same command with the same id goes on.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.progress import Progress
from rich.text import Text

from semel.cli.exit_codes import OTHER, usage_error
from semel.cli.printing import as_text, console

if TYPE_CHECKING:
    from semel.batch import BatchStatus
    from semel.server.bulk import BulkActions, BulkProgress, BulkRequest

_EVERY: Final = 0.5
_SHOWN: Final = 20
Rate = Annotated[float | None, typer.Option(min=0.001, help="At most so many in a second.", show_default=False)]
Id = Annotated[
    str | None,
    typer.Option("--id", help="Names the bulk action: given again, it goes on with it.", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]


async def carry_out(actions: BulkActions, who: str, asked: BulkRequest, *, dry_run: bool, yes: bool) -> int:
    """Count, ask, begin and carry out; answers how many were refused or failed.

    Raises:
        Refused: there is no terminal to ask on, or what was asked for cannot be done.
    """
    from semel.server.access import Role, User  # with all about the server

    out, user = console(), User(who, {Role.ADMIN})
    preview = await actions.preview(user, asked)
    eligible = f"{preview.eligible}" if preview.is_eligible_exact else f"at most {preview.eligible}"
    out.print(Text.assemble((f"{preview.matching} match", "bold"), f", {eligible} are in a state for {asked.action}"))
    if dry_run or (not preview.matching and asked.id is None):
        return 0
    if not yes:
        _agree(asked, preview.eligible)
    started = await actions.start(user, asked)
    out.print(as_text(f"bulk action {started.id}", "dim"))
    status = await _run(actions, started)
    out.print(
        Text.assemble((f"{status.completed} done", "bold green"), f", {status.skipped} refused, {status.failed} failed")
    )
    for one in await actions.refusals(user, started.scope, started.id, limit=_SHOWN):
        out.print(as_text(f"  {one.id[:16]} {'' if one.error is None else one.error.message}"), soft_wrap=True)
    return status.skipped + status.failed


async def _run(actions: BulkActions, started: BulkProgress) -> BatchStatus:
    """Carry out a bulk action, and show how far it is meanwhile."""
    running = asyncio.create_task(actions.run(started.scope, started.id))
    total = started.status.total
    with Progress(console=console(), transient=True) as progress:
        bar = progress.add_task(started.metadata.action, total=total)
        try:
            while not (await asyncio.wait({running}, timeout=_EVERY))[0]:
                seen = await actions.progress(started.metadata.user(), started.scope, started.id)
                progress.update(bar, completed=total - seen.status.remaining)
        finally:
            running.cancel()
    return await running


def _agree(asked: BulkRequest, number: int) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise usage_error("There is no terminal to ask on; nothing was changed. Look with --dry-run, then add --yes.")
    what = "dead letters" if asked.records is None else "records"
    if not typer.confirm(f"Do {asked.action} with {number} {what}?", default=False):
        console().print("Nothing was changed.")
        raise typer.Exit(OTHER)
