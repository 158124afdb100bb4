"""From a result to bytes and back, by the annotation the handler declares.

What always holds: what is replayed equals what was returned, type included. Each value is read back and compared
before it is kept; one that does not come back equal leaves a tombstone. An annotation whose values could never come
back is refused when the shape is made, which for `once` is at decoration.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

import msgspec

from semel.core import outcome, plain
from semel.errors import ResultNotKept, UsageError

PLAIN = "plain"
UNDECLARED = "undeclared"
STATED = "stated"
_LEAVES = (datetime, date, time, timedelta, Decimal, UUID, bytes, bytearray)


class Shape(Protocol):
    """How values of one annotation become plain data and come back."""

    def lower(self, value: Any) -> Any:
        """`value` as plain data. Raises for what does not fit."""

    def lift(self, data: Any) -> Any:
        """The value that `data` stands for. Raises for what does not fit."""


class AsIs:
    """No annotation: plain data goes through unchanged."""

    def lower(self, value: Any) -> Any:
        """The value itself."""
        return value

    def lift(self, data: Any) -> Any:
        """The data itself."""
        return data


@dataclasses.dataclass(frozen=True, slots=True)
class ByMsgspec:
    """Structs, dataclasses, typed dictionaries, named tuples, enums and their containers."""

    annotation: Any

    def lower(self, value: Any) -> Any:
        """The value taken apart into plain data."""
        return msgspec.to_builtins(value, builtin_types=_LEAVES, str_keys=False)

    def lift(self, data: Any) -> Any:
        """The value put together again."""
        return msgspec.convert(data, self.annotation, builtin_types=_LEAVES, strict=True)


@dataclasses.dataclass(frozen=True, slots=True)
class ByPydantic:
    """Annotations with a pydantic model somewhere in them."""

    adapter: Any

    def lower(self, value: Any) -> Any:
        """The model dumped, enums by value."""
        return msgspec.to_builtins(self.adapter.dump_python(value), builtin_types=_LEAVES, str_keys=False)

    def lift(self, data: Any) -> Any:
        """The model validated again."""
        return self.adapter.validate_python(data)


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


def shape_of(annotation: Any) -> Shape:
    """The shape for `annotation`; `Any`, `object` and a missing annotation mean plain data.

    Raises:
        UsageError: values of this annotation could not be replayed.
    """
    if annotation is Any or annotation is object or annotation is inspect_empty:
        return AsIs()
    try:
        info = msgspec.inspect.type_info(annotation)
    except TypeError:
        return _one_of(annotation)
    custom = _custom(info, set())
    if custom is None:
        return ByMsgspec(annotation)
    return _by_pydantic(annotation, custom)


class inspect_empty:  # noqa: N801 - stands where an annotation would
    """Marks a handler without a return annotation."""


def _one_of(annotation: Any) -> Shape:
    members = typing.get_args(annotation) if typing.get_origin(annotation) in (typing.Union, types.UnionType) else ()
    named = {getattr(member, "__name__", str(member)): shape_of(member) for member in members}
    if len(named) < 2 or len(named) != len(members):  # noqa: PLR2004 - a union has two members or more
        raise _refused(annotation, "it is of no kind that can be stored and read back unchanged")
    return OneOf(named)


def _by_pydantic(annotation: Any, custom: type) -> Shape:
    if not hasattr(custom, "model_fields"):
        raise _refused(annotation, f"{custom.__qualname__} cannot be stored and read back unchanged")
    import pydantic  # noqa: PLC0415 - optional: only reached where a model shows that it is installed

    return ByPydantic(pydantic.TypeAdapter(annotation))


def _custom(info: Any, seen: set[int]) -> type | None:
    """The first class inside that msgspec has no form for."""
    if id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        return info.cls
    if isinstance(info, (list, tuple)):
        return next((found for item in info if (found := _custom(item, seen))), None)
    if isinstance(info, (msgspec.inspect.Type, msgspec.inspect.Field)):
        return _custom([getattr(info, name) for name in info.__struct_fields__ if name not in ("cls", "default")], seen)
    return None


def _refused(annotation: Any, why: str) -> UsageError:
    shown = getattr(annotation, "__qualname__", None) or str(annotation)
    return UsageError(
        f"A result declared as {shown} cannot be replayed: {why}. Nothing ran. Return a dataclass, a Struct, a "
        f"pydantic model, or plain data; or return what identifies the result instead of the object."
    )


def encode(value: Any, shape: Shape, max_result: int) -> bytes:
    """The outcome envelope of a result; a tombstone where it cannot be kept. Never raises."""
    try:
        body, back = _trial(value, shape)
    except Exception as problem:  # noqa: BLE001 - whatever a value does when taken apart, the effect has happened
        return outcome.pack_tombstone(f"the result cannot be encoded: {type(problem).__name__}: {problem}"[:500])
    codec = PLAIN
    if not same(value, back):
        codec, body = UNDECLARED, _undeclared(value)
        if not body:
            return outcome.pack_tombstone("the result does not come back equal: it is not of the type declared")
    packed = outcome.pack(codec, body)
    if len(packed) > max_result:
        return outcome.pack_tombstone(f"the result takes {len(packed)} bytes, more than max_result={max_result}")
    return packed


def _trial(value: Any, shape: Shape) -> tuple[bytes, Any]:
    body = plain.dumps(shape.lower(value))
    return body, shape.lift(plain.loads(body))


def _undeclared(value: Any) -> bytes:
    """Plain data of another type than declared (an int from a `float` function) is kept as what it is."""
    try:
        body, back = _trial(value, AsIs())
    except Exception:  # noqa: BLE001 - then it is no plain data either
        return b""
    return body if same(value, back) else b""


def encode_stated(value: Any) -> bytes:
    """The envelope of a value that a person stated; it is fitted to the handler's annotation when replayed.

    Raises:
        UsageError: the value is not plain data.
    """
    try:
        return outcome.pack(STATED, plain.dumps(msgspec.to_builtins(value, builtin_types=_LEAVES, str_keys=False)))
    except (TypeError, plain.NotPlain) as problem:
        message = f"The value stated cannot be stored: {problem}; nothing was resolved. Give plain data."
        raise UsageError(message) from None


def decode(stored: bytes, shape: Shape) -> Any:
    """The value of an outcome envelope.

    Raises:
        ResultNotKept: it holds a tombstone.
        RecordUnreadable: it cannot be read, or no longer fits the annotation.
    """
    unpacked = outcome.unpack(stored)
    if isinstance(unpacked, outcome.NotKept):
        message = f"This ran before and is done, but its value was not kept: {unpacked.reason}. Nothing ran now."
        raise ResultNotKept(message, reason=unpacked.reason)
    codec, body = unpacked
    try:
        data = plain.loads(body)
        match codec:
            case "plain":
                return shape.lift(data)
            case "undeclared":
                return data
            case "stated":
                return _fit(data, shape)
    except Exception as problem:
        raise outcome.unreadable(f"it does not fit the declared result ({problem})") from problem
    raise outcome.unreadable(f"its codec {codec!r} is unknown to this release")


def _fit(data: Any, shape: Shape) -> Any:
    """Stated values come from people: numbers may stand as text, texts as dates."""
    if isinstance(shape, ByMsgspec):
        return msgspec.convert(data, shape.annotation, builtin_types=_LEAVES, strict=False)
    return shape.lift(data)


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal with equal types, all the way down."""
    kind = type(left)
    if kind is not type(right):
        return False
    if kind in (str, int, bool, bytes, type(None)):
        return bool(left == right)
    if kind is float:
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(item, right[name]) for name, item in left.items())
    fields = _fields(left)
    if fields is not None:
        return all(same(getattr(left, name, None), getattr(right, name, None)) for name in fields)
    return _same_leaf(left, right)


def _fields(value: Any) -> typing.Iterable[str] | None:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return getattr(type(value), "model_fields", None)


def _same_leaf(left: Any, right: Any) -> bool:
    match left:
        case datetime() | time():
            return bool(left == right) and left.utcoffset() == right.utcoffset()
        case Decimal():
            return str(left) == str(right)
        case set() | frozenset():
            return bool(left == right) and {type(item) for item in left} == {type(item) for item in right}
        case _:
            return bool(left == right)
