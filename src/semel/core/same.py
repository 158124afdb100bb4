"""Whether what would be replayed is what was returned: equal values of equal types, all the way down.

What always holds: `same` is stricter than `==`. It tells `1` from `1.0`, `0.0` from `-0.0`, `Decimal("1")` from
`Decimal("1.0")` and one time zone from another, sees what was set on an object besides its fields, and lets NaN be NaN.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from datetime import datetime, time
from decimal import Decimal
from functools import cached_property
from typing import Any

import msgspec

_BY_EQUALITY = frozenset({type(None), bool, int, str, bytes})
_ABSENT = object()


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal with equal types, all the way down."""
    kind = type(left)
    if kind is not type(right):
        return False
    if kind in _BY_EQUALITY:
        return bool(left == right)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return len(left) == len(right) and all(map(same, left, right)) and all(map(same, left.values(), right.values()))
    if isinstance(left, (set, frozenset)):
        return _same_set(left, right)
    names = _fields(left)
    if names is not None:
        mine, other = _state(left, names), _state(right, names)
        return mine.keys() == other.keys() and all(same(mine[name], other[name]) for name in mine)
    return _same_leaf(left, right)


def _same_set(left: Any, right: Any) -> bool:
    twins = {item: item for item in right}
    strays = [item for item in left if item not in twins]  # NaN equals nothing, so it is looked for one by one
    rest = [item for item in right if item not in left]
    return (
        len(left) == len(right)
        and all(same(item, twins[item]) for item in left if item in twins)
        and all(any(same(stray, item) for item in rest) for stray in strays)
    )


def _fields(value: Any) -> Iterable[str] | None:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return getattr(type(value), "model_fields", None)


def _state(value: Any, names: Iterable[str]) -> dict[str, Any]:
    """All that an object holds: its fields and what was set on it besides, but not what it has only worked out."""
    kind, everything = type(value), getattr(value, "__dict__", {})
    worked_out = {name for name in everything if isinstance(getattr(kind, name, None), cached_property)}
    besides = {name: item for name, item in everything.items() if name not in worked_out}
    hidden = {name: getattr(value, name, None) for name in ("__pydantic_extra__", "__pydantic_private__")}
    return {**besides, **hidden, **{name: getattr(value, name, _ABSENT) for name in names}}


def _same_leaf(left: Any, right: Any) -> bool:
    match left:
        case float():
            return (math.isnan(left) and math.isnan(right)) or repr(left) == repr(right)
        case complex():
            return same(left.real, right.real) and same(left.imag, right.imag)
        case Decimal():
            return str(left) == str(right)
        case datetime() | time():
            return left.fold == right.fold and left.isoformat() == right.isoformat() and _same_zone(left, right)
        case _:
            return bool(left == right)


def _same_zone(left: datetime | time, right: datetime | time) -> bool:
    return type(left.tzinfo) is type(right.tzinfo) and str(left.tzinfo) == str(right.tzinfo)
