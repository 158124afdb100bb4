"""How a task ended, as values: what an engine is told, and what of it a record keeps.

- A business error is recorded as a final failure with its code, message and variables, so that a replay equals it.
- What a record keeps of it is text with an end, as JSON writes it: a message is cut, and variables that do not fit are
  refused when the error is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import msgspec

from semel.errors import FailedBefore, UsageError

MOST_CODE: Final = 100
MOST_MESSAGE: Final = 500
MOST_VARIABLES: Final = 1000
"""Bytes of JSON."""
MOST_KEPT: Final = 2000
"""Characters that a record keeps of a failure."""

KEY_REUSED: Final = "KEY_REUSED"
COMPENSATED: Final = "COMPENSATED"


@dataclass(frozen=True, slots=True)
class Completed:
    """The task is done, now or before.

    Attributes:
        variables: what the process gets: the outputs, and how they came about.
        value: what `execute` gave; None where nothing ran or was found.
    """

    variables: Mapping[str, Any]
    value: Any = field(default=None, compare=False, repr=False)


class BpmnError(Exception):
    """A business error: the task ended, and the process goes on at the boundary event that catches `code`.

    Raise it in `execute`, or compare what `run` gives with it. It is recorded: a duplicate of the task gets the same.

    Args:
        code: what the boundary event catches.
        message: for people; what is longer than 500 characters is cut, and sooner where JSON escapes much of it and a
            record could not keep it beside code and variables.
        variables: what the process gets with it, as JSON data.

    Raises:
        UsageError: the code is not 1 to 100 printable characters, or the variables are too large, or no JSON data.
    """

    def __init__(self, code: str, message: str = "", variables: Mapping[str, Any] | None = None) -> None:
        given: object = code
        if not isinstance(given, str) or not given.isprintable() or not 0 < len(given) <= MOST_CODE:
            raise UsageError(f"The code of a BPMN error has 1 to {MOST_CODE} printable characters, not {given!r:.120}.")
        super().__init__(code, message)
        self.code = code
        self.variables: dict[str, Any] = _as_json_data({} if variables is None else variables)
        room = MOST_KEPT - len(_kept_text(code, "", self.variables))
        self.message = _cut(str(message)[:MOST_MESSAGE].encode("utf-8", "replace").decode(), room)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BpmnError) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((self.code, self.message))

    def __repr__(self) -> str:
        return f"BpmnError({self.code!r}, {self.message!r})"

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.message else self.code

    def __reduce__(self) -> tuple[Any, ...]:
        return BpmnError, self._parts()

    def _parts(self) -> tuple[Any, ...]:
        return self.code, self.message, self.variables


@dataclass(frozen=True, slots=True)
class Retry:
    """The task is not done, and may be later.

    Attributes:
        after: how long to wait before the engine tries it again.
        counts: whether that is one of the attempts that the engine allows; false where nothing failed, such as while
            another worker runs the task.
        reason: for people.
        no_store: whether the store did not answer, so that any other task would end like this, too.
    """

    after: timedelta
    counts: bool
    reason: str = ""
    no_store: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Incident:
    """A person has to look: trying again does not help.

    Attributes:
        reference: names the record, for `semel show` and `semel resolve`.
        reason: for people.
    """

    reference: str
    reason: str = field(default="", compare=False)


End = Completed | BpmnError | Retry | Incident


class RecordedBpmnError(Exception):
    """A business error on its way into the record: its text is what is kept."""

    def __init__(self, error: BpmnError) -> None:
        super().__init__(_kept_text(error.code, error.message, error.variables))
        self.error = error


RECORDED_TYPE: Final = f"{RecordedBpmnError.__module__}.{RecordedBpmnError.__qualname__}"


def recorded_error(failure: FailedBefore) -> BpmnError | None:
    """The business error that a replayed failure stands for; None where it is another failure."""
    if failure.error_type != RECORDED_TYPE:
        return None
    try:
        kept = msgspec.json.decode(failure.error_message)
        return BpmnError(kept["code"], kept["message"], kept["variables"])
    except (msgspec.DecodeError, TypeError, LookupError, UsageError):
        return None  # the text was damaged or erased: a person has to look


def _kept_text(code: str, message: str, variables: Mapping[str, Any]) -> str:
    return msgspec.json.encode({"code": code, "message": message, "variables": variables}).decode()


def _cut(message: str, room: int) -> str:
    """As much of a message as takes no more characters in JSON than there is room."""
    taken = 0
    for place, character in enumerate(message):
        taken += len(_in_json(character))
        if taken > room:
            return message[:place]
    return message


def _in_json(character: str) -> str:
    return msgspec.json.encode(character).decode()[1:-1]


def _as_json_data(variables: Mapping[str, Any]) -> dict[str, Any]:
    given: object = variables
    if not isinstance(given, Mapping):
        raise UsageError(f"The variables of a BPMN error are a mapping, not a {type(given).__name__}.")
    try:
        text = msgspec.json.encode(dict(given))
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise UsageError(f"The variables of a BPMN error are no JSON data: {problem!s:.200}.") from None
    if len(text) > MOST_VARIABLES:
        raise UsageError(
            f"The variables of a BPMN error take {len(text)} bytes as JSON, and {MOST_VARIABLES} are kept with it. "
            f"Hand over an identifier, and let the process fetch the rest."
        )
    decoded: dict[str, Any] = msgspec.json.decode(text)
    return decoded
