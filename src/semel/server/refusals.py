"""Why the server does not do what was asked: one class for each answer that a person can act on.

- A refusal says in words what was found, that nothing was changed, and what to do.
- What is in a scope that the user does not reach is refused exactly as what does not exist.
"""

from __future__ import annotations

from typing import ClassVar

from semel.errors import (
    FailedBefore,
    InDoubt,
    InProgress,
    NotResolvable,
    RecordNotFound,
    RecordUnreadable,
    ResultNotKept,
    SemelError,
    StoreUnavailable,
    TryLater,
    UsageError,
)


class Refused(SemelError):
    """The action was not carried out; nothing was changed. `because` is a stable word for machines."""

    code: ClassVar[str] = "refused"

    def __init__(self, message: str, *, because: str = "", **facts: object) -> None:
        super().__init__(message, because=because or self.code, **facts)
        self.because = because or self.code


class NotFound(Refused):
    """There is no such thing, or it is in a scope that does not exist for this user."""

    code = "not_found"


class Forbidden(Refused):
    """The user's roles do not permit it."""

    code = "forbidden"


class Invalid(Refused):
    """What was given cannot be used: there is no reason, a value cannot be read, or a name is unknown."""

    code = "invalid"


class NotPossible(Refused):
    """What was named is in no state for it; `because` says which, such as still_running, erased or changed."""

    code = "not_possible"


class ReadOnly(Refused):
    """Nothing can be changed here: the store keeps no audit chain, so nobody could tell later who did it."""

    code = "read_only"


class Unavailable(Refused):
    """The store did not answer; ask again. `may_have_happened`: it was asked, and may have changed it all the same."""

    code = "unavailable"

    def __init__(self, message: str, *, because: str = "", may_have_happened: bool = False, **facts: object) -> None:
        super().__init__(message, because=because, **facts)
        self.may_have_happened = may_have_happened


def refusal_of(error: SemelError) -> SemelError:
    """What a user is told of an error of the engine; an error that nobody can act on is given back as it is."""
    match error:
        case Refused():
            return error
        case RecordNotFound():
            return NotFound(error.message)
        case NotResolvable():
            return NotPossible(error.message, because=error.code)
        case InProgress():
            return NotPossible(error.message, because="still_running")
        case StoreUnavailable():
            may_have_happened = error.asked and not error.conflict
            return Unavailable(error.message, retry_after=error.retry_after, may_have_happened=may_have_happened)
        case TryLater():
            return Unavailable(error.message, retry_after=error.retry_after)
        case FailedBefore() | InDoubt() | ResultNotKept() | RecordUnreadable():
            return NotPossible(error.message, because=error.code)
        case UsageError():
            return Invalid(error.message, because=error.code)
    return error
