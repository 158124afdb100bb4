"""Templates, and how values look on a page.

- Everything is escaped, and a stored text cannot move, reorder or hide what stands beside it: such characters are
  written out.
- A status is always a word and a mark, never a colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from semel.core.batch.values import KEPT_US
from semel.core.record import Record, Status
from semel.texts import clean, relative, span

HERE: Final = Path(__file__).parent
_MILLISECOND: Final = 0.001
_MINUTES: Final = 120
_WITH_BATCH: Final = timedelta(microseconds=KEPT_US) / 2
"""Items are kept for longer than anything else, and go with their batch."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a state is shown: the word, the tone of its colour, and a mark."""

    words: str
    tone: str = "calm"
    mark: str = ""


_STATUSES: Final = {
    Status.RUNNING: Look("running", "info", "▶"),
    Status.COMPLETED: Look("completed", "good", "✔"),
    Status.FAILED: Look("failed", "bad", "✘"),
    Status.IN_DOUBT: Look("in doubt", "warn", "?"),
    Status.CANCELLED: Look("cancelled", "calm", "–"),
}
_STATES: Final = {
    **{str(status): look for status, look in _STATUSES.items()},
    "loading": Look("loading", "info", "…"),
    "pending": Look("pending", "calm", "…"),
    "paused": Look("paused", "warn", "‖"),
    "skipped": Look("skipped", "calm", "–"),
    "ok": Look("ok", "good", "✔"),
    "note": Look("note", "warn", "!"),
    "fix": Look("fix", "bad", "✘"),
    "yes": Look("holds", "good", "✔"),
    "no": Look("does not hold", "bad", "✘"),
    "done": Look("done", "good", "✔"),
    "refused": Look("refused", "bad", "✘"),
    "unknown": Look("unknown", "warn", "?"),
    "begun": Look("begun", "info", "▶"),
    "shown": Look("shown", "calm", "·"),
}


def make_templates() -> Environment:
    """The environment that renders all pages."""
    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    templates.filters |= {
        "show": clean,
        "show_lines": lambda text: clean(text, but="\n\t"),
        "number": show_number,
        "span": span,
        "ago": show_ago,
        "iso": lambda at: at.astimezone(UTC).isoformat(timespec="microseconds"),
        "instant": lambda at: at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "look": look_of,
        "state_look": look_of_state,
        "next": show_next,
        "scope_name": lambda scope: clean(scope) or "shared",
    }
    return templates


def look_of(record: Record) -> Look:
    """How the status of a record looks."""
    return _STATUSES[record.status]


def look_of_state(word: str) -> Look:
    """How any other state looks; one that is not known is shown as it is."""
    first = word.partition(":")[0]
    known = _STATES.get(word) or _STATES.get(first)
    return (
        Look(clean(word))
        if known is None
        else Look(known.words if word == first else clean(word), known.tone, known.mark)
    )


def show_number(number: float) -> str:
    """A number with its thousands apart."""
    return f"{number:,}"


def show_ago(at: datetime, now: datetime) -> str:
    """How long ago something was; by another clock, or looked at since the page was asked for, it was just now."""
    return "just now" if at >= now else relative(at, now)


def show_next(record: Record, now: datetime) -> str:
    """What time will do to a record next: its lease ends, it waits, it expires."""
    if record.status is Status.RUNNING:
        left = record.lease_until - now
        return f"lease over for {span(left)}" if left <= timedelta(0) else f"lease for {span(left)}"
    if record.status is Status.IN_DOUBT:
        return "stays until resolved"
    if record.expires_at - now > _WITH_BATCH:
        return "kept with its batch"
    return "expired" if record.expires_at <= now else f"expires {relative(record.expires_at, now)}"


def show_duration(length: timedelta) -> str:
    """A short time with its precision, a long one in words."""
    seconds = length.total_seconds()
    if seconds < _MILLISECOND:
        return f"{seconds / _MILLISECOND * 1000:.0f} µs"
    if seconds < 1:
        return f"{seconds / _MILLISECOND:.3g} ms"
    return f"{seconds:.3g} s" if seconds < _MINUTES else span(length)


def share(part: float, whole: float) -> str:
    """A part in percent."""
    return "0 %" if not whole else f"{100 * part / whole:.3g} %"


Context = dict[str, Any]
