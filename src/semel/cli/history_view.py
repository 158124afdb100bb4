"""A history for the eye and for machines: what happened to a record, and who held it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from semel.cli.printing import as_text
from semel.cli.record_view import iso
from semel.cli.timefmt import local, span
from semel.core.record import Failure, HistoryEntry, Holder
from semel.engine.sync_engine import SyncSemelBase
from semel.errors import RecordNotFound

_STYLES = {
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
    return [
        {
            "kind": entry.kind,
            "number": entry.number,
            "started": iso(entry.started),
            "ended": iso(entry.ended),
            "ending": entry.ending,
            "error": None if entry.error is None else msgspec.to_builtins(entry.error),
            "holder": None if entry.holder is None else _holder_object(entry.holder),
        }
        for entry in entries
    ]


def _holder_object(holder: Holder) -> dict[str, Any]:
    return {"host": holder.host, "pid": holder.pid, "version": holder.version, "started": iso(holder.started)}


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
            _ending(entry),
            _holder(entry),
            _error(entry.error),
        )
    return table


def _ending(entry: HistoryEntry) -> Text:
    if entry.ending is None:
        return Text("" if entry.ended is not None else "running", "cyan")
    return Text(entry.ending, _STYLES[entry.ending])


def _holder(entry: HistoryEntry) -> Text:
    if entry.kind == "erased":
        return Text()
    holder = entry.holder
    return Text("unknown", "dim") if holder is None else as_text(f"{holder.host} pid {holder.pid}")


def _error(error: Failure | None) -> Text:
    return Text() if error is None else as_text(f"{error.type}: {error.message}")
