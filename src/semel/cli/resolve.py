"""`semel resolve`: end the doubt of one record, by decision of a person."""

from __future__ import annotations

import getpass
import json
import os
import sys
from typing import Annotated, Any, NoReturn

import typer
from rich.text import Text

from semel.cli.exits import OTHER, Refused, refused
from semel.cli.found import Operation, Scope, Which, find
from semel.cli.place import Url, opened
from semel.cli.printing import clean, console, shown
from semel.cli.record_view import panel
from semel.cli.times import now
from semel.core.outcome import Cancelled, DidNotHappen, Happened, Resolution
from semel.core.record import Record
from semel.entry import Semel
from semel.errors import NotResolvable


def resolve(
    which: Which,
    url: Url = None,
    *,
    happened: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="It happened; duplicates get this value.", show_default=False),
    ] = None,
    did_not_happen: Annotated[
        bool, typer.Option("--did-not-happen", help="It did not happen; the next claim runs it, without doubt.")
    ] = False,
    cancelled: Annotated[
        bool, typer.Option("--cancelled", help="It shall not happen any more; duplicates get FailedBefore.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why; kept with the record.", show_default=False)],
    by: Annotated[
        str | None, typer.Option(help="Who decides; kept with the record. Default: the login name.", show_default=False)
    ] = None,
    operation: Operation = None,
    scope: Scope = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Resolve a record that is in doubt: say whether it happened.

    Look first, at the record (semel show) and at the place where its effect would be. The decision is final.
    """
    decision = _decision(happened, did_not_happen=did_not_happen, cancelled=cancelled)
    if not reason.strip():
        message = "--reason is empty; nothing was changed. Say why, for whoever reads the record later."
        raise refused(message)
    who = by or _login()
    with opened(url) as semel:
        record = find(semel, which, operation, scope)
        _check_open(record)
        if not yes:
            _ask(record, decision, who, reason)
            _check_unchanged(record, semel)
        resolved = semel.resolve(record.key, decision, reason=reason, by=who)
    console().print(panel(resolved, now()))


def _decision(happened: str | None, *, did_not_happen: bool, cancelled: bool) -> Resolution:
    if (happened is not None) + did_not_happen + cancelled != 1:
        message = "Give one of --happened JSON, --did-not-happen and --cancelled; nothing was changed."
        raise refused(message)
    if happened is not None:
        return Happened(_value(happened))
    return DidNotHappen() if did_not_happen else Cancelled()


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        message = (
            f"--happened is not JSON ({problem}); nothing was changed. "
            f"A text needs its own quotes: --happened '\"ch_1\"'; no value is --happened null."
        )
        raise refused(message) from None


def _no_constant(name: str) -> NoReturn:
    message = f"{name} is no JSON value"
    raise ValueError(message)


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user anywhere
        return f"uid {os.getuid()}"


def _check_open(record: Record) -> None:
    """Tell at once what the store would refuse after the question."""
    if record.settled:
        message = f"The record {record.reference[:16]} is {record.status}, not in doubt; nothing was changed."
        raise NotResolvable(message)


def _ask(record: Record, decision: Resolution, who: str, reason: str) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = "There is no terminal to ask on; nothing was changed. Look with semel show, then add --yes."
        raise refused(message)
    out = console()
    out.print(panel(record, now()))
    out.print(Text.assemble("  ", _meaning(decision)))
    out.print(Text.assemble("  reason: ", shown(reason), "  by ", shown(who), style="dim"))
    if not typer.confirm("\nResolve it so?", default=False):
        out.print("Nothing was changed.")
        raise typer.Exit(OTHER)


def _meaning(decision: Resolution) -> Text:
    match decision:
        case Happened(value):
            stated = clean(json.dumps(value, ensure_ascii=False))
            return Text.assemble(("It happened", "bold green"), f": it is completed, and duplicates get {stated}.")
        case DidNotHappen():
            return Text.assemble(("It did not happen", "bold cyan"), ": the next claim of this key runs it again.")
        case Cancelled():
            return Text.assemble(("Cancelled", "bold red"), ": it never runs again, and duplicates get FailedBefore.")


def _check_unchanged(record: Record, semel: Semel) -> None:
    """Somebody may have claimed or resolved it while the question stood there."""
    seen = semel.read(record.key)
    if seen is None or (seen.status, seen.fence) != (record.status, record.fence):
        message = f"The record {record.reference[:16]} changed while you were asked; nothing was changed. Look again."
        raise Refused("concurrent_modification", message, OTHER)
