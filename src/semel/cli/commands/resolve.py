"""`semel resolve`: end the doubt of one record, by decision of a person."""

from __future__ import annotations

import json
from typing import Annotated, Any, NoReturn

import typer
from rich.text import Text

from semel.cli.confirm import By, Reason, Yes, ask, check_reason, check_unchanged, login
from semel.cli.exit_codes import usage_error
from semel.cli.lookup import Operation, Scope, Which, check_which, find
from semel.cli.printing import clean, console
from semel.cli.record_view import panel
from semel.cli.store_option import Url, app_option, as_sync, check_alone, load_engine, open_engine
from semel.cli.timefmt import now
from semel.core.record import Cancelled, DidNotHappen, Failed, Happened, Record, Resolution
from semel.engine.admin import not_resolvable
from semel.engine.engine import engine_of
from semel.engine.sync_engine import SyncSemelBase

_UNCHECKED = (
    "The value was not compared with what the operation returns. --app MODULE:OBJECT does that; where it does not fit, "
    "duplicates get RecordUnreadable."
)


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
    correct: Annotated[
        bool, typer.Option("--correct", help="With --happened: replace the value that was stated before.")
    ] = False,
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
    decision = _decision(happened, did_not_happen=did_not_happen, cancelled=cancelled)
    check_reason(reason)
    check_which(which, url)
    check_alone(url, app)
    who = by or login()
    with open_engine(url) if app is None else as_sync(load_engine(app)) as semel:
        record = find(semel, which, operation, scope)
        _check_open(record, correct=correct)
        if app is not None:
            _check_known(semel, record, app)
        if not yes:
            ask(record, _meaning(decision), "Resolve it so?", reason=reason, who=who)
            check_unchanged(record, semel)
        resolved = semel.resolve(record.key, decision, reason=reason, by=who, correct=correct)
    out = console()
    out.print(panel(resolved, now()))
    if happened is not None and app is None:
        out.print(Text(_UNCHECKED, "yellow"), soft_wrap=True)


def _decision(happened: str | None, *, did_not_happen: bool, cancelled: bool) -> Resolution:
    if (happened is not None) + did_not_happen + cancelled != 1:
        message = "Give one of --happened JSON, --did-not-happen and --cancelled; nothing was changed."
        raise usage_error(message)
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
        raise usage_error(message) from None


def _no_constant(name: str) -> NoReturn:
    message = f"{name} is no JSON value"
    raise ValueError(message)


def _check_open(record: Record, *, correct: bool) -> None:
    """Tell at once what the store would refuse after the question."""
    if record.settled and not correct:
        raise not_resolvable(record)


def _check_known(semel: SyncSemelBase, record: Record, app: str) -> None:
    """An app that does not know the operation could not tell whether a value fits."""
    operations = engine_of(semel).known
    if record.key.operation not in operations:
        known = ", ".join(sorted(operations)) or "none at all"
        message = (
            f"{app} knows no operation {record.key.operation!r}, only {known}; nothing was changed. Name an object of "
            f"the module that defines it, or leave --app out."
        )
        raise usage_error(message)


def _meaning(decision: Resolution) -> Text:
    match decision:
        case Happened(value):
            stated = clean(json.dumps(value, ensure_ascii=False))
            return Text.assemble(("It happened", "bold green"), f": it is completed, and duplicates get {stated}.")
        case DidNotHappen():
            return Text.assemble(("It did not happen", "bold cyan"), ": the next claim of this key runs it again.")
        case Cancelled():
            return Text.assemble(("Cancelled", "bold red"), ": it never runs again, and duplicates get FailedBefore.")
        case Failed(reason):
            failed = f": it never runs again, and duplicates get FailedBefore with {clean(reason)}."
            return Text.assemble(("It failed", "bold red"), failed)
