"""`semel bulk`: an action on all records that match, as a batch that goes on where it was after a kill."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import typer
from rich.text import Text

from semel.cli.confirm import By, Reason, Yes, check_reason, login
from semel.cli.exit_codes import OTHER, usage_error
from semel.cli.filters import takes_filter
from semel.cli.printing import as_text, console
from semel.cli.store_option import Url, open_async_engine
from semel.engine.engine import RecordFilter

Action = Annotated[
    str, typer.Option("--action", help="What to do: cancel, fail, release, reopen or erase.", show_default=False)
]


@takes_filter
def bulk(
    url: Url = None,
    *,
    wanted: RecordFilter,
    action: Action,
    reason: Reason,
    error: Annotated[str, typer.Option(help="For fail: what duplicates are told.", show_default=False)] = "",
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="At most so many in a second.", show_default=False)
    ] = None,
    id_: Annotated[
        str | None,
        typer.Option("--id", help="Names the bulk action: given again, it goes on with it.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Do something with all records that match: each once, each in the audit chain.

    What is refused is counted and listed, and the rest goes on. Ended by a kill, the same command with the same --id
    goes on. The exit code is 1 if something was refused or failed.
    """
    check_reason(reason)
    from semel.server.bulk import BulkRequest  # it imports all about batches and events

    asked: Any = BulkRequest(action=action, reason=reason, records=wanted, error=error, rate=rate, id=id_)  # type: ignore[arg-type]  # checked by the bulk action
    refused = asyncio.run(_run(url, asked, by or login(), dry_run=dry_run, yes=yes))
    if refused:
        raise typer.Exit(OTHER)


async def _run(url: str | None, asked: Any, who: str, *, dry_run: bool, yes: bool) -> int:
    """Count, ask, begin and carry out; answers how many were refused or failed."""
    from semel.server.access import Role, User
    from semel.server.actions import make_actions
    from semel.server.bulk import BulkActions

    out = console()
    async with open_async_engine(url) as semel:
        bulk_actions, user = BulkActions(make_actions(semel)), User(who, {Role.ADMIN})
        preview = await bulk_actions.preview(user, asked)
        out.print(
            Text.assemble(
                (f"{preview.matching} match", "bold"), f", {preview.eligible} are in a state for {asked.action}"
            )
        )
        if dry_run or (not preview.matching and asked.id is None):
            return 0
        if not yes:
            _agree(asked.action, preview.eligible)
        started = await bulk_actions.start(user, asked)
        out.print(Text(f"bulk action {started.id}", "dim"))
        status = await bulk_actions.run(started.scope, started.id)
        out.print(
            Text.assemble(
                (f"{status.completed} done", "bold green"), f", {status.skipped} refused, {status.failed} failed"
            )
        )
        for one in await bulk_actions.refusals(user, started.scope, started.id, limit=20):
            out.print(as_text(f"  {one.id[:16]} {'' if one.error is None else one.error.message}"), soft_wrap=True)
        return status.skipped + status.failed


def _agree(action: str, number: int) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise usage_error("There is no terminal to ask on; nothing was changed. Look with --dry-run, then add --yes.")
    if not typer.confirm(f"Do {action} with {number} records?", default=False):
        console().print("Nothing was changed.")
        raise typer.Exit(OTHER)
