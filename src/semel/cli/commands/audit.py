"""`semel audit`: who did what; whether that was changed; sealing it, and taking out what is personal or old."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from semel.cli.confirm import Actor, check_reason, login
from semel.cli.exit_codes import OTHER
from semel.cli.printing import as_text, console
from semel.cli.record_view import as_line, iso
from semel.cli.store_option import Url, open_engine
from semel.cli.timefmt import duration, local, moment
from semel.core.flow import Flow
from semel.engine.engine import engine_of
from semel.server.audit import AuditEntry, AuditReport, read_anchors, write_anchors
from semel.server.audit.chain import refuse_without_audit
from semel.server.audit.flows import AuditFlows, read_page, scan, verify

_PAGE = 100
audit = typer.Typer(help="Look at the audit chain, and at whether somebody changed it.", no_args_is_help=True)

ScopeFilter = Annotated[str | None, typer.Option(help="Only the chain of this scope.", show_default=False)]
Anchor = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Seals that were written down, on another machine if possible.", show_default=False
    ),
]
Why = Annotated[str, typer.Option("--reason", help="Why; kept in the audit chain.", show_default=False)]


class _Chains:
    """The chains of a store, for this command."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.flows = AuditFlows(engine, os.urandom)

    def carry_out(self, flow: Flow[Any]) -> Any:
        """What a flow gives."""
        return self._engine.perform_on(None, flow)


@contextmanager
def _open_chains(url: str | None) -> Iterator[_Chains]:
    with open_engine(url) as semel:
        engine = engine_of(semel)
        refuse_without_audit(engine.store, "semel audit")
        yield _Chains(engine)


@audit.command("list")
def list_entries(
    url: Url = None,
    *,
    scope: ScopeFilter = None,
    actor: Annotated[str | None, typer.Option(help="Only what this person did.", show_default=False)] = None,
    action: Annotated[str | None, typer.Option(help="Only this action.", show_default=False)] = None,
    target: Annotated[str | None, typer.Option(help="Only what was done to this.", show_default=False)] = None,
    only_open: Annotated[bool, typer.Option("--open", help="Only actions whose end is not in the chain.")] = False,
    before: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Before: 2026-03-01T14:30, or 2h for two hours ago.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help=f"At most so many. Default: {_PAGE}, all with --json.", show_default=False),
    ] = None,
) -> None:
    """List who did what, newest first. An action without an end is open: it runs, or its process has died."""
    wanted = {
        "scopes": None if scope is None else [scope],
        "actor": actor,
        "action": action,
        "target": target,
        "only_open": only_open,
    }
    with _open_chains(url) as chains:
        entries = _all_entries(chains, wanted, None if before is None else moment(before))
        if as_json:
            for entry in islice(entries, limit):
                sys.stdout.write(as_line(_entry_object(entry)) + "\n")
            return
        found = list(islice(entries, limit or _PAGE))
    console().print(_entry_table(found) if found else as_text("No entries.", "dim"))


@audit.command("verify")
def verify_chains(
    url: Url = None,
    *,
    scope: ScopeFilter = None,
    anchor: Anchor = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object instead of text.")] = False,
) -> None:
    """Compare entries, heads, seals and anchors: finds edits, deletions, insertions, swaps, and a tail cut off.

    The exit code is 1 if something was changed. What was cut off together with head and seals is found with --anchor.
    """
    anchors = [] if anchor is None else read_anchors(anchor)
    with _open_chains(url) as chains:
        report: AuditReport = chains.carry_out(verify(scope, anchors))
    if as_json:
        sys.stdout.write(as_line(_report_object(report)) + "\n")
    else:
        _print_report(report)
    if not report.is_whole:
        raise typer.Exit(OTHER)


@audit.command("seal")
def seal_chains(url: Url = None, *, scope: ScopeFilter = None, anchor: Anchor = None) -> None:
    """Seal what is not sealed yet; with --anchor, append the last seal of each chain to a file.

    Chains are sealed by themselves, too: once a hundred entries are not, or with the first entry after a minute.
    """
    with _open_chains(url) as chains:
        anchors = chains.carry_out(chains.flows.seal(scope))
    written = "" if anchor is None else f"; {write_anchors(anchor, anchors)} new anchors in {anchor}"
    console().print(Text.assemble(("sealed", "bold green"), as_text(f" {len(anchors)} chains{written}")))


