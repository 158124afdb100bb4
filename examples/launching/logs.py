"""What the processes of the examples write to the terminal.

Below the start page things are broken on purpose, again and again. There an error is one line, and one that repeats is
written now and then: a person reads along, and the address of the page stays in sight. Everywhere else errors have
their tracebacks.
"""

from __future__ import annotations

import logging
import os
import sys
from types import TracebackType
from typing import Final

VARIABLE: Final = "EXAMPLES_ERRORS"
"""The environment variable that says how errors are written."""
LINES: Final = "lines"
AGAIN_AFTER: Final = 10.0
"""Seconds until an error that repeats is written again."""
_LONGEST: Final = 300

_log: Final = logging.getLogger("examples")


class LineFormatter(logging.Formatter):
    """A record in one line: what happened, and of an error what it was instead of the way to it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        words = [f"{record.levelname}:{record.name}:{record.getMessage().strip()}"]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            words.append(f"({type(error).__name__}: {error})" if str(error) else f"({type(error).__name__})")
        return " ".join(" ".join(words).split())[:_LONGEST]


class RepeatFilter(logging.Filter):
    """Passes what was not written a short time ago: who waits for a store says the same at every look."""

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        what = (record.name, record.getMessage())
        if record.created - self._written.get(what, -AGAIN_AFTER) < AGAIN_AFTER:
            return False
        self._written[what] = record.created
        return True


def set_up_logging() -> None:
    """Write the warnings and errors of this process to stderr, as `VARIABLE` says."""
    handler = logging.StreamHandler()
    if os.environ.get(VARIABLE) == LINES:
        handler.setFormatter(LineFormatter())
        handler.addFilter(RepeatFilter())
        sys.excepthook = _log_last_error
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _log_last_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, Exception):
        _log.critical("The process ends.", exc_info=(kind, error, trace))
    else:
        sys.__excepthook__(kind, error, trace)
