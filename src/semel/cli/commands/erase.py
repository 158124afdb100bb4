"""`semel erase`: take out of one settled record what may be personal."""

from __future__ import annotations

from rich.text import Text

from semel.cli.confirm import By, Reason, Yes, ask, check_reason, check_unchanged, login, recorded
from semel.cli.lookup import Operation, Scope, Which, check_which, find
from semel.cli.printing import console
from semel.cli.record_view import panel
from semel.cli.store_option import Url, open_engine
from semel.cli.timefmt import now
from semel.engine.admin import not_erasable


def erase(
    which: Which,
    url: Url = None,
    *,
    reason: Reason,
    by: By = None,
    operation: Operation = None,
    scope: Scope = None,
    yes: Yes = False,
) -> None:
    """Erase what may be personal in a settled record: outcome, error, steps, what it is about, and its key.

    The key stays shut: what happened does not happen again. This cannot be undone.
    """
    check_which(which, url)
    check_reason(reason)
    who = by or login()
    with open_engine(url) as semel:
        record = find(semel, which, operation, scope)
        if not record.settled:
            raise not_erasable(record.key, record)
        if not yes:
            meaning = Text.assemble(("Erased", "bold red"), ": its content is gone for good, and it never runs again.")
            ask(record, meaning, "Erase it?", reason=reason, who=who)
            check_unchanged(record, semel)
        scope, target = record.key.scope, record.reference
        with recorded(semel, action="erase", target=target, who=who, scope=scope, reason=reason):
            erased = semel.erase(record.key, reason=reason, by=who)
    console().print(panel(erased, now()))
