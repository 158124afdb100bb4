"""`semel erase`: take out what may be personal, of one settled record, or of all that is kept about a person."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Annotated, Any

import typer
from rich.text import Text

from semel.api import Semel
from semel.cli.confirm import By, Reason, Yes, ask, check_reason, check_unchanged, login, recorded
from semel.cli.exit_codes import OTHER, usage_error
from semel.cli.lookup import SHORTEST, Operation, check_which, find
from semel.cli.printing import as_text, console
from semel.cli.record_view import panel
from semel.cli.store_option import Url, app_option, as_sync, check_alone, load_engine, open_engine, store_at
from semel.cli.timefmt import now
from semel.core.erasure.port import SubjectErasureReport, conceal_subject
from semel.core.key import SHARED
from semel.engine.admin import not_erasable
from semel.engine.engine import engine_of

Which = Annotated[
    str | None,
    typer.Argument(
        metavar="REFERENCE|KEY",
        help=f"A reference, or its first {SHORTEST} or more hex digits; with --operation, a key. Not with --subject.",
        show_default=False,
    ),
]
Scope = Annotated[
    str | None,
    typer.Option(
        help="The scope of the key, or where to look for --subject; '' is the shared one.", show_default=False
    ),
]
Subject = Annotated[
    str | None, typer.Option(help="All that is kept about this subject, instead of one record.", show_default=False)
]
Journal = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="With --subject: in this journal of a client, on this machine.", show_default=False
    ),
]
Scan = Annotated[
    bool, typer.Option("--scan", help="With --subject: read all records where the store has no index for it.")
]
App = Annotated[str | None, app_option("with --subject, so that what it has registered as erasable is erased too")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --subject: erase nothing, and say what would be.")]


def erase(
    which: Which = None,
    url: Url = None,
    *,
    reason: Reason,
    by: By = None,
    operation: Operation = None,
    scope: Scope = None,
    subject: Subject = None,
    journal: Journal = None,
    app: App = None,
    scan: Scan = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Erase what may be personal in a settled record: outcome, error, steps, what it is about, and its key.

    With --subject, in all that is kept about a person: records, their cached copies, dead letters, items of batches,
    published events. What has not come to its end is left alone and named, and the exit code is 1.

    The key stays shut: what happened does not happen again. This cannot be undone.
    """
    check_reason(reason)
    who = by or login()
    if subject is not None:
        if operation is not None or (which is not None and url is not None):
            raise usage_error(
                "--subject stands for all records of a person, so no record is named; nothing was erased."
            )
        with _open(which or url, journal, app) as semel:
            _erase_subject(semel, subject, scope, reason=reason, by=who, scan=scan, dry_run=dry_run, yes=yes)
        return
    if which is None or journal is not None or app is not None or scan or dry_run:
        raise usage_error("Name the record, or a person with --subject; nothing was erased. See semel erase --help.")
    check_which(which, url)
    _erase_record(which, url, operation, scope, reason=reason, who=who, yes=yes)


def _erase_record(
    which: str, url: str | None, operation: str | None, scope: str | None, *, reason: str, who: str, yes: bool
) -> None:
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


def _open(url: str | None, journal: str | None, app: str | None) -> Any:
    """The engine on a store, that of an application, or one on the journal of a client, without a cache.

    Raises:
        Refused: more than one was named, or there is no such file.
    """
    if journal is None:
        check_alone(url, app)
        return open_engine(url) if app is None else as_sync(load_engine(app))
    if url is not None or app is not None:
        raise usage_error("--journal names the file itself, so nothing else can be named; nothing was erased.")
    return Semel(store_at(journal))


def _erase_subject(
    semel: Semel, subject: str, scope: str | None, *, reason: str, by: str, scan: bool, dry_run: bool, yes: bool
) -> None:
    where = None if scope is None else (scope or SHARED)
    if not (dry_run or yes):
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise usage_error(
                "There is no terminal to ask on; nothing was erased. Look with --dry-run, then add --yes."
            )
        _show(semel.erase_subject(subject, reason=reason, scope=where, by=by, scan=scan, dry_run=True))
        if not typer.confirm("\nErase it for good?", default=False):
            console().print("Nothing was erased.")
            raise typer.Exit(OTHER)
    target = conceal_subject(subject, engine_of(semel).secrets)
    where_said = scope or ""
    entry = (
        nullcontext()
        if dry_run
        else recorded(semel, action="erase", target=target, who=by, scope=where_said, reason=reason)
    )
    with entry:
        report = semel.erase_subject(subject, reason=reason, scope=where, by=by, scan=scan, dry_run=dry_run)
    _show(report)
    if not report.is_complete:
        raise typer.Exit(OTHER)


def _show(report: SubjectErasureReport) -> None:
    out, word = console(), "would be erased" if report.dry_run else "erased"
    if not report.erased and report.is_complete:
        out.print("Nothing is kept about this subject.")
    for kind, number in report.erased.items():
        out.print(Text.assemble((word, "bold green"), f" {number} {kind}"))
    for kind, refusals in report.refused.items():
        for one in refusals:
            out.print(Text.assemble(("not erased", "bold red"), f" {one.number} {kind}: {one.why}"))
            if one.names:
                out.print(Text.assemble("  ", as_text(" ".join(one.names)), style="dim"))
