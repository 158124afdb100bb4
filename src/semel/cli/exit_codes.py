"""Exit codes, and the one line that an expected error becomes.

0    done
1    anything else: a violated proof, a damaged record, an outdated schema, an answer of "no" to a question
2    usage: the command, or what it was given, has to change; a database that refuses its address or its login too
3    there is no such record or database file
4    in doubt: somebody has to resolve it
75   try later: the store did not answer, or another caller runs the key
130  interrupted
"""

from __future__ import annotations

from typing import Final

from semel.errors import InDoubt, RecordNotFound, SemelError, StoreMisconfigured, TryLater, UsageError

DONE = 0
OTHER = 1
USAGE = 2
NOT_FOUND = 3
IN_DOUBT = 4
TRY_LATER = 75
INTERRUPTED = 130
BROKEN_PIPE = 141
_REFUSALS: Final = {
    "invalid": ("usage", USAGE),
    "not_found": ("not_found", NOT_FOUND),
    "unavailable": ("store_unavailable", TRY_LATER),
}
"""What the refusals that the server's actions make by themselves are called here, and their exit codes."""


class Refused(Exception):
    """The command cannot do what was asked; `code` and `exit_code` are for machines."""

    def __init__(self, code: str, message: str, exit_code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.exit_code = exit_code


def not_found_error(message: str) -> Refused:
    """There is no such record or database."""
    return Refused("not_found", message, NOT_FOUND)


def usage_error(message: str) -> Refused:
    """The command, or what it was given, has to change."""
    return Refused("usage", message)


def to_refused(error: SemelError) -> Refused:
    """The code and the exit code of an error; a refusal of the server's actions stands for the error that it tells."""
    from semel.server import refusals  # after an error alone, so that no other command waits for it

    told = error.__cause__ if isinstance(error, refusals.Refused) and isinstance(error.__cause__, SemelError) else error
    if isinstance(told, refusals.Refused):
        code, number = _REFUSALS.get(told.code, (told.code, OTHER))
        return Refused(code, told.message, number)
    return Refused(told.code, told.message, exit_code(told))


def exit_code(error: SemelError) -> int:
    """Which exit code stands for an error of the tree."""
    match error:
        case RecordNotFound():
            return NOT_FOUND
        case UsageError() | StoreMisconfigured():
            return USAGE
        case TryLater():
            return TRY_LATER
        case InDoubt():
            return IN_DOUBT
        case _:
            return OTHER
