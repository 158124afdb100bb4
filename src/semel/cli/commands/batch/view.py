"""A batch as people and machines are shown it: its bar, its counts, and why items failed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from semel.api import Semel
from semel.batch import Batch, BatchStatus
from semel.batch.batches import parts_of
from semel.batch.control import failures_of
from semel.cli.printing import as_text, console
from semel.cli.record_view import as_line, iso
from semel.cli.timefmt import now
from semel.engine.engine import engine_of
from semel.texts import relative, span

MOST_FAILURES: Final = 10_000
_SHOWN: Final = 10
_BAR: Final = 40
STYLES: Final = {
    "loading": "cyan",
    "pending": "cyan",
    "running": "bold cyan",
    "paused": "bold yellow",
    "completed": "bold green",
    "cancelled": "dim",
    "failed": "bold red",
}


@dataclass(frozen=True, slots=True)
class FailureClass:
    """Items that failed with errors of one type, with the first of them as an example."""

    type: str
    count: int
    item: str
    message: str


def status_object(status: BatchStatus) -> dict[str, Any]:
    """A status for machines."""
    return {
        "id": status.id,
        "operation": status.operation,
        "state": status.state,
        "reason": status.reason,
        "total": status.total,
        "loaded": status.loaded,
        "completed": status.completed,
        "failed": status.failed,
        "skipped": status.skipped,
        "in_doubt": status.in_doubt,
        "remaining": status.remaining,
        "rate": None if status.rate is None else round(status.rate, 1),
        "eta_s": None if status.eta is None else round(status.eta.total_seconds(), 1),
        "started": iso(status.started),
        "updated": iso(status.updated),
        "metadata": status.metadata,
        "notes": list(status.notes),
    }


def failure_objects(classes: Sequence[FailureClass]) -> list[dict[str, Any]]:
    """Failures by class, for machines."""
    return [{"type": one.type, "count": one.count, "item": one.item, "message": one.message} for one in classes]


def failures_by_class(batch: Batch[Semel]) -> list[FailureClass]:
    """How many items failed with errors of which type, the most frequent first; of the first ten thousand."""
    engine: Any = engine_of(batch.semel)
    _, stored, _ = parts_of(batch)
    if not stored.page:
        return []
    found: dict[str, FailureClass] = {}
    for item, record in engine.perform_on(None, failures_of(stored, MOST_FAILURES)):
        error = None if record is None else record.error
        type_ = "(unknown)" if error is None else error.type
        seen = found.get(type_) or FailureClass(type_, 0, item.id, "" if error is None else error.message)
        found[type_] = FailureClass(type_, seen.count + 1, seen.item, seen.message)
    return sorted(found.values(), key=lambda one: (-one.count, one.type))


def status_view(status: BatchStatus, classes: Sequence[FailureClass] = ()) -> RenderableType:
    """A batch with its bar."""
    parts: list[RenderableType] = [_title(status), _bar(status), _counts(status)]
    if status.reason:
        parts.append(Text.assemble("reason: ", as_text(status.reason), style="dim"))
    parts.extend(Text.assemble("note: ", as_text(note), style="dim") for note in status.notes)
    if classes:
        parts.append(failure_table(classes))
    return Group(*parts)


def _title(status: BatchStatus) -> Text:
    title = Text.assemble(as_text(status.id, "bold"), "  ", as_text(status.operation), "  ")
    title.append(status.state, STYLES[status.state])
    if status.started is not None:
        title.append(f"  began {relative(status.started, now())}", "dim")
    return title


def _bar(status: BatchStatus) -> RenderableType:
    done = status.total - status.remaining
    if status.state == "loading":
        return Text(f"{status.loaded:,} items loaded so far", "dim")
    grid = Table.grid(padding=(0, 2, 0, 0))
    cells: list[RenderableType] = [
        ProgressBar(total=max(status.total, 1), completed=done if status.total else 1, width=_BAR),
        Text(f"{done:,} of {status.total:,}"),
        Text(f"{100 * done // max(status.total, 1)} %" if status.total else "empty"),
    ]
    if status.rate is not None and status.state == "running":
        cells.append(Text(f"{status.rate:,.1f} a second"))
    if status.eta is not None and status.remaining:
        cells.append(Text(f"ready in {span(status.eta)}"))
    grid.add_row(*cells)
    return grid


def _counts(status: BatchStatus) -> Text:
    told = (
        ("completed", status.completed, "green"),
        ("failed", status.failed, "bold red"),
        ("skipped", status.skipped, ""),
        ("in doubt", status.in_doubt, "bold yellow"),
        ("remaining", status.remaining, ""),
    )
    return Text("  ").join(Text(f"{name} {count:,}", style if count else "dim") for name, count, style in told)


def failure_table(classes: Sequence[FailureClass]) -> Table:
    """Failures by class, with an example of each."""
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    grid.add_column("failures", overflow="ellipsis", no_wrap=True)
    grid.add_column("items", justify="right", no_wrap=True)
    grid.add_column("for example", ratio=1, overflow="ellipsis", no_wrap=True)
    for one in classes[:_SHOWN]:
        grid.add_row(as_text(one.type), f"{one.count:,}", as_text(f"{one.item}: {one.message}"))
    if len(classes) > _SHOWN:
        grid.add_row(Text(f"and {len(classes) - _SHOWN} more classes", "dim"), "", "")
    if sum(one.count for one in classes) >= MOST_FAILURES:
        grid.add_row(Text("no more are read", "dim"), "", Text(f"these are the first {MOST_FAILURES:,}", "dim"))
    return grid


def batch_table(found: Sequence[BatchStatus]) -> Table:
    """Several batches, a row for each."""
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    grid.add_column("batch", overflow="ellipsis", no_wrap=True)
    grid.add_column("operation", overflow="ellipsis", no_wrap=True)
    grid.add_column("state", no_wrap=True)
    for name in ("done", "of", "failed", "in doubt", "a second", "ready in"):
        grid.add_column(name, justify="right", no_wrap=True)
    for one in found:
        grid.add_row(
            as_text(one.id),
            as_text(one.operation),
            Text(one.state, STYLES[one.state]),
            f"{one.total - one.remaining:,}",
            f"{one.total:,}" if one.state != "loading" else f"{one.loaded:,} loaded",
            Text(f"{one.failed:,}", "bold red" if one.failed else "dim"),
            Text(f"{one.in_doubt:,}", "bold yellow" if one.in_doubt else "dim"),
            "" if one.rate is None or one.state != "running" else f"{one.rate:,.1f}",
            "" if one.eta is None or not one.remaining else span(one.eta),
        )
    return grid


def print_status(status: BatchStatus, *, as_json: bool) -> None:
    """A status, as a line for machines or with its bar."""
    if as_json:
        sys.stdout.write(as_line(status_object(status)) + "\n")
        sys.stdout.flush()
    else:
        console().print(status_view(status))
