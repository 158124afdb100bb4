"""Whether what would be replayed is what was returned: equal values of equal types, all the way down.

What always holds: `same` is stricter than `==`. It tells `1` from `1.0`, `0.0` from `-0.0`, `Decimal("1")` from
`Decimal("1.0")` and one time zone from another, sees what was set on an object besides its fields, and lets NaN be NaN.
"""

from __future__ import annotations

import dataclasses
import math
from datetime import datetime, time
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

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
    makeup = _makeup(kind)  # type: ignore[arg-type]  # a class can be hashed, whatever it is a class of
    if makeup is not None:
        return _same_object(left, right, makeup)
    return _same_leaf(left, right)


def _same_set(left: Any, right: Any) -> bool:
    twins = {item: item for item in right}
    strays = [item for item in left if item not in twins]  # NaN equals nothing, so it is looked for one by one
    rest = [item for item in right if item not in left]
    return (
        len(left) == len(right)
        and all(same(item, twins[item]) for item in left if item in twins)
        and all(any(same(stray, item) for item in rest) for stray in strays)
        and all(any(same(item, stray) for stray in strays) for item in rest)
    )


class Makeup(NamedTuple):
    """What a class says about its objects: their fields, where else they keep things, what they only work out."""

    fields: tuple[str, ...]
    hidden: tuple[str, ...]
    known: frozenset[str]


@lru_cache(maxsize=1024)
def _makeup(kind: type) -> Makeup | None:
    hidden: tuple[str, ...] = ()
    if issubclass(kind, msgspec.Struct):
        fields = kind.__struct_fields__
    elif dataclasses.is_dataclass(kind):
        fields = tuple(field.name for field in dataclasses.fields(kind))
    elif hasattr(kind, "model_fields"):
        fields, hidden = tuple(kind.model_fields), ("__pydantic_extra__", "__pydantic_private__")
    else:
        return None
    worked_out = [
        name for base in kind.__mro__ for name, item in vars(base).items() if isinstance(item, cached_property)
    ]
    return Makeup(fields, hidden, frozenset([*fields, *worked_out]))


def _same_object(left: Any, right: Any, makeup: Makeup) -> bool:
    for name in (*makeup.fields, *makeup.hidden):
        if not same(getattr(left, name, _ABSENT), getattr(right, name, _ABSENT)):
            return False
    mine, other = _besides(left, makeup), _besides(right, makeup)
    return mine.keys() == other.keys() and all(same(mine[name], other[name]) for name in mine)


def _besides(value: Any, makeup: Makeup) -> dict[str, Any]:
    """What was set on an object that its class does not know of."""
    held = getattr(value, "__dict__", None) or {}
    return {name: item for name, item in held.items() if name not in makeup.known}


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
