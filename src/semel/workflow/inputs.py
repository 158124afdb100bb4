"""The inputs of a task: which variables a function takes by its parameters, and how they become its arguments.

- Only what a parameter names is taken out of the variables of a process. Loop counters, timestamps and what semel
  itself has set there never reach the function, and are not compared.
- A single parameter `v` takes all variables.
- Each is decoded to its annotation, leniently: engines hand over numbers as text, and dates always.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from semel.core import codec
from semel.engine.decorator import attempts_in, name_of, resolved_hints
from semel.errors import UsageError

BUSINESS_KEY: Final = "businessKey"
KEY: Final = "idempotencyKey"
DUPLICATE: Final = "idempotencyDuplicate"
FROM_CACHE: Final = "idempotencyFromCache"
EXECUTION_TIME: Final = "idempotencyExecutionTimeMs"
OWN: Final = frozenset({KEY, DUPLICATE, FROM_CACHE, EXECUTION_TIME})
"""What semel sets in the variables of a process."""
ALL: Final = "v"

_REQUIRED: Final = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Input:
    """One variable that a function takes."""

    name: str
    shape: codec.Shape
    default: Any

    def is_given(self, variables: Mapping[str, Any]) -> bool:
        """Whether there is a value for it, be it the default."""
        return variables.get(self.name) is not None or self.default is not _REQUIRED

    def decode(self, variables: Mapping[str, Any]) -> Any:
        """Its value, as annotated.

        Raises:
            UsageError: it is missing, or is not what the annotation says.
        """
        given = variables.get(self.name)
        if given is None and self.default is not _REQUIRED:
            return self.default  # engines hand over null for what nobody has set
        if self.name not in variables:
            raise UsageError(f"The process has no variable {self.name!r}; nothing ran.")
        try:
            return self.shape.fit(given)
        except Exception as problem:  # noqa: BLE001 - whatever a library raises about a value, which may be personal
            raise UsageError(
                f"The variable {self.name!r} is not as annotated ({type(problem).__name__}); nothing ran."
            ) from None


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a function takes out of the variables of a process."""

    inputs: tuple[Input, ...]
    takes_all: bool

    @property
    def names(self) -> frozenset[str]:
        """The variables that it takes by name."""
        return frozenset(item.name for item in self.inputs)

    def decode(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of one call, by name.

        Raises:
            UsageError: a variable is missing, or is not what its annotation says.
        """
        if self.takes_all:
            return {ALL: {name: value for name, value in variables.items() if name not in OWN}}
        return {item.name: item.decode(variables) for item in self.inputs}


def inputs_of(function: Callable[..., Any], *, given: tuple[str, ...] = ()) -> Inputs:
    """The inputs of a function; `given` names parameters that are no variables.

    Raises:
        UsageError: a parameter cannot be given by name, cannot be decoded to its annotation, or names what semel sets.
    """
    hints = resolved_hints(function)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in given or attempts_in(hints.get(name, parameter.annotation)):
            continue
        if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise UsageError(
                f"{name_of(function)} takes {parameter} and variables are given by name; nothing ran. Name each one, "
                f"or take all of them as a single parameter {ALL!r}."
            )
        if name in OWN:
            raise UsageError(f"{name_of(function)} takes {name!r}, which semel sets after a run; nothing ran.")
        found.append(Input(name, _shape(function, name, hints.get(name, Any)), parameter.default))
    if [item.name for item in found] == [ALL]:
        return Inputs((), takes_all=True)
    return Inputs(tuple(found), takes_all=False)


def _shape(function: Callable[..., Any], name: str, annotation: Any) -> codec.Shape:
    try:
        return codec.shape_of(annotation)
    except UsageError as problem:
        raise UsageError(f"The input {name!r} of {name_of(function)} cannot be decoded: {problem}") from None
