"""`semel reopen`: let a key run again that failed for good or was cancelled."""

from __future__ import annotations

from rich.text import Text

from semel.cli.confirm import By, Reason, Yes, ask, check_unchanged, login, recorded
from semel.cli.decide import Named
from semel.cli.lookup import Operation, Scope, Which, find
from semel.cli.printing import console
from semel.cli.record_view import panel
from semel.cli.store_option import Url
from semel.cli.timefmt import now
from semel.core.record import Record
from semel.engine.admin import is_reopenable, not_reopenable


def reopen(
    which: Which,
    url: Url = None,
    *,
    reason: Reason,
    by: By = None,
    operation: Operation = None,
    scope: Scope = None,
    yes: Yes = False,
) -> None:
    """Reopen a record that failed for good or was cancelled: the next claim of its key runs it.

    Nothing runs now. Finished steps stay finished, and attempts are counted from none. Look first whether it happened.
    """
    named = Named(which, url, operation, scope, reason, by, yes)
    named.check()
    who = by or login()
    with named.open() as semel:
        record = find(semel, which, operation, scope)
        if not is_reopenable(record):
            raise not_reopenable(record)  # told at once, not after the question
        if not yes:
            ask(record, _meaning(record), "Reopen it?", reason=reason, who=who)
            check_unchanged(record, semel)
        scope, target = record.key.scope, record.reference
        with recorded(semel, action="reopen", target=target, who=who, scope=scope, reason=reason):
            opened = semel.reopen(record.key, reason=reason, by=who)
    console().print(panel(opened, now()))


def _meaning(record: Record) -> Text:
    steps = f", behind {len(record.steps)} finished steps" if record.steps else ""
    then = f": the next claim of this key runs it{steps}. What was done before is not undone."
    return Text.assemble(("Reopened", "bold cyan"), then)
