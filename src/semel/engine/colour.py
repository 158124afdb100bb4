"""Which colour a function has, and what is said to one of the wrong colour."""

from __future__ import annotations

import inspect
from typing import Any

from semel.errors import UsageError


def wrong_colour(function: Any, *, wanted: str) -> UsageError:
    """The error for a function of the other colour."""
    other = "AsyncSemel" if wanted == "def" else "Semel"
    return UsageError(
        f"{getattr(function, '__qualname__', function)} must be written with {wanted!r} to be used here; nothing ran. "
        f"Use {other} for the other colour."
    )


def gave_wrong_colour(function: Any, value: Any, *, wanted: str) -> UsageError:
    """The error for a function whose colour shows only in what it gives; by then it was called."""
    other = "AsyncSemel" if wanted == "def" else "Semel"
    return UsageError(
        f"{getattr(function, '__qualname__', function)} was called and gave a {type(value).__name__}; what it did "
        f"until then stands, and nothing more of it ran. Write it with {wanted!r}, or use {other} for the other colour."
    )


def is_async(function: Any) -> bool:
    """Whether calling `function` gives something to await."""
    target = inspect.unwrap(function)
    target = getattr(target, "func", target)
    called = getattr(type(target), "__call__", None)  # noqa: B004 - an object that can be called may be a coroutine function
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(called)


def is_plainly_sync(function: Any) -> bool:
    """Whether `function` is a plain `def` that does not say it gives something to await."""
    if is_async(function) or not inspect.isfunction(function) or function.__name__ == "<lambda>":
        return False
    declared = str(function.__annotations__.get("return", ""))
    return not any(word in declared for word in ("Awaitable", "Coroutine", "Future", "Task"))


def refuse_generator(function: Any) -> None:
    """A generator has no result that could be replayed.

    Raises:
        UsageError: `function` is a generator function of either colour.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        message = (
            f"{getattr(function, '__qualname__', function)} is a generator, which has no one result to replay; nothing "
            f"ran. Return a list instead."
        )
        raise UsageError(message)
