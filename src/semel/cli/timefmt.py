"""Durations and instants as people type and read them: `15m`, `2026-03-01`, "3 h ago".

An instant without a zone is in this machine's zone, when read and when printed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from semel.cli.exit_codes import usage_error
from semel.texts import read_span

_BEGINS = re.compile(r"\d+(?:\.\d+)?\s*(ms|s|m|h|d|w)")


def now() -> datetime:
    """This machine's now."""
    return datetime.now(UTC)


def duration(text: str) -> timedelta:
    """A duration such as `30s`, `15m`, `1h30m` or `2d`.

    Raises:
        Refused: it is none, or zero.
    """
    length = read_span(text)
    if length is None:
        message = f"{text!r} is no duration; nothing was done. Write 30s, 15m, 1h30m or 2d."
        raise usage_error(message)
    return length


def age(text: str) -> timedelta | None:
    """How long ago an instant is that is written as a duration; None for one that is written otherwise.

    Raises:
        Refused: it begins as a duration and is none.
    """
    return duration(text) if _BEGINS.match(text) else None


def ages(**written: str | None) -> dict[str, timedelta]:
    """Of instants by their names, those that are written as durations."""
    found = {name: age(text) for name, text in written.items() if text is not None}
    return {name: ago for name, ago in found.items() if ago is not None}


def moment(text: str) -> datetime:
    """An instant: a date, a date and time, or a duration, which means so long ago.

    Raises:
        Refused: it is none of these.
    """
    ago = age(text)
    if ago is not None:
        return now() - ago
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        message = (
            f"{text!r} is no moment; nothing was done. Write 2026-03-01, 2026-03-01T14:30 (this machine's zone), "
            f"2026-03-01T14:30Z, or 2h for two hours ago."
        )
        raise usage_error(message) from None


def local(at: datetime) -> str:
    """An instant in this machine's zone, to the second."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
