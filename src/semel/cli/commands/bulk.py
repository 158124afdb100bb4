"""`semel bulk`: an action on all records that match, as a batch that goes on where it was after a kill."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from semel.cli.commands.bulk_action import DryRun, Id, Rate, carry_out
from semel.cli.confirm import By, Reason, Yes, check_reason, login
from semel.cli.decide import UNCHECKED, read_value
from semel.cli.exit_codes import OTHER, usage_error
from semel.cli.filters import takes_filter
from semel.cli.printing import console
from semel.cli.store_option import Url, app_option, check_alone, load_engine, open_async_engine
from semel.engine.engine import RecordFilter

Action = Annotated[
    str,
    typer.Option("--action", help="What to do: resolve, cancel, fail, release, reopen or erase.", show_default=False),
]


@takes_filter
def bulk(
    url: Url = None,
    *,
    wanted: RecordFilter,
    ages: dict[str, timedelta],
    action: Action,
    reason: Reason,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="For resolve: they happened; duplicates get this. Default: null.", show_default=False
        ),
    ] = None,
    error: Annotated[str, typer.Option(help="For fail: what duplicates are told.", show_default=False)] = "",
    rate: Rate = None,
    id_: Id = None,
    dry_run: DryRun = False,
    by: By = None,
    app: Annotated[str | None, app_option("so that the value is compared with what each operation returns")] = None,
    yes: Yes = False,
) -> None:
    """Do something with all records that match: each once, each in the audit chain.

    What is refused is counted and listed, and the rest goes on. Ended by a kill, the same command with the same --id
    goes on. The exit code is 1 if something was refused or failed.
    """
    check_reason(reason)
    check_alone(url, app)
    from semel.server.bulk import BulkRequest  # it imports all about batches and events

    if value is not None and action != "resolve":
        raise usage_error("--value is for --action resolve; nothing was done.")
    stated = None if value is None else read_value(value, "--value")
    asked: Any = BulkRequest(
        action=action,  # type: ignore[arg-type]  # checked by the bulk action
        reason=reason,
        records=wanted,
        error=error,
        value=stated,
        rate=rate,
        id=id_,
        ages=ages,
    )
    refused = asyncio.run(_run(url, app, asked, by or login(), dry_run=dry_run, yes=yes))
    if action == "resolve" and app is None and not dry_run:
        console().print(Text(UNCHECKED, "yellow"), soft_wrap=True)
    if refused:
        raise typer.Exit(OTHER)


async def _run(url: str | None, app: str | None, asked: Any, who: str, *, dry_run: bool, yes: bool) -> int:
    from semel.server.actions import make_actions
    from semel.server.bulk import BulkActions

    loaded: Any = open_async_engine(url) if app is None else load_engine(app)
    actions = make_actions(loaded)
    async with actions.semel:
        return await carry_out(BulkActions(actions), who, asked, dry_run=dry_run, yes=yes)
