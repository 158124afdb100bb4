"""Whether values of an annotation can be encoded at all: asked once, at decoration, not at each call."""

from __future__ import annotations

import collections.abc
import types
import typing
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from semel.core.model_fields import fields_of, is_model

_PLAIN = (str, int, float, Decimal, bytes, bytearray, memoryview, date, time, timedelta, UUID, Enum, PurePath)
_CONTAINERS = (list, tuple, set, frozenset, collections.abc.Mapping)
_ABSTRACT = (
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Set,
    collections.abc.MutableSet,
    collections.abc.Collection,
)


def why_not(annotation: Any) -> str | None:
    """Why values of `annotation` cannot be encoded; None if they can, or if only the value itself can tell."""
    return _why_not(annotation, set())


def _why_not(annotation: Any, seen: set[Any]) -> str | None:
    origin = typing.get_origin(annotation)
    if annotation in (Any, None, type(None), object, ...) or isinstance(annotation, (str, typing.ForwardRef)):
        return None
    if isinstance(annotation, typing.TypeVar):
        return None if annotation.__bound__ is None else _why_not(annotation.__bound__, seen)
    if origin is typing.Literal:
        return None
    if origin is typing.Annotated:
        return _why_not(typing.get_args(annotation)[0], seen)
    if origin in (typing.Union, types.UnionType):
        return _first(typing.get_args(annotation), seen)
    if hasattr(annotation, "__supertype__"):  # NewType
        return _why_not(annotation.__supertype__, seen)
    return _class(origin or annotation, typing.get_args(annotation), seen)


def _first(annotations: typing.Iterable[Any], seen: set[Any]) -> str | None:
    return next((problem for inner in annotations if (problem := _why_not(inner, seen))), None)


def _class(kind: Any, arguments: tuple[Any, ...], seen: set[Any]) -> str | None:
    if not isinstance(kind, type):
        return None  # an unusual form: the value will tell
    if kind in _ABSTRACT or issubclass(kind, _CONTAINERS) or typing.is_typeddict(kind):
        return _first(arguments, seen)
    if issubclass(kind, _PLAIN):
        return None
    if is_model(kind):
        return _fields(kind, seen)
    return f"a {kind.__qualname__} has no canonical form"


def _fields(kind: type, seen: set[Any]) -> str | None:
    if kind in seen:
        return None
    seen.add(kind)
    models: dict[str, Any] | None = getattr(kind, "model_fields", None)
    if models is not None:
        return _first((field.annotation for field in models.values()), seen)
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001 - names only known to type checkers: the value will tell
        return None
    return _first((hints[field.name] for field in fields_of(kind) if field.name in hints), seen)
