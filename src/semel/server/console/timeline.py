"""The life of a record as one list, oldest first: attempts and who held them, take-overs, decisions, replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from semel.core.record import Failure, HistoryEntry, Holder, Record, Status
from semel.server.console.rendering import show_duration, show_next

_TONES: Final = {"completed": "good", "failed": "bad", "retryable": "bad", "in_doubt": "warn", "cancelled": "calm"}
_ENDINGS: Final = {
    "completed": "completed",
    "failed": "failed for good",
    "retryable": "failed, and may run again",
    "in_doubt": "ended without a known outcome",
    "cancelled": "cancelled",
}
_DECISIONS: Final = frozenset({"resolved", "reopened", "erased"})
_RESOLVED: Final = {
    "completed": ("Resolved: it happened", "good"),
    "retryable": ("Resolved: it did not happen, and may run again", "info"),
    "failed": ("Resolved: it failed", "bad"),
    "cancelled": ("Resolved: cancelled", "calm"),
}


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing in the life of a record."""

    title: str
    at: datetime | None
    tone: str = "calm"
    took: str = ""
    holder: Holder | None = None
    is_held: bool = False
    error: Failure | None = None
    text: str = ""
    steps: tuple[str, ...] = ()


def timeline_of(record: Record, history: Sequence[HistoryEntry], now: datetime) -> list[Moment]:
    """All that is known to have happened to a record, and what will happen next."""
    moments = [Moment("Key claimed for the first time", record.created_at)]
    last = max((place for place, entry in enumerate(history) if entry.kind not in _DECISIONS), default=-1)
    decided = max((place for place, entry in enumerate(history) if entry.kind in _DECISIONS), default=-1)
    for place, entry in enumerate(history):
        if entry.kind in _DECISIONS:
            moments.append(_decision(entry, _note(record) if place == decided else ""))
        else:
            moments.append(_attempt(entry, record, is_last=place == last))
    if record.replays:
        times = "once" if record.replays == 1 else f"{record.replays:,} times"
        moments.append(
            Moment(f"Replayed {times}", record.replayed_at, "info", text="Duplicates were given the recorded outcome.")
        )
    moments.append(Moment(_next_title(record, now), None, text=_next_text(record)))
    return moments


def _decision(entry: HistoryEntry, note: str) -> Moment:
    """What somebody decided; the record keeps the reason of the last decision alone."""
    match entry.kind:
        case "resolved":
            title, tone = _RESOLVED.get(entry.ending or "", ("Resolved", "calm"))
            return Moment(title, entry.started, tone, holder=entry.holder, error=entry.error, text=note)
        case "reopened":
            return Moment("Reopened: it may run again", entry.started, "info", holder=entry.holder, text=note)
        case _:
            return Moment("Erased", entry.started, "calm", text=note)


def _attempt(entry: HistoryEntry, record: Record, *, is_last: bool) -> Moment:
    # Which attempt finished a step is not kept. Each goes on with all that are finished, so the last has them all.
    steps = tuple(step.name for step in record.steps) if is_last else ()
    if entry.kind == "taken_over":
        return Moment(
            f"Attempt {entry.number} was taken over",
            entry.started,
            "warn",
            _took(entry),
            entry.holder,
            is_held=True,
            text="Its lease ended without an outcome, and the next attempt went on.",
            steps=steps,
        )
    is_running = entry.ended is None
    ending = "runs" if is_running else _ENDINGS.get(entry.ending or "", "ended")
    return Moment(
        f"Attempt {entry.number} {ending}",
        entry.started,
        "info" if is_running else _TONES.get(entry.ending or "", "calm"),
        _took(entry),
        entry.holder,
        is_held=True,
        error=entry.error,
        steps=steps,
    )


def _took(entry: HistoryEntry) -> str:
    return "" if entry.ended is None else show_duration(entry.ended - entry.started)


def _note(record: Record) -> str:
    note = record.note
    if note is None:
        return ""
    who = f" by {note.by}" if note.by else ""
    forced = ", ending a live lease" if note.forced else ""
    return f"{note.resolution}{who}{forced}: {note.reason}"


def _next_title(record: Record, now: datetime) -> str:
    words = show_next(record, now)
    return words[:1].upper() + words[1:]


def _next_text(record: Record) -> str:
    match record.status:
        case Status.RUNNING:
            return "Whoever asks for this key meanwhile waits or is told so; after the lease it may be taken over."
        case Status.IN_DOUBT:
            told = {
                "hold": "Its policy is hold: only a person decides.",
                "reconcile": "Its policy is reconcile: its hook is asked by the next call or sweep.",
                "rerun": "Its policy is rerun: the next call of this key runs it again.",
            }
            return told[record.in_doubt_policy]
        case _ if record.retryable:
            return "The next call of this key runs it again."
        case _:
            return "Until then every duplicate gets this answer."
