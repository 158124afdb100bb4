"""Parsing of settings, which are text in URLs and values in keywords, and the clock of embedded stores.

A value that cannot be used is refused by the name of its setting before anything is opened; the message says what can
be used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from inspect import Parameter, signature
from typing import Any, Final, TypeVar

from semel.core.circuit import Limits
from semel.core.policy import Policy
from semel.errors import UsageError
from semel.settings import explain_unknown, to_timedelta

T = TypeVar("T")
StoreClock = Callable[[], int]


def machine_clock() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


Reader = Callable[[str, Any], Any]
"""Takes the name of a setting and the value given for it, and gives the value that is used."""

HOUR: Final = 3600
DAY: Final = 24 * HOUR
_WORDS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def read(given: Mapping[str, Any], readers: Mapping[str, Reader]) -> dict[str, Any]:
    """What is given, each value as its reader has it; what has none stays as it is.

    Raises:
        UsageError: one of them is not usable.
    """
    return {name: readers[name](name, value) if name in readers else value for name, value in given.items()}


HINTS: Final = {
    **{name: f"It belongs to the policy: policy=Policy({name}=…)." for name in Policy.__slots__},
    **{name: f"It belongs to the limits: limits=Limits({name}=…)." for name in Limits.__slots__},
    **{name: f"It belongs to the cache: cache=Cache(…, {name}=…)." for name in ("cap", "local", "local_for")},
}
"""Where settings belong that are no store's."""


def make_store(scheme: str, kind: Callable[..., T], *arguments: Any, **settings: Any) -> T:
    """A store of `kind`; its settings come from people, who may have meant another place for them.

    Raises:
        UsageError: such a store has no setting of that name.
    """
    known = _names_of(kind)
    for name in sorted(settings):
        if name not in known if known is not None else name in HINTS:
            message = explain_unknown(f"{scheme}://", name, known or (), outcome="nothing was opened", hints=HINTS)
            raise UsageError(message)
    return kind(*arguments, **settings)


def _names_of(kind: Callable[..., object]) -> frozenset[str] | None:
    """The settings that a store takes by keyword; None where it looks at them itself."""
    declared: frozenset[str] | None = getattr(kind, "setting_names", None)
    if declared is not None:
        return declared
    parameters = signature(kind).parameters.values()
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters if parameter.kind is Parameter.KEYWORD_ONLY)


def seconds(up_to: float) -> Reader:
    """A duration: a `timedelta` or a number of seconds, which in a URL is text."""

    def reader(name: str, value: Any) -> float:
        try:
            given = float(value) if isinstance(value, str) else value
        except ValueError:
            given = value
        return to_timedelta(name, given, longest=timedelta(seconds=up_to), outcome="nothing was opened").total_seconds()

    return reader


def count(least: int, most: int | None = None) -> Reader:
    """A whole number."""

    def reader(name: str, value: Any) -> int:
        number = _whole(value)
        if number is None or number < least or (most is not None and number > most):
            raise _refusal(name, f"a whole number from {least} {'on' if most is None else f'to {most}'}", value)
        return number

    return reader


def _whole(value: Any) -> int | None:
    if isinstance(value, float) and not value.is_integer():
        return None  # int() would cut the rest off
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def truth(name: str, value: Any) -> bool:
    """Yes or no."""
    known = value if isinstance(value, bool) else _WORDS.get(str(value).lower())
    if known is None:
        raise _refusal(name, "true or false", value)
    return known


def text(name: str, value: Any) -> str:
    """A word, taken as it is."""
    if not isinstance(value, str):
        raise _refusal(name, "a text", value)
    return value


def _refusal(name: str, wanted: str, value: Any) -> UsageError:
    return UsageError(f"{name} must be {wanted}, not {value!r}; nothing was opened.")
