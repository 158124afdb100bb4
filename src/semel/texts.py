"""Stored texts and lengths of time as people are shown them, in a terminal and on a page alike."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime, timedelta
from typing import Final

# Control and format characters (bidirectional overrides are among the latter), halves of pairs, line separators.
_HARMFUL: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_STEPS: Final = ((120.0, 1.0, "s"), (7200.0, 60.0, "m"), (172800.0, 3600.0, "h"))
_DAY: Final = 86400.0
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_LONGEST: Final = 100 * 365 * _DAY


def clean(text: str, *, but: str = "") -> str:
    """`text` with every character written out as an escape that could move, reorder or hide something, `but` these."""
    if text.isprintable():
        return text
    return "".join(
        _escape(letter) if letter not in but and unicodedata.category(letter) in _HARMFUL else letter for letter in text
    )


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def read_span(text: str) -> timedelta | None:
    """A duration such as `30s`, `15m`, `1h30m` or `2d`; None where the text is none, or zero."""
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if _PART.sub("", text).strip() or not 0 < seconds <= _LONGEST:
        return None
    return timedelta(seconds=seconds)


def span(length: timedelta) -> str:
    """A length of time in its largest fitting unit: `42s`, `12m`, `3h`, `8d`."""
    seconds = abs(length.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    for limit, unit, letter in _STEPS:
        if seconds < limit:
            return f"{int(seconds / unit)}{letter}"
    return f"{int(seconds / _DAY)}d"


def relative(at: datetime, today: datetime) -> str:
    """How far `at` is from now: `3h ago`, `in 12m`."""
    return f"in {span(at - today)}" if at > today else f"{span(today - at)} ago"
