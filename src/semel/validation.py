"""What people give: durations, values as JSON, and the error for a setting that does not exist.

- An unknown setting is refused before anything runs; the message says where it belongs, or which settings there are.
- A duration is a `timedelta` or a number of seconds; anything else, or one without an end, is refused by its name.
- A value that somebody states is kept as it stands there, or refused: never another number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import timedelta
from decimal import Decimal
from difflib import get_close_matches
from functools import wraps
from typing import Any, Final, NoReturn, TypeVar

from semel.errors import SemelError, UsageError

Duration = timedelta | float
"""A time span: a `timedelta`, or a number of seconds."""

LONGEST: Final = timedelta(days=365 * 100)
"""The longest duration that is taken where nothing else is said."""

_PLACES: Final = {
    "It belongs to the policy: policy=Policy({}=…).": (
        "final_errors",
        "in_doubt",
        "keep_for",
        "lease_for",
        "max_attempts",
        "max_result",
        "max_runtime",
        "reconcile",
        "reconcile_after",
        "redact",
        "retry_errors",
        "store_down",
        "wait_for",
        "when_running",
    ),
    "It belongs to the limits: Semel(…, limits=Limits({}=…)).": (
        "backoff",
        "max_backoff",
        "max_handlers",
        "max_queue",
        "open_after",
        "retry_budget",
        "slow_call",
        "waiters",
        "waiters_per_key",
    ),
    "It belongs to the cache: Semel(…, cache=Cache(…, {}=…)).": ("cap", "local", "local_bytes", "local_for"),
}
BELONGS: Final = {name: place.format(name) for place, names in _PLACES.items() for name in names}
"""For the settings of policies, limits and caches: where each belongs."""

_T = TypeVar("_T")
_CLOSE: Final = 0.7
_LONG: Final = 128


def to_timedelta(
    name: str,
    value: object,
    *,
    may_be_zero: bool = False,
    longest: timedelta = LONGEST,
    outcome: str = "nothing ran",
    error: type[SemelError] = UsageError,
) -> timedelta:
    """The duration that `value` stands for.

    Raises:
        SemelError: of the class `error`: it is neither a timedelta nor a number of seconds, or out of bounds.
    """
    duration = _read(value)
    if duration is None or duration < timedelta(0) or (not duration and not may_be_zero) or duration > longest:
        least = "zero or more" if may_be_zero else "more than zero"
        message = (
            f"{name} must be a timedelta or a number of seconds, {least} and at most {_spell(longest)}, not "
            f"{_show(value)}; {outcome}."
        )
        raise error(message)
    return duration


def _read(value: object) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return timedelta(seconds=value)
    except (ValueError, OverflowError):  # not a number, or too large to be one of seconds
        return None


def _spell(duration: timedelta) -> str:
    years = duration.days // 365
    return f"{years} years" if years else f"{duration.total_seconds():g} seconds"


def _show(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > _LONG:  # Python does not write out numbers of any length
        return "a larger number"
    return str(value) if isinstance(value, timedelta) else repr(value)


def explain_unknown(
    owner: str, name: str, known: Iterable[str], *, outcome: str, hints: Mapping[str, str] | None = None
) -> str:
    """The message for a setting that `owner` does not have.

    Args:
        owner: what was set up, as the subject of a sentence: "A route".
        name: the setting that was given.
        known: the settings that there are.
        outcome: whether anything happened: "nothing was set up".
        hints: for words that are often tried, the sentence that says what to write instead.
    """
    names = sorted(known)
    hint = (hints or {}).get(name) or BELONGS.get(name)
    if hint is None:
        near = get_close_matches(name, names, n=1, cutoff=_CLOSE)
        hint = f"Did you mean {near[0]!r}?" if near else ""
    parts = (f"{owner} has no setting {name!r}; {outcome}.", hint, f"It has {', '.join(names)}." if names else "")
    return " ".join(part for part in parts if part)


def refuses_unknown(
    owner: str, error: type[SemelError], hints: Mapping[str, str] | None = None
) -> Callable[[type[_T]], type[_T]]:
    """For a dataclass of settings: an unknown keyword raises `error`, and not the constructor's TypeError."""

    def decorate(settings: type[_T]) -> type[_T]:
        initialise = settings.__init__
        known = frozenset(field.name for field in fields(settings))  # type: ignore[arg-type]  # a dataclass

        @wraps(initialise)
        def initialise_known(self: Any, *args: Any, **given: Any) -> None:
            for name in given.keys() - known:
                raise error(explain_unknown(owner, name, known, outcome="nothing ran", hints=hints))
            initialise(self, *args, **given)

        settings.__init__ = initialise_known  # type: ignore[method-assign]  # the same signature
        return settings

    return decorate


def read_json(text: str | bytes) -> Any:
    """The value that a JSON text states.

    Raises:
        ValueError: it is no JSON, is nested too deeply, or has a number that would not be kept exactly.
    """
    try:
        return json.loads(text, parse_float=_read_fraction, parse_constant=_refuse_constant)
    except RecursionError:
        message = "it is nested too deeply"
        raise ValueError(message) from None


def _read_fraction(text: str) -> float:
    """A fraction that is kept as it was written: duplicates would be given another number otherwise."""
    found = float(text)
    if not math.isfinite(found) or Decimal(repr(found)) != Decimal(text):
        message = f"the number {text[:40]} would not be kept exactly; state it as a text"
        raise ValueError(message)
    return found


def _refuse_constant(name: str) -> NoReturn:
    message = f"{name} is no JSON value"
    raise ValueError(message)
