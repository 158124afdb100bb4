"""`semel batch pause`, `resume`, `retry` and `cancel`: what people decide about a batch."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Annotated, cast

import typer

from semel.api import Semel
from semel.batch import Batch, BatchStatus
from semel.batch.control import Retried
from semel.cli.commands.batch.opening import AsJson, Id, Scope, open_batch
from semel.cli.commands.batch.view import print_status, status_object, status_view
from semel.cli.confirm import Actor, Yes, check_reason, login, recorded
from semel.cli.exit_codes import OTHER, usage_error
from semel.cli.printing import console
from semel.cli.record_view import as_line
from semel.cli.store_option import Url
from semel.core.key import is_internal

Why = Annotated[
    str,
    typer.Option("--reason", help="Why; kept with the batch. A bulk action needs one.", show_default=False),
]
WhyNow = Annotated[
    str,
    typer.Option("--reason", help="Why; kept in the audit chain. A bulk action needs one.", show_default=False),
]


def pause(
    id_: Id, url: Url = None, *, reason: Why = "", by: Actor = None, scope: Scope = None, as_json: AsJson = False
) -> None:
    """Have every process let its running items end, and begin no others, within two seconds."""
    with open_batch(id_, url, scope) as batch, _recorded(batch, "pause", by, scope, reason):
        status = batch.pause(reason)
    print_status(status, as_json=as_json)


def resume(
    id_: Id, url: Url = None, *, reason: WhyNow = "", by: Actor = None, scope: Scope = None, as_json: AsJson = False
) -> None:
    """Let a paused batch be run again: by semel batch work where it runs, or by semel batch run."""
    with open_batch(id_, url, scope) as batch, _recorded(batch, "resume", by, scope, reason):
        status = batch.resume()
    print_status(status, as_json=as_json)


def cancel(
    id_: Id,
    url: Url = None,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the batch.", show_default=False)],
    by: Actor = None,
    yes: Yes = False,
    scope: Scope = None,
    as_json: AsJson = False,
) -> None:
    """End a batch for good: running items end, nothing else of it ever runs."""
    check_reason(reason)
    with open_batch(id_, url, scope) as batch:
        if not yes:
            _ask(batch.status(), "Cancel it? Nothing of it runs again.")
        with _recorded(batch, "cancel", by, scope, reason):
            status = batch.cancel(reason)
    print_status(status, as_json=as_json)


def retry(
    id_: Id,
    which: Annotated[str, typer.Argument(metavar="failed|in_doubt", help="Which items.", show_default=False)],
    url: Url = None,
    *,
    reason: Why = "",
    by: Actor = None,
    yes: Yes = False,
    scope: Scope = None,
    as_json: AsJson = False,
) -> None:
    """Have items run again that failed, or are in doubt; then semel batch run runs them.

    To retry what is in doubt is to say that it did not happen, so that needs --reason, and asks on a terminal.
    """
    if which not in ("failed", "in_doubt"):
        raise usage_error(f"Items that are failed or in_doubt can run again, not {which!r}; nothing was changed.")
    with open_batch(id_, url, scope) as batch:
        if which == "in_doubt":
            check_reason(reason)
            if not yes:
                _ask(batch.status(), "Did none of the items in doubt happen?")
        with _recorded(batch, f"retry {which}", by, scope, reason):
            count = batch.retry(cast("Retried", which), reason=reason)
        status = batch.status()
    if as_json:
        sys.stdout.write(as_line({"retried": count, **status_object(status)}) + "\n")
        return
    console().print(f"{count:,} items run again.")
    print_status(status, as_json=False)


def _recorded(
    batch: Batch[Semel], what: str, by: str | None, scope: str | None, reason: str
) -> AbstractContextManager[object]:
    """Around what is decided: two entries of the audit chain, under the permission of its action for a bulk action.

    Raises:
        Refused: it is a bulk action, and there is no reason, as the server asks for one.
    """
    from semel.server.audit.targets import batch_target, bulk_target  # it imports all about the chain

    action, target = "batch", batch_target(batch.id)
    if is_internal(batch.operation):
        check_reason(reason)
        action, target = str(batch.status().metadata["action"]), bulk_target(batch.id)
    detail = {"what": what}
    return recorded(
        batch.semel, action=action, target=target, who=by or login(), scope=scope or "", reason=reason, detail=detail
    )


def _ask(status: BatchStatus, question: str) -> None:
    """Show the batch, and ask; a no ends the command."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise usage_error(
            "There is no terminal to ask on; nothing was changed. Look with semel batch status, then add --yes."
        )
    out = console()
    out.print(status_view(status))
    if not typer.confirm(f"\n{question}", default=False):
        out.print("Nothing was changed.")
        raise typer.Exit(OTHER)
