"""Settings as people give them: the error for one that does not exist, which names the one that was probably meant.

What always holds: an unknown setting is refused with a typed error before anything runs, and the message says where it
belongs, or which settings there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from typing import Any, Final, TypeVar

from semel.errors import SemelError

_T = TypeVar("_T")
_CLOSE: Final = 0.7


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
    hint = (hints or {}).get(name)
    if hint is None:
        near = get_close_matches(name, names, n=1, cutoff=_CLOSE)
        hint = f"Did you mean {near[0]!r}?" if near else ""
    parts = (f"{owner} has no setting {name!r}; {outcome}.", hint, f"It has {', '.join(names)}.")
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
