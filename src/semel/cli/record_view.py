"""A record and its history for the eye and for machines. Outcomes, fingerprints and nonces are never part of either."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from semel.cli.printing import as_text
from semel.cli.timefmt import local
from semel.core.record import Failure, HistoryEntry, Note, Record, Status
from semel.engine.sync_engine import SyncSemelBase
from semel.errors import RecordNotFound
from semel.server.api.record_views import EntryView, RecordView, iso_or_none
from semel.texts import relative, span

SHORT = 12
_LABELS = 11
STYLES = {
    Status.RUNNING: "cyan",
    Status.COMPLETED: "green",
    Status.FAILED: "red",
    Status.IN_DOUBT: "bold yellow",
    Status.CANCELLED: "dim",
}
_ERASED = Text("erased", "dim italic")
_MARKS = {
    Status.RUNNING: "▶",
    Status.COMPLETED: "✔",
    Status.FAILED: "✘",
    Status.IN_DOUBT: "?",
    Status.CANCELLED: "–",
}


def as_object(record: Record) -> dict[str, Any]:
    """A record for machines: instants in UTC, ISO 8601; a shared scope is null, and so is what was erased."""
    told: dict[str, Any] = msgspec.to_builtins(RecordView.of(record))
    return told


def as_line(fields: dict[str, Any]) -> str:
    """One JSON object on one line, in ASCII: nothing in it can reach a terminal as anything but text."""
    return json.dumps(fields, ensure_ascii=True, separators=(", ", ": "))


def iso(at: datetime | None) -> str | None:
    """An instant for machines: in UTC, ISO 8601."""
    return iso_or_none(at)


def status_text(record: Record, between: str = " ") -> Text:
    """The status in its colour, and what it means where the word alone does not say it."""
    text = Text(f"{_MARKS[record.status]} {record.status.value}", STYLES[record.status])
    if record.status is Status.FAILED and record.retryable:
        text.append(f"{between}retryable", "dim")
    return text


def scope_text(record: Record) -> Text:
    """The scope, or that it is shared."""
    if record.erased:
        return _ERASED.copy()
    return as_text(record.key.scope) if record.key.scope else Text("shared", "dim italic")


def key_text(record: Record) -> Text:
    """The key as its caller gave it, unless it was erased."""
    return _ERASED.copy() if record.erased else as_text(record.key.value)


def until_text(record: Record, today: datetime) -> Text:
    """What time will do to this record next: its lease ends, it waits, it expires."""
    if record.status is Status.RUNNING:
        over = record.lease_until <= today
        return Text(f"lease {'over' if over else span(record.lease_until - today)}", "yellow" if over else "")
    if record.status is Status.IN_DOUBT:
        return Text("stays", "dim")
    if record.expires_at <= today:
        return Text("expired", "dim")
    return Text(f"expires {span(record.expires_at - today)}", "dim")


def panel(record: Record, today: datetime, *further: tuple[str, RenderableType]) -> Panel:
    """One record, all that is known of it; `further` parts come last, under their titles."""
    parts: list[RenderableType] = [_identity(record), Text(), _life(record, today)]
    for title, body in (("steps", _steps(record)), ("error", _error(record)), ("about", _about(record))):
        if body is not None:
            parts += [Text(), _headed(title, body)]
    note = record.note
    if note is not None:
        parts += [Text(), _headed("resolution", _note(note))]
    for title, part in further:
        parts += [Text(), Text(title, "dim"), part]
    heading = Text.assemble(" ", as_text(record.key.operation, "bold"), " ", status_text(record), " ")
    return Panel(
        Group(*parts),
        title=heading,
        title_align="left",
        border_style=STYLES[record.status],
        padding=(1, 2),
        expand=False,
    )


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", min_width=_LABELS, no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _headed(title: str, body: RenderableType) -> Table:
    grid = _grid()
    grid.add_row(title, body)
    return grid


def _identity(record: Record) -> Table:
    grid = _grid()
    grid.add_row("reference", record.reference)
    grid.add_row("operation", as_text(record.key.operation))
    grid.add_row("scope", scope_text(record))
    grid.add_row("key", key_text(record))
    grid.add_row("in doubt", f"policy {record.in_doubt_policy}")
    return grid


def _life(record: Record, today: datetime) -> Table:
    """The life line: what happened when, oldest first, and what is to come."""
    line = _grid()
    line.add_column(style="dim", no_wrap=True)
    for what, at, after in _events(record, today):
        line.add_row(what, after if at is None else local(at), "" if at is None else relative(at, today))
    return line


def _events(record: Record, today: datetime) -> list[tuple[str, datetime | None, str]]:
    events: list[tuple[str, datetime | None, str]] = [("claimed", record.created_at, "")]
    if record.attempts != 1 or record.started_at != record.created_at:
        events.append((f"attempt {record.attempts}", record.started_at, ""))
    else:
        events.append(("attempts", None, "1"))
    if not record.settled:
        over = record.lease_until <= today
        events.append(("lease over" if over else "lease until", record.lease_until, ""))
        events.append(("expires", None, "not before it is settled"))
        return events
    ended = record.completed_at or record.updated_at
    events.append((record.status.value, ended, ""))
    if record.replays:
        events.append((f"replays {record.replays}", record.replayed_at, ""))
    events.append(("expired" if record.expires_at <= today else "expires", record.expires_at, ""))
    if record.duration is not None and record.note is None:
        events.append(("took", None, span(record.duration)))
    return events


def _steps(record: Record) -> Text | None:
    if not record.steps:
        return None
    names = [Text.assemble(("✔ ", "green"), as_text(step.name)) for step in record.steps]
    return Text("\n").join(names)


def _error(record: Record) -> Text | None:
    error = record.error
    return None if error is None else Text.assemble(as_text(error.type, "red"), "\n", _lines(error.message))


def _lines(text: str) -> Text:
    return Text("\n").join(as_text(line) for line in text.split("\n"))


def _note(note: Note) -> Text:
    decided = as_text(note.resolution or "unknown form", "bold")
    by = Text.assemble("  by ", as_text(note.by)) if note.by else Text()
    forced = Text("  forced: a live lease was ended", "yellow") if note.forced else Text()
    return Text.assemble(decided, by, forced, "\n", _lines(note.reason))


def _about(record: Record) -> Table | None:
    about = record.about
    facts = [
        ("subject", about.subject),
        ("business key", about.business_key),
        ("process", about.process_instance),
        ("requester", about.requester),
        *sorted(about.tags.items()),
    ]
    grid = Table.grid(padding=(0, 2))
    for name, fact in facts:
        if fact is not None:
            grid.add_row(as_text(name, "dim"), as_text(fact))
    return grid if grid.row_count else None


_ENDINGS = {
    "completed": "green",
    "failed": "red",
    "retryable": "red",
    "in_doubt": "bold yellow",
    "cancelled": "dim",
}
_NUMBERED = ("attempt", "taken_over")


def history_of(semel: SyncSemelBase, key: Any) -> tuple[HistoryEntry, ...]:
    """The entries of a record that was found; none where it is gone, or has expired, since."""
    try:
        return semel.history(key)
    except RecordNotFound:
        return ()


def as_objects(entries: Sequence[HistoryEntry]) -> list[dict[str, Any]]:
    """Entries for machines: instants in UTC, ISO 8601."""
    return [msgspec.to_builtins(EntryView.of(entry)) for entry in entries]


def history_table(entries: Sequence[HistoryEntry]) -> Table:
    """Entries for the eye, oldest first."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for name in ("what", "when", "took", "ending", "who", "error"):
        table.add_column(name, overflow="fold", no_wrap=name in ("when", "took"))
    for entry in entries:
        table.add_row(
            f"{entry.kind} {entry.number}" if entry.kind in _NUMBERED else entry.kind,
            local(entry.started),
            "" if entry.ended is None or entry.kind not in _NUMBERED else span(entry.ended - entry.started),
            _ending_text(entry),
            _holder_text(entry),
            _error_text(entry.error),
        )
    return table


def _ending_text(entry: HistoryEntry) -> Text:
    if entry.ending is None:
        return Text("" if entry.ended is not None else "running", "cyan")
    return Text(entry.ending, _ENDINGS[entry.ending])


def _holder_text(entry: HistoryEntry) -> Text:
    if entry.kind == "erased":
        return Text()
    holder = entry.holder
    return Text("unknown", "dim") if holder is None else as_text(f"{holder.host} pid {holder.pid}")


def _error_text(error: Failure | None) -> Text:
    return Text() if error is None else as_text(f"{error.type}: {error.message}")
