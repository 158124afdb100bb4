"""Handlers whose annotations are text, one of them of a name that only type checkers know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel import Attempt

if TYPE_CHECKING:
    import semel
    from semel import AsyncAttempt


def resolved_late(order: str, attempt: Attempt) -> int:
    """The name is there at run time."""
    return attempt.number


def for_type_checkers(order: str, attempt: semel.Attempt) -> int:
    """The name is not there at run time."""
    return attempt.number


def for_type_checkers_optional(order: str, attempt: semel.Attempt | None = None) -> int:
    """The name is not there at run time, and the attempt may be missing."""
    return -1 if attempt is None else attempt.number


def for_the_other_kind(order: str, attempt: AsyncAttempt) -> int:
    """The name is not there at run time, and it is the wrong one."""
    return attempt.number
