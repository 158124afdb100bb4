"""`semel resolve`: end the doubt of one record, by decision of a person."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from semel.cli.confirm import By, Reason, Yes
from semel.cli.decide import UNCHECKED, Force, Named, decide, read_value
from semel.cli.exit_codes import usage_error
from semel.cli.lookup import Operation, Scope, Which
from semel.cli.printing import console
from semel.cli.store_option import Url, app_option
from semel.core.record import Cancelled, DidNotHappen, Failed, Happened, Resolution


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
    failed: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="It failed; duplicates get FailedBefore with this.", show_default=False),
    ] = None,
    correct: Annotated[
        bool, typer.Option("--correct", help="With --happened: replace the value that was stated before.")
    ] = False,
    force: Force = False,
    reason: Reason,
    by: By = None,
    operation: Operation = None,
    scope: Scope = None,
    app: Annotated[str | None, app_option("so that the value is compared with what the operation returns")] = None,
    yes: Yes = False,
) -> None:
    """Resolve a record that is in doubt: say whether it happened.

    Look first, at the record (semel show) and at the place where its effect would be. The decision is final; only a
    value that was stated with --happened can be replaced, with --correct.
    """
    decision = _decision(happened, did_not_happen=did_not_happen, cancelled=cancelled, failed=failed)
    named = Named(which, url, operation, scope, reason, by, yes, app)
    decide(named, decision, force=force, correct=correct)
    if happened is not None and app is None:
        console().print(Text(UNCHECKED, "yellow"), soft_wrap=True)


def _decision(happened: str | None, *, did_not_happen: bool, cancelled: bool, failed: str | None) -> Resolution:
    if (happened is not None) + did_not_happen + cancelled + (failed is not None) != 1:
        message = "Give one of --happened JSON, --did-not-happen, --cancelled and --failed TEXT; nothing was changed."
        raise usage_error(message)
    if happened is not None:
        return Happened(read_value(happened, "--happened"))
    if failed is not None:
        return Failed(failed)
    return DidNotHappen() if did_not_happen else Cancelled()