@audit.command("redact")
def redact_entry(
    seq: Annotated[int, typer.Argument(min=1, help="The number of the entry.", show_default=False)],
    url: Url = None,
    *,
    scope: Annotated[str, typer.Option(help="The scope of its chain. Default: of nobody in particular.")] = "",
    reason: Why,
    by: Actor = None,
) -> None:
    """Take reason and details out of an entry, if somebody wrote personal data there; the chain stays whole."""
    check_reason(reason)
    with _open_chains(url) as chains:
        said: AuditEntry = chains.carry_out(chains.flows.redact(scope, seq, actor=by or login(), reason=reason))
    console().print(Text.assemble(("redacted", "bold green"), f" entry {seq}; entry {said.seq} says so"))


@audit.command("expire")
def expire_entries(
    url: Url = None,
    *,
    older_than: Annotated[str, typer.Option(metavar="DURATION", help="Such as 730d.", show_default=False)],
    reason: Why,
    by: Actor = None,
) -> None:
    """Delete sealed entries that are older. Nothing of the audit chain is ever deleted by itself; seals stay."""
    check_reason(reason)
    length = duration(older_than)
    with _open_chains(url) as chains:
        count = chains.carry_out(chains.flows.expire(length, actor=by or login(), reason=reason))
    console().print(Text.assemble(("deleted", "bold green"), f" {count} entries"))


def _all_entries(chains: _Chains, wanted: dict[str, Any], before: datetime | str | None) -> Iterator[AuditEntry]:
    while True:
        page: list[AuditEntry] = chains.carry_out(read_page(scan(**wanted, before=before, limit=_PAGE)))
        yield from page
        if len(page) < _PAGE:
            return
        before = page[-1].place


def _entry_object(entry: AuditEntry) -> dict[str, Any]:
    return {
        "scope": entry.scope,
        "seq": entry.seq,
        "at": iso(entry.at),
        "actor": entry.actor,
        "action": entry.action,
        "target": entry.target,
        "reason": entry.reason,
        "outcome": entry.outcome,
        "detail": dict(entry.detail),
        "phase": entry.phase,
        "begun": entry.begun,
        "open": entry.is_open,
        "hash": entry.hash,
        "place": entry.place,
    }


def _entry_table(entries: list[AuditEntry]) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    grid.add_column("entry", no_wrap=True, style="dim", justify="right")
    grid.add_column("at", no_wrap=True)
    for name in ("who", "what", "to"):
        grid.add_column(name, overflow="fold")
    grid.add_column("outcome,\nreason", ratio=1)
    for entry in entries:
        outcome = ("open", "bold yellow") if entry.is_open else (entry.outcome or entry.phase, "")
        reason = "(taken out)" if entry.reason is None else entry.reason
        grid.add_row(
            as_text(f"{entry.scope} {entry.seq}".strip()),
            local(entry.at),
            as_text(entry.actor),
            as_text(entry.action),
            as_text(entry.target[:24]),
            Text.assemble(as_text(*outcome), "\n" if reason else "", as_text(reason, "dim")),
        )
    return grid


def _report_object(report: AuditReport) -> dict[str, Any]:
    faults = [
        {"scope": fault.scope, "seq": fault.seq, "kind": fault.kind, "text": fault.text} for fault in report.faults
    ]
    told = {"whole": report.is_whole, "entries": report.entries, "sealed": report.sealed, "anchors": report.anchors}
    return {**told, "faults": faults}


def _print_report(report: AuditReport) -> None:
    out = console()
    for fault in report.faults:
        where = f" in the chain of {fault.scope!r}" if fault.scope else ""
        out.print(Text.assemble((fault.kind, "bold red"), as_text(f"{where}: {fault.text}")), soft_wrap=True)
    counts = f"{report.entries} entries in {report.scopes} chains, {report.sealed} of them sealed"
    verdict = ("whole", "bold green") if report.is_whole else (f"{len(report.faults)} faults", "bold red")
    out.print(Text.assemble(verdict, f": {counts}"))
    if not report.anchors:
        out.print(as_text("No anchor was compared: give --anchor to find what was cut off with its head.", "yellow"))
