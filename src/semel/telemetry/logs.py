"""Log lines as JSON: one object a line, the same members for every signal.

- A line names a record by its reference and holds no key, no scope and no value. The text of an error is not in it,
  only its class: error texts may be personal.
- Where a line goes is the affair of `logging`: this module writes to one logger, and configures nothing.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from semel.core.observer import Signal, is_loud

LOGGER: Final = "semel.telemetry"
"""The logger that lines go to where no other is given."""
_ENCODE: Final = msgspec.json.Encoder().encode


class LogObserver:
    """An observer that logs each signal as one line of JSON.

    What needs a look is logged as a warning; everything else at `level`.

    Args:
        logger: where lines go to; by default the logger `semel.telemetry`.
        level: of signals that are nothing special; by default `logging.INFO`.
    """

    def __init__(self, logger: logging.Logger | None = None, *, level: int = logging.INFO) -> None:
        self._log = logging.getLogger(LOGGER) if logger is None else logger
        self._level = level

    def observe(self, signal: Signal, /) -> None:
        """Log `signal`."""
        level = logging.WARNING if is_loud(signal.kind) else self._level
        if self._log.isEnabledFor(level):
            self._log.log(level, "%s", _ENCODE(line_of(signal)).decode())


def line_of(signal: Signal) -> dict[str, Any]:
    """The members of a line; what a signal does not tell is left out."""
    line: dict[str, Any] = {"event": signal.kind}
    if signal.operation:
        line["operation"] = signal.operation
    if signal.reference:
        line["reference"] = signal.reference
    if signal.seconds:
        line["duration_ms"] = round(signal.seconds * 1000, 3)
    if signal.handler_seconds is not None:
        line["handler_ms"] = round(signal.handler_seconds * 1000, 3)
    if signal.tier is not None:
        line["tier"] = signal.tier
    if signal.process_instance is not None:
        line["process_instance"] = signal.process_instance
    if signal.number != 1:
        line["number"] = signal.number
    if signal.detail:
        line["detail"] = signal.detail
    return line
