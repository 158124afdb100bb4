"""The values of settings as people give them, in URLs as text and in keywords as what they are.

What always holds: a value that is not usable is refused by the name of its setting, before anything is opened, and the
message says what would be usable.

The clock of embedded stores: this machine's, in whole microseconds. Servers bring their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

from semel.errors import UsageError

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


def make_store(kind: Callable[..., T], *arguments: Any, **settings: Any) -> T:
    """A store of `kind`, with settings as people write them.

    Raises:
        UsageError: such a store has no setting of that name.
    """
    try:
        return kind(*arguments, **settings)
    except TypeError as problem:  # an unknown keyword: settings come from people who write URLs and keywords
        message = f"The settings do not fit: {problem}; nothing was opened."
        raise UsageError(message) from problem


def seconds(up_to: float) -> Reader:
    """A time: a number of seconds, or a `timedelta`."""

    def reader(name: str, value: Any) -> float:
        try:
            number = value.total_seconds() if isinstance(value, timedelta) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = 0.0
        if not 0 < number <= up_to:
            raise _refusal(name, f"a number of seconds above 0 and up to {up_to}", value)
        return number

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
