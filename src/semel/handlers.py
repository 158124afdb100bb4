"""Handlers whose parameters are given by name, data that is decoded to what they are annotated with, and their ends."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from semel.core.fingerprint import is_model
from semel.engine.decorator import is_cut_off, name_of, resolved_hints
from semel.errors import UsageError


class DoesNotDecode(Exception):
    """The data is not what its handler is annotated with."""


class WasCancelled(Exception):
    """What a handler or a publisher waited for was cancelled, and nobody cancelled the caller: an error of it alone."""


def async_is_cut_off() -> bool:
    """Whether this task is being cancelled, or there is none to tell."""
    return is_cut_off()


def sync_is_cut_off() -> bool:
    """Nobody cancels a thread."""
    return False


def parameters_of(function: Callable[..., Any], known: Sequence[str], what: str) -> frozenset[str]:
    """The names of the parameters of a handler.

    Args:
        function: the handler.
        known: the names that may be given.
        what: what kind of handler it is, for the message.

    Raises:
        UsageError: it has a parameter that nobody gives, or one that cannot be given by name.
    """
    parameters = inspect.signature(function).parameters
    for name, parameter in parameters.items():
        by_name = parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        if name not in known or not by_name:
            raise UsageError(
                f"{name_of(function)} has a parameter {name!r}; nothing ran. A handler of {what} may have "
                f"{', '.join(known)}, which are given by name."
            )
    return frozenset(parameters)


def data_annotation(function: Callable[..., Any]) -> Any:
    """What the parameter `data` of a handler is annotated with; `Any` where it has none.

    Raises:
        UsageError: it names something that cannot be found, so that data would not be decoded.
    """
    hints = resolved_hints(function)
    parameter = inspect.signature(function).parameters.get("data")
    if "data" in hints or parameter is None or parameter.annotation is inspect.Parameter.empty:
        return hints.get("data", Any)
    raise UsageError(
        f"The data of {name_of(function)} is annotated with {parameter.annotation!r:.200}, which cannot be found; "
        f"nothing ran. Import it at run time, so that data can be decoded to it."
    )


def is_untyped(annotation: Any) -> bool:
    """Whether an annotation says nothing of the data."""
    return annotation in (Any, object, inspect.Parameter.empty)


def is_pydantic(annotation: Any) -> bool:
    """Whether an annotation is a model of pydantic."""
    return is_model(annotation) and hasattr(annotation, "model_validate_json")


def check_decodable(annotation: Any, owner: str) -> None:
    """Refuse an annotation that no data can be decoded to.

    Raises:
        UsageError: it is one.
    """
    try:
        msgspec.json.Decoder(annotation)
        is_unknown = isinstance(msgspec.inspect.type_info(annotation), msgspec.inspect.CustomType)
    except TypeError as problem:
        raise UsageError(f"The data of {owner} cannot be decoded: {problem}; nothing ran.") from None
    if is_unknown:
        raise UsageError(
            f"The data of {owner} cannot be decoded: nobody knows how JSON becomes {annotation!r:.200}; nothing ran. "
            f"Annotate it with a Struct, a dataclass, a TypedDict or a model of pydantic."
        )


def describe_places(problem: Any) -> str:
    """Where pydantic found data wrong and how, without the values, which may be personal."""
    errors: list[Mapping[str, Any]] = problem.errors() if hasattr(problem, "errors") else []
    return "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['type']}" for error in errors[:5])[:300]
