"""`semel events erase`: delete what the outbox keeps of a person or a tenant."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

from semel.cli.confirm import Actor, Yes, check_reason, login, recorded
from semel.cli.exit_codes import OTHER, usage_error
from semel.cli.printing import console
from semel.cli.store_option import Url, open_engine
from semel.events import Outbox


def erase(
    url: Url = None,
    *,
    subject: Annotated[str | None, typer.Option(help="Events about this subject.", show_default=False)] = None,
    scope: Annotated[str | None, typer.Option(help="Events of this scope.", show_default=False)] = None,
    stream: Annotated[
        str | None, typer.Option(help="Only this stream of the outbox. Default: all.", show_default=False)
    ] = None,
    reason: Annotated[
        str, typer.Option(help="Why; kept in the audit chain, so keep names out of it.", show_default=False)
    ],
    by: Actor = None,
    yes: Yes = False,
) -> None:
    """Delete events of a subject, of a scope, or of a subject in a scope: published, parked, and also those that wait.

    What waits is then never published: look with semel events lag first. This cannot be undone.
    """
    if subject is None and scope is None:
        raise usage_error("Neither --subject nor --scope says which events; nothing was erased.")
    check_reason(reason)
    with open_engine(url) as semel:
        outbox = Outbox(semel, stream or "default")
        if not yes:
            _ask()
        # Whom it is about is what is to be gone, so the audit chain does not say it.
        target = f"events {'of a scope' if subject is None else 'about a subject'}"
        with recorded(semel, action="erase", target=target, who=by or login(), scope=scope or "", reason=reason):
            count = outbox.erase(subject=subject, scope=scope, every_stream=stream is None)
    console().print(Text.assemble(("erased", "bold green"), f" {count} rows of events"))


def _ask() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise usage_error("There is no terminal to ask on; nothing was erased. Add --yes.")
    if not typer.confirm("Delete these events for good, also those that were not published yet?", default=False):
        console().print("Nothing was erased.")
        raise typer.Exit(OTHER)
