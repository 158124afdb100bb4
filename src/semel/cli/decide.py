"""What the commands share that end a doubt, or with --force a live lease, by decision of a person."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from semel.cli.confirm import ask, check_reason, check_unchanged, login, recorded
from semel.cli.exit_codes import usage_error
from semel.cli.lookup import check_which, find
from semel.cli.printing import console
from semel.cli.record_view import panel
from semel.cli.store_option import as_sync, check_alone, load_engine, open_engine
from semel.cli.timefmt import now
from semel.core.record import Cancelled, DidNotHappen, Failed, Happened, Record, Resolution, Status
from semel.engine.admin import not_resolvable
from semel.engine.engine import engine_of
from semel.engine.sync_engine import SyncSemelBase
from semel.texts import clean, span
from semel.validation import read_json

_ACTIONS: Final[dict[type, str]] = {
    Happened: "resolve",
    DidNotHappen: "release",
    Cancelled: "cancel",
    Failed: "fail",
}
"""What the audit chain calls a decision: as the permission for it is called."""
UNCHECKED: Final = (
    "The value was not compared with what the operation returns. --app MODULE:OBJECT does that; where it does not fit, "
    "duplicates get RecordUnreadable."
)
Force = Annotated[bool, typer.Option("--force", help="End a live lease, too: its holder can record nothing any more.")]


@dataclass(frozen=True)
class Named:
    """The record that is meant, where it is, and who decides why; as every one of these commands is told it."""

    which: str
    url: str | None
    operation: str | None
    scope: str | None
    reason: str
    by: str | None
    yes: bool
    app: str | None = None

    def check(self) -> None:
        """Refuse what cannot be meant, before anything is opened."""
        check_reason(self.reason)
        check_which(self.which, self.url)
        check_alone(self.url, self.app)

    def open(self) -> AbstractContextManager[SyncSemelBase]:
        """The engine on that database."""
        return open_engine(self.url) if self.app is None else as_sync(load_engine(self.app))


def decide(named: Named, decision: Resolution, *, force: bool = False, correct: bool = False) -> None:
    """Show the record and what the decision means for it, ask, carry it out, and show what became of it."""
    named.check()
    who = named.by or login()
    with named.open() as semel:
        record = find(semel, named.which, named.operation, named.scope)
        if record.settled and not correct:
            raise not_resolvable(record)  # told at once, not after the question
        if named.app is not None:
            _check_known(semel, record, named.app)
        if not named.yes:
            meaning = Text("\n  ").join([*_describe_end(record, force=force), _meaning(decision)])
            ask(record, meaning, "Resolve it so?", reason=named.reason, who=who)
            check_unchanged(record, semel)
        action, detail = _ACTIONS[type(decision)], {"force": force, "correct": correct}
        scope, target = record.key.scope, record.reference
        with recorded(semel, action=action, target=target, who=who, scope=scope, reason=named.reason, detail=detail):
            resolved = semel.resolve(record.key, decision, reason=named.reason, by=who, correct=correct, force=force)
    console().print(panel(resolved, now()))


def read_value(text: str, option: str) -> Any:
    """The value that an option states as JSON.

    Raises:
        Refused: it is no JSON.
    """
    try:
        return read_json(text)
    except ValueError as problem:
        message = (
            f"{option} is not JSON ({problem}); nothing was changed. "
            f"A text needs its own quotes: {option} '\"ch_1\"'; no value is {option} null."
        )
        raise usage_error(message) from None


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


def _describe_end(record: Record, *, force: bool) -> list[Text]:
    """What --force ends, where a lease is live."""
    today = now()
    if not force or record.status is not Status.RUNNING or record.lease_until <= today:
        return []
    runs, left = span(today - record.started_at), span(record.lease_until - today)
    return [
        Text.assemble(
            ("A live lease is ended", "bold red"),
            f": attempt {record.attempts} runs for {runs}, and holds the key for {left} more. It can record nothing",
        ),
        Text("any more, is told so only when it asks, and may still have its effect outside."),
    ]


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
