"""What decisions of a person have in common: a reason, a name, a question, and a record that stays as it was shown."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from semel.cli.exit_codes import OTHER, Refused, usage_error
from semel.cli.printing import as_text, console
from semel.cli.record_view import panel
from semel.cli.timefmt import now
from semel.core.record import Record
from semel.core.store import Capability
from semel.engine.async_engine import AsyncSemelBase
from semel.engine.engine import SemelBase, engine_of
from semel.engine.sync_engine import SyncSemelBase

if TYPE_CHECKING:
    from semel.server.audit.recording import RecordedAction

Reason = Annotated[str, typer.Option(help="Why; kept with the record.", show_default=False)]
By = Annotated[
    str | None, typer.Option(help="Who decides; kept with the record. Default: the login name.", show_default=False)
]
Actor = Annotated[
    str | None,
    typer.Option("--by", help="Who decides; kept in the audit chain. Default: the login name.", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def check_reason(reason: str) -> None:
    """Refuse a reason that says nothing."""
    if not reason.strip():
        message = "--reason is empty; nothing was changed. Say why, for those who read the record later."
        raise usage_error(message)


def login() -> str:
    """Who this is."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user anywhere
        return f"uid {os.getuid()}"


def recorded(
    semel: SyncSemelBase,
    *,
    action: str,
    target: str,
    who: str,
    scope: str = "",
    reason: str = "",
    detail: Mapping[str, object] | None = None,
) -> AbstractContextManager[RecordedAction | None]:
    """Around what is done: an entry of the audit chain before it and one after it, where the store keeps one."""
    if not keeps_audit(semel):
        return nullcontext()
    from semel.server.audit.flows import new_decision
    from semel.server.audit.recording import SyncRecording

    return SyncRecording(engine_of(semel), new_decision(scope, who, action, target, reason, detail=detail))


def async_recorded(
    semel: AsyncSemelBase, *, action: str, target: str, who: str, scope: str = "", reason: str = ""
) -> AbstractAsyncContextManager[RecordedAction | None]:
    """The same around what is awaited."""
    if not keeps_audit(semel):
        return nullcontext()
    from semel.server.audit.flows import new_decision
    from semel.server.audit.recording import AsyncRecording

    return AsyncRecording(engine_of(semel), new_decision(scope, who, action, target, reason))


def keeps_audit(semel: SemelBase[Any]) -> bool:
    """Whether its store keeps an audit chain."""
    return Capability.AUDIT in engine_of(semel).store.capabilities


def ask(record: Record, meaning: Text, question: str, *, reason: str, who: str) -> None:
    """Show the record and what the decision means, and ask; a no ends the command."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = "There is no terminal to ask on; nothing was changed. Look with semel show, then add --yes."
        raise usage_error(message)
    out = console()
    out.print(panel(record, now()))
    out.print(Text.assemble("  ", meaning))
    out.print(Text.assemble("  reason: ", as_text(reason), "  by ", as_text(who), style="dim"))
    if not typer.confirm(f"\n{question}", default=False):
        out.print("Nothing was changed.")
        raise typer.Exit(OTHER)


def check_unchanged(record: Record, semel: SyncSemelBase) -> None:
    """Somebody may have claimed it or decided while the question stood there."""
    seen = semel.read(record.key)
    if seen is None or (seen.status, seen.fence) != (record.status, record.fence):
        message = f"The record {record.reference[:16]} changed while you were asked; nothing was changed. Look again."
        raise Refused("concurrent_modification", message, OTHER)
