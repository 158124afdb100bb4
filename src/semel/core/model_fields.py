"""The fields of dataclasses, Structs and pydantic models, and the defaults that can be told without running code."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, NamedTuple

import msgspec


class Missing:
    """The type of `MISSING`: there is no default, or none that is the same in every process."""


MISSING: Final = Missing()
_CONSTANT_FACTORIES = (list, dict, set, frozenset, tuple, str, bytes, bytearray, int, float, bool)


class ModelField(NamedTuple):
    """A field and its default. `model` is the class whose own defaults are the default (`default_factory=Address`).

    A default that a function makes is `MISSING`: what `date.today` or a counter gives differs between two processes,
    and calling it only to compare could have effects.
    """

    name: str
    default: object = MISSING
    model: type | None = None


def is_model(kind: Any) -> bool:
    """Whether `kind` is a class whose fields are known: a dataclass, a Struct or a pydantic model."""
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct) or hasattr(kind, "model_fields")
    )


def fields_of(kind: Any) -> list[ModelField]:
    """The declared fields of a model; class variables and what only the constructor takes are none."""
    if issubclass(kind, msgspec.Struct):
        return [_field(field.name, field, msgspec.NODEFAULT) for field in msgspec.structs.fields(kind)]
    if dataclasses.is_dataclass(kind):
        return [_dataclass_field(field) for field in dataclasses.fields(kind)]
    return [_pydantic_field(name, field) for name, field in kind.model_fields.items()]


def _dataclass_field(field: dataclasses.Field[Any]) -> ModelField:
    if hasattr(field.default, "is_required"):  # pydantic's dataclasses keep what pydantic.Field gave as the default
        return _pydantic_field(field.name, field.default)
    return _field(field.name, field, dataclasses.MISSING)


def _pydantic_field(name: str, field: Any) -> ModelField:
    return ModelField(name) if field.is_required() else _field(name, field, None)


def _field(name: str, field: Any, no_factory: object) -> ModelField:
    """What a library says of a field; `no_factory` is how it says that there is none, or no default."""
    factory = field.default_factory
    if factory is no_factory:
        has_default = no_factory is None or field.default is not no_factory
        return ModelField(name, field.default if has_default else MISSING)
    if factory in _CONSTANT_FACTORIES:
        return ModelField(name, factory())
    return ModelField(name, model=factory if is_model(factory) else None)
