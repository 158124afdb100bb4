"""What `semel doctor` finds, for every store: findings about a deployment, and which promises they leave standing.

What always holds: a promise is said to hold only where nothing was found that breaks it. Looking changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal

import msgspec

from semel.core.policy import Policy

Verdict = Literal["ok", "note", "fix"]
"""note: worth knowing; fix: a promise does not hold until it is changed."""
Need = Literal["durable", "primary", "schema", "kept", "joins"]

MICROSECOND: Final = timedelta(microseconds=1)
DEFAULT_HORIZON: Final = timedelta(hours=24)


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. `breaks`: what does not hold because of it."""

    topic: str
    found: str
    verdict: Verdict = "ok"
    advice: str = ""
    breaks: tuple[Need, ...] = ()


def demanded(topic: str, found: str, advice: str, *breaks: Need, fine: bool) -> Finding:
    """A finding about what must be so: `advice` and what it `breaks` count only where it is not `fine`."""
    return Finding(topic, found) if fine else Finding(topic, found, "fix", advice, breaks)


class Promise(msgspec.Struct, frozen=True):
    """A row of the promise, and whether it holds here. None: it does not apply, or is not in this release."""

    boundary: str
    promise: str
    holds: bool | None
    because: str


class Numbers(msgspec.Struct, frozen=True):
    """Figures about the records. `expired` and `shortest_keep_us`: None where it is not known."""

    expired: int
    in_doubt: int
    lapsed: int
    shortest_keep_us: int | None


_ALWAYS: Final[tuple[Need, ...]] = ("durable", "primary", "schema")
_ROWS: Final[tuple[tuple[str, str, tuple[Need, ...], str], ...]] = (
    ("outcome per key", "at most one, fenced", _ALWAYS, "the store keeps acknowledged commits"),
    ("replay", "byte-equal within keep_for", (*_ALWAYS, "kept"), "records outlive the retries"),
    ("effect in the same database (within)", "exactly once", (*_ALWAYS, "joins"), "for connections to this database"),
    (
        "external effect that honours our derived key",
        "effectively once",
        (*_ALWAYS, "kept"),
        "inside the other side's own window",
    ),
    (
        "external effect with a reconcile hook",
        "effectively once",
        (*_ALWAYS, "kept"),
        "where the hook is definitive",
    ),
    ('external effect, in_doubt="rerun" (default)', "at least once", _ALWAYS, "repeats only when in doubt"),
    ('external effect, in_doubt="hold"', "at most once", (*_ALWAYS, "kept"), "somebody resolves what is held"),
)
_REDIS: Final = ("Redis as the only store", "best effort")


def promises(findings: Sequence[Finding], *, best_effort: bool = False) -> list[Promise]:
    """Which rows of the promise hold, by what was found. `best_effort`: the store is Redis, with nothing behind it."""
    held = [_promise(*row, findings) for row in _ROWS]
    if not best_effort:
        return [*held, Promise(*_REDIS, None, "this store is another")]
    refused = any(finding.verdict == "fix" for finding in findings)
    return [*held, Promise(*_REDIS, not refused, "no eviction, no failover loss")]


def _promise(
    boundary: str, promise: str, needs: tuple[Need, ...], condition: str, findings: Sequence[Finding]
) -> Promise:
    broken = [finding.topic for finding in findings if set(finding.breaks) & set(needs)]
    return Promise(boundary, promise, not broken, f"see: {', '.join(broken)}" if broken else condition)


def about_records(numbers: Numbers, horizon: timedelta) -> list[Finding]:
    """What the figures about records mean."""
    shortest = numbers.shortest_keep_us
    keep = Policy().keep_for if shortest is None else shortest * MICROSECOND
    whose = "the default policy" if shortest is None else "the shortest there is"
    kept = keep >= horizon
    return [
        Finding(
            "keep_for",
            f"{_hours(keep)} ({whose}); callers try again for {_hours(horizon)}",
            "ok" if kept else "fix",
            "" if kept else "a retry after keep_for runs the operation again: raise keep_for above the retry horizon",
            () if kept else ("kept",),
        ),
        _count("expired records", numbers.expired, 10_000, "the sweep does not keep up: run `semel sweep --every 1m`"),
        _count("in doubt", numbers.in_doubt, 0, "look at them: `semel list --stuck`"),
        _count("lease ended, not swept", numbers.lapsed, 0, "run `semel sweep`, or wait for the next claim of the key"),
    ]


def about_clock(offset: timedelta, precision: timedelta) -> Finding:
    """How far this machine's clock is from the store's. Only the store's decides, so it is never more than a note."""
    far = abs(offset) - precision > timedelta(seconds=1)
    seconds = offset.total_seconds()
    return Finding(
        "clock",
        f"this machine is {abs(seconds):.3f} s {'ahead of' if seconds > 0 else 'behind'} the store "
        f"(± {precision.total_seconds():.3f} s)",
        "note" if far else "ok",
        "only the store's clock decides; set this machine's by NTP so that logs agree" if far else "",
    )


def _hours(length: timedelta) -> str:
    return f"{length.total_seconds() / 3600:g} h"


def _count(topic: str, count: int, most: int, advice: str) -> Finding:
    over = count > most
    return Finding(topic, str(count), "note" if over else "ok", advice if over else "")
