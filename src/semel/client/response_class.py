"""Classifies a response: done, refused, or retry with the same key. No I/O.

A response that leaves open whether the request was executed never ends the life of its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from semel.client.models import Reply

_OUR_PROBLEMS: Final = "urn:semel:problem:"
_FAILED_BEFORE: Final = f"{_OUR_PROBLEMS}failed-before"
_LONGEST: Final = 365 * 24 * 3600.0

# Said before anything was done, to this one request.
_NOT_NOW: Final = frozenset({425, 429})
_TOO_SLOW: Final = 408
_NOT_YOU: Final = frozenset({401, 403, 407})
_NOT_AGAIN: Final = frozenset({501, 505})
_RUNNING: Final = 409
_REPLAYED: Final = ("idempotency-replayed", "idempotent-replayed")
_LOWEST_FAILURE: Final = 500
_LOWEST_REFUSAL: Final = 400


@dataclass(frozen=True, slots=True)
class Done:
    """It is done: this is the answer."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """It was refused, and will be under this key. `recorded` is true where the service says that this is a replay."""

    recorded: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """It may be asked again: after so many seconds, where the service says so.

    `certain` is true where this request did not run. `soon` is false where asking again at once is of no use.
    """

    after: float | None = None
    certain: bool = False
    soon: bool = True


ResponseClass = Done | Refusal | Retry


def classify(reply: Reply, now: float) -> ResponseClass:
    """What an answer says."""
    status = reply.status
    if status >= _LOWEST_REFUSAL and any((reply.header(name) or "").strip() == "true" for name in _REPLAYED):
        return Refusal(recorded=True)  # whatever its status, it is the outcome
    after = _after(reply.header("retry-after"), now)
    if status in _NOT_NOW:
        return Retry(after, certain=True)
    if status in _NOT_YOU:
        return Retry(certain=True, soon=False)
    if status == _TOO_SLOW:
        return Retry(after)  # the request, says the standard; many a service says it of its own work
    if status == _RUNNING:
        return _conflict(reply, after)
    if status >= _LOWEST_FAILURE:
        if _problem_type(reply) == _FAILED_BEFORE:
            return Refusal(recorded=True)  # a service that says so has looked at the record of this key
        return Retry(after, soon=status not in _NOT_AGAIN)
    return Refusal() if status >= _LOWEST_REFUSAL else Done()


def _conflict(reply: Reply, after: float | None) -> ResponseClass:
    """409 is "still running", unless it is plainly a conflict of another kind."""
    kind = _problem_type(reply)
    if after is not None or not kind:
        return Retry(after)
    return Retry(soon=False) if kind.startswith(_OUR_PROBLEMS) else Refusal()


def _problem_type(reply: Reply) -> str:
    """The type of a problem that is told as `application/problem+json`, if it has one of its own."""
    if not (reply.header("content-type") or "").lower().startswith("application/problem+json"):
        return ""
    try:
        found = msgspec.json.decode(reply.body)
    except msgspec.DecodeError:
        return ""
    kind = found.get("type") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) and kind != "about:blank" else ""


def _after(text: str | None, now: float) -> float | None:
    """How many seconds to wait; a date counts from now."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return min(float(text), _LONGEST)
    try:
        moment = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, moment - now), _LONGEST)
