"""Shapes: how the values of one annotation become plain data and come back, by the library that knows them.

What always holds: a shape only proposes. Whether a value came back unchanged is judged by `same`, before it is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

import msgspec

from semel.core.same import same

_LEAVES = (datetime, date, time, timedelta, Decimal, UUID, bytes, bytearray)


class Shape(Protocol):
    """How values of one annotation become plain data and come back."""

    def lower(self, value: Any) -> Any:
        """`value` as plain data. Raises for what does not fit."""

    def lift(self, data: Any) -> Any:
        """The value that `data` stands for. Raises for what does not fit."""

    def fit(self, data: Any) -> Any:
        """The value that a person meant by `data`: numbers may stand as text, texts as dates."""


class AsIs:
    """No annotation: plain data goes through unchanged."""

    def lower(self, value: Any) -> Any:
        """The value itself."""
        return value

    def lift(self, data: Any) -> Any:
        """The data itself."""
        return data

    fit = lift


class ByMsgspec:
    """Structs, dataclasses, typed dictionaries, named tuples, enums and their containers."""

    def __init__(self, annotation: Any) -> None:
        # What msgspec works out about a struct it keeps; about a bare annotation it works it out at every call.
        self._holder: Any = msgspec.defstruct("Holder", [("value", annotation)])

    def lower(self, value: Any) -> Any:
        """The value taken apart into plain data."""
        return taken_apart(value)

    def lift(self, data: Any) -> Any:
        """The value put together again."""
        return msgspec.convert({"value": data}, self._holder, builtin_types=_LEAVES, strict=True).value

    def fit(self, data: Any) -> Any:
        """The value put together from what a person wrote."""
        return msgspec.convert({"value": data}, self._holder, builtin_types=_LEAVES, strict=False).value


@dataclasses.dataclass(frozen=True, slots=True)
class ByPydantic:
    """Annotations with a pydantic model somewhere in them. `by_name`: members travel by name, not by alias."""

    adapter: Any
    by_name: bool

    def lower(self, value: Any) -> Any:
        """The model dumped without what it computes; where Python's own types do not suffice, as JSON would have it."""
        settings = {"by_alias": not self.by_name, "round_trip": True, "warnings": False}
        try:
            return taken_apart(self.adapter.dump_python(value, **settings))
        except TypeError:
            return self.adapter.dump_python(value, mode="json", **settings)

    def lift(self, data: Any) -> Any:
        """The model validated again. Never strictly: enums stand as their values here."""
        names = {"by_name": True, "by_alias": False} if self.by_name else {}
        return self.adapter.validate_python(data, strict=False, **names)

    def fit(self, data: Any) -> Any:
        """The model validated, by names and by aliases alike."""
        names = {"by_name": True, "by_alias": True} if self.by_name else {}
        return self.adapter.validate_python(data, strict=False, **names)


@dataclasses.dataclass(frozen=True, slots=True)
class OneOf:
    """A union whose members cannot be told apart from data: the member's name travels along."""

    members: Mapping[str, Shape]

    def lower(self, value: Any) -> Any:
        """The first member that brings the value back unchanged."""
        for name, member in self.members.items():
            try:
                data = member.lower(value)
                if same(value, member.lift(data)):
                    return [name, data]
            except Exception:  # noqa: BLE001, S112 - a member that cannot take it is simply not the one
                continue
        message = f"{type(value).__qualname__} is none of {', '.join(self.members)}"
        raise TypeError(message)

    def lift(self, data: Any) -> Any:
        """The value by the member named."""
        name, body = data
        return self.members[name].lift(body)

    def fit(self, data: Any) -> Any:
        """The first member that takes what a person wrote."""
        problem: Exception = TypeError("it fits no member of the union")
        for member in self.members.values():
            try:
                return member.fit(data)
            except Exception as error:  # noqa: BLE001 - then it is meant for another member
                problem = error
        raise problem


def taken_apart(value: Any) -> Any:
    """Objects as dictionaries, enums as their values; what `plain` can carry stays as it is."""
    return msgspec.to_builtins(value, builtin_types=_LEAVES, str_keys=False)
