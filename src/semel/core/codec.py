"""From a result to bytes and back, by the annotation that the handler declares.

What is replayed equals what was returned, type included: each value is read back and compared before it is kept, and
one that does not come back equal leaves a tombstone.

- A shape says how the values of one annotation become plain data and come back, by the library that knows them. It only
  proposes. An annotation whose values could never come back is refused when its shape is made, which for `once` is at
  decoration.
- `same` judges whether a value came back unchanged. It is stricter than `==`: it tells `1` from `1.0`, `0.0` from
  `-0.0`, `Decimal("1")` from `Decimal("1.0")` and one time zone from another, sees what was set on an object besides
  its fields, and lets NaN be NaN.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final, NamedTuple, Protocol
from uuid import UUID

import msgspec

from semel.core import serializer
from semel.core.record import NotKept, pack_outcome, pack_tombstone, unpack_outcome, unreadable_error
from semel.errors import RecordUnreadable, ResultNotKept, UsageError

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
    layout = _layout_of(kind)  # type: ignore[arg-type]  # a class can be hashed, whatever it is a class of
    if layout is not None:
        return _same_object(left, right, layout)
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


class ObjectLayout(NamedTuple):
    """What a class says about its objects: their fields, where else they keep things, what they only work out."""

    fields: tuple[str, ...]
    hidden: tuple[str, ...]
    known: frozenset[str]


@lru_cache(maxsize=1024)
def _layout_of(kind: type) -> ObjectLayout | None:
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
    return ObjectLayout(fields, hidden, frozenset([*fields, *worked_out]))


def _same_object(left: Any, right: Any, layout: ObjectLayout) -> bool:
    for name in (*layout.fields, *layout.hidden):
        if not same(getattr(left, name, _ABSENT), getattr(right, name, _ABSENT)):
            return False
    mine, other = _besides(left, layout), _besides(right, layout)
    return mine.keys() == other.keys() and all(same(mine[name], other[name]) for name in mine)


def _besides(value: Any, layout: ObjectLayout) -> dict[str, Any]:
    """What was set on an object that its class does not know of."""
    held = getattr(value, "__dict__", None) or {}
    return {name: item for name, item in held.items() if name not in layout.known}


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


_LEAVES = (datetime, date, time, timedelta, Decimal, UUID, bytes, bytearray)


_SIMPLE: Final = frozenset({type(None), bool, int, str, bytes})
"""Types whose values MessagePack carries by itself, and gives back as they were."""
_INT64: Final = 2**63
_encode_plain: Final = msgspec.msgpack.Encoder().encode
_NONE: Final[frozenset[type]] = frozenset()


class ClosedStruct(msgspec.Struct, frozen=True):
    """A struct of semel's own whose fields are declared as plain data and hold nothing else."""


class Shape(Protocol):
    """How values of one annotation become plain data and come back."""

    @property
    def certain(self) -> frozenset[type]:
        """Types whose values are sure to come back unchanged, so that nobody has to try."""

    def lower(self, value: Any) -> Any:
        """`value` as plain data. Raises for what does not fit."""

    def lift(self, data: Any) -> Any:
        """The value that `data` stands for. Raises for what does not fit."""

    def fit(self, data: Any) -> Any:
        """The value that a person meant by `data`: numbers may stand as text, texts as dates."""


class PlainAdapter:
    """No annotation: plain data goes through unchanged."""

    certain = _SIMPLE

    def lower(self, value: Any) -> Any:
        """The value itself."""
        return value

    def lift(self, data: Any) -> Any:
        """The data itself."""
        return data

    fit = lift


class MsgspecAdapter:
    """Structs, dataclasses, typed dictionaries, named tuples, enums and their containers."""

    def __init__(self, annotation: Any) -> None:
        # What msgspec works out about a struct it keeps; about a bare annotation it works it out at every call.
        self._holder: Any = msgspec.defstruct("Holder", [("value", annotation)])
        kind = type(None) if annotation is None else annotation
        is_certain = isinstance(kind, type) and (kind in _SIMPLE or issubclass(kind, ClosedStruct))
        self.certain: frozenset[type] = frozenset({kind}) if is_certain else _NONE

    def lower(self, value: Any) -> Any:
        """The value taken apart into plain data."""
        return to_builtins(value)

    def lift(self, data: Any) -> Any:
        """The value put together again."""
        return msgspec.convert({"value": data}, self._holder, builtin_types=_LEAVES, strict=True).value

    def fit(self, data: Any) -> Any:
        """The value put together from what a person wrote."""
        return msgspec.convert({"value": data}, self._holder, builtin_types=_LEAVES, strict=False).value


@dataclasses.dataclass(frozen=True, slots=True)
class PydanticAdapter:
    """Annotations with a pydantic model somewhere in them. `by_name`: members travel by name, not by alias."""

    adapter: Any
    by_name: bool
    certain: ClassVar[frozenset[type]] = _NONE

    def lower(self, value: Any) -> Any:
        """The model dumped without what it computes; where Python's own types do not suffice, as JSON would have it."""
        settings = {"by_alias": not self.by_name, "round_trip": True, "warnings": False}
        try:
            return to_builtins(self.adapter.dump_python(value, **settings))
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
class UnionAdapter:
    """A union whose members cannot be told apart from data: the member's name travels along."""

    members: Mapping[str, Shape]
    certain: ClassVar[frozenset[type]] = _NONE

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


def to_builtins(value: Any) -> Any:
    """Objects as dictionaries, enums as their values; what `plain` can carry stays as it is."""
    return msgspec.to_builtins(value, builtin_types=_LEAVES, str_keys=False)


__all__ = ["NO_ANNOTATION", "Shape", "decode", "encode", "encode_manual", "shape_of"]

PLAIN = "plain"
UNDECLARED = "undeclared"
STATED = "stated"
_DISCREET = (msgspec.ValidationError, TypeError, LookupError, serializer.NotPlain, serializer.Damaged)


class NO_ANNOTATION:  # noqa: N801 - stands where an annotation would
    """Marks a handler without a return annotation."""


def shape_of(annotation: Any) -> Shape:
    """The shape for `annotation`; `Any`, `object` and a missing annotation mean plain data.

    Raises:
        UsageError: values of this annotation could not be replayed.
    """
    if annotation is Any or annotation is object or annotation is NO_ANNOTATION:
        return PlainAdapter()
    try:
        parts = list(_parts(msgspec.inspect.type_info(annotation)))
    except TypeError:
        return _union_adapter(annotation)
    except Exception as problem:  # a name inside that only type checkers know
        raise _annotation_error(annotation, f"it cannot be resolved ({problem})") from problem
    if any(isinstance(part, (msgspec.inspect.RawType, msgspec.inspect.ExtType)) for part in parts):
        raise _annotation_error(annotation, "undecoded data cannot be read back unchanged")
    if any(isinstance(part, msgspec.inspect.DictType) and _has_objects(part.key_type) for part in parts):
        raise _annotation_error(annotation, "objects cannot be the keys of a dictionary that is stored")
    custom = [part.cls for part in parts if isinstance(part, msgspec.inspect.CustomType) and part.cls is not object]
    return _pydantic_adapter(annotation, custom) if custom else MsgspecAdapter(annotation)


def _union_adapter(annotation: Any) -> Shape:
    members = typing.get_args(annotation) if typing.get_origin(annotation) in (typing.Union, types.UnionType) else ()
    named = {getattr(member, "__name__", str(member)): shape_of(member) for member in members}
    if len(named) < 2 or len(named) != len(members):  # noqa: PLR2004 - a union has two members or more
        raise _annotation_error(annotation, "it is of no kind that can be stored and read back unchanged")
    return UnionAdapter(named)


def _pydantic_adapter(annotation: Any, custom: list[type]) -> Shape:
    if not any(hasattr(kind, "model_fields") for kind in custom):
        raise _annotation_error(annotation, f"{custom[0].__qualname__} cannot be stored and read back unchanged")
    import pydantic  # optional: only reached where a model shows that it is installed

    try:
        adapter = pydantic.TypeAdapter(annotation)
        for kind in custom:
            _check_fields(kind, pydantic.TypeAdapter, {kind})
    except Exception as problem:
        raise _annotation_error(annotation, f"pydantic cannot read it back ({type(problem).__name__})") from problem
    return PydanticAdapter(adapter, "by_name" in inspect.signature(adapter.validate_python).parameters)


def _check_fields(model: Any, adapter: Any, seen: set[Any]) -> None:
    """Raise for a field that a model only passes through (`arbitrary_types_allowed`): nobody could rebuild it."""
    for field in getattr(model, "model_fields", {}).values():
        declared = field.annotation
        adapter(typing.Annotated[(declared, *field.metadata)] if field.metadata else declared)
        for kind in (declared, *typing.get_args(declared)):
            if hasattr(kind, "model_fields") and kind not in seen:
                seen.add(kind)
                _check_fields(kind, adapter, seen)


def _parts(info: Any) -> Iterator[Any]:
    """A described type and every type inside it, each once."""
    seen: dict[int, Any] = {}  # keeps them alive: the id of what is gone may come again
    waiting = [info]
    while waiting:
        part = waiting.pop()
        if isinstance(part, (list, tuple)):
            waiting.extend(part)
        elif isinstance(part, (msgspec.inspect.Type, msgspec.inspect.Field)) and id(part) not in seen:
            seen[id(part)] = part
            yield part
            waiting += [getattr(part, name) for name in part.__struct_fields__ if name not in ("cls", "default")]


def _has_objects(info: Any) -> bool:
    objects = (msgspec.inspect.StructType, msgspec.inspect.DataclassType, msgspec.inspect.CustomType)
    return any(isinstance(part, objects) for part in _parts(info))


def _annotation_error(annotation: Any, why: str) -> UsageError:
    plain_class = isinstance(annotation, type) and not typing.get_args(annotation)
    shown = annotation.__qualname__ if plain_class else str(annotation)
    return UsageError(
        f"A result declared as {shown} cannot be replayed: {why}. Nothing ran. Return a dataclass, a Struct, a "
        f"pydantic model, or plain data; or return what identifies the result instead of the object."
    )


class UpgradingAdapter:
    """An annotation whose older values are brought to it by a function, which gets them as plain data.

    It is asked only where the plain data does not fit any more. What it gives has to fit, as a value or as plain data.
    """

    def __init__(self, shape: Shape, upgrade: Callable[[Any], Any]) -> None:
        self.inner = shape
        self._upgrade = upgrade
        self.certain = shape.certain

    def lower(self, value: Any) -> Any:
        """As the annotation does."""
        return self.inner.lower(value)

    def lift(self, data: Any) -> Any:
        """The value that `data` stands for, now or before the annotation was changed."""
        try:
            return self.inner.lift(data)
        except Exception:  # noqa: BLE001 - each kind of annotation has errors of its own
            return self._apply_upgrade(data)

    def fit(self, data: Any) -> Any:
        """The same of what a person meant."""
        try:
            return self.inner.fit(data)
        except Exception:  # noqa: BLE001 - as above
            return self._apply_upgrade(data)

    def _apply_upgrade(self, data: Any) -> Any:
        name = getattr(self._upgrade, "__qualname__", type(self._upgrade).__qualname__)
        try:
            value = self._upgrade(data)
        except Exception as problem:
            raise _upgrade_error(f"upgrade={name} raised {_safe_reason(problem)}") from problem
        try:
            return self.inner.lift(self._lower_upgraded(value))
        except Exception as problem:
            why = f"what upgrade={name} gave does not fit the declared result ({_safe_reason(problem)})"
            raise _upgrade_error(why) from problem

    def _lower_upgraded(self, value: Any) -> Any:
        try:
            return self.inner.lower(value)
        except Exception:  # noqa: BLE001 - then it is plain data already, or nothing that fits
            return value


def _upgrade_error(why: str) -> RecordUnreadable:
    return RecordUnreadable(
        f"The stored outcome cannot be read: {why}. It did run before and nothing ran now; mend the function."
    )


def encode(value: Any, shape: Shape, max_result: int, redact: tuple[str, ...] = ()) -> bytes:
    """The outcome envelope of a result, without what stands at the paths of `redact`. Never raises.

    It is a tombstone where the result cannot be kept.
    """
    codec, body, why = PLAIN, b"" if redact else _encode_certain(value, shape), ""
    if not body:
        body, why = _encode_checked(value, shape)
    if not body and not isinstance(shape, PlainAdapter):
        # Plain data of another type than declared (an int from a `float` function) is kept as what it is.
        codec, (body, _) = UNDECLARED, _encode_checked(value, PlainAdapter())
    if redact:
        body, why = _encode_redacted(value, body, shape if codec == PLAIN else PlainAdapter(), redact)
    if not body:
        return pack_tombstone(why)
    packed = pack_outcome(codec, body)
    if len(packed) > max_result:
        return pack_tombstone(f"the result takes {len(packed)} bytes, more than max_result={max_result}")
    return packed


def _encode_certain(value: Any, shape: Shape) -> bytes:
    """The bytes of a value that is sure to come back unchanged; nothing where that has to be tried."""
    kind = type(value)
    if kind not in shape.certain or (kind is int and not -_INT64 <= value < _INT64):
        return b""
    try:
        return _encode_plain(value)
    except UnicodeEncodeError:
        return b""  # its text holds a lone surrogate, which the other way has words for


def _encode_checked(value: Any, shape: Shape) -> tuple[bytes, str]:
    """The bytes that bring the value back unchanged; nothing, and the reason, where there are none."""
    try:
        body = serializer.dumps(shape.lower(value))
        if same(value, shape.lift(serializer.loads(body))):
            return body, ""
    except Exception as problem:  # noqa: BLE001 - whatever a value does when taken apart, the effect has happened
        return b"", f"the result cannot be encoded: {_safe_reason(problem)}"
    return b"", "the result does not come back equal: it holds more, or other types, than is declared"


def _encode_redacted(value: Any, body: bytes, shape: Shape, paths: tuple[str, ...]) -> tuple[bytes, str]:
    """The bytes without what stands at `paths`; nothing, and the reason, where that is no value of the shape any more.

    A reason quotes no error here: its text could hold the very member that is not to be stored.
    """
    if not body:
        return b"", "the result does not come back equal, or cannot be encoded"
    if isinstance(value, ClosedStruct):
        return b"", "redact= does not reach into an HTTP response"
    try:
        data = serializer.loads(body)
        for path in paths:
            # A path of names says nothing of a value that has none, such as the reference that a step gives.
            if path.startswith("*") or _has_names(value):
                data = _redact(data, shape, path)
        shape.lift(data)
        return serializer.dumps(data), ""
    except serializer.NotPlain as problem:
        return b"", f"redact= does not fit the result: {problem}"
    except Exception as problem:  # noqa: BLE001 - whatever a class does when put together, the effect has happened
        kind = type(problem).__name__
        return b"", f"the result cannot be read back once redacted ({kind}): declare the member as a text"


def _has_names(value: Any) -> bool:
    """Whether the parts of a value have names, even where they are stored in a row."""
    kind: Any = type(value)
    return isinstance(value, dict) or hasattr(value, "_fields") or _layout_of(kind) is not None


def _redact(data: Any, shape: Shape, path: str) -> Any:
    if isinstance(shape, UpgradingAdapter):
        shape = shape.inner
    if isinstance(shape, UnionAdapter):
        name, body = data
        return [name, serializer.redact(body, path)]
    return serializer.redact(data, path)


def _safe_reason(problem: Exception) -> str:
    """What may be said of an error: of those that quote values, which may be personal, only the kind."""
    kind = type(problem).__name__
    return f"{kind}: {problem}"[:500] if isinstance(problem, _DISCREET) else kind


def encode_manual(value: Any) -> bytes:
    """The envelope of a value that a person stated; it is fitted to the handler's annotation when replayed.

    Raises:
        UsageError: the value is not plain data.
    """
    try:
        return pack_outcome(STATED, _dump_manual(value))
    except Exception as problem:
        message = f"The value stated cannot be stored: {_safe_reason(problem)}; nothing was resolved. Give plain data."
        raise UsageError(message) from problem


def _dump_manual(value: Any) -> bytes:
    try:
        return serializer.dumps(value)
    except serializer.NotPlain:
        dump = getattr(value, "model_dump", None)
        return serializer.dumps(to_builtins(dump() if dump is not None else value))


def decode(stored: bytes, shape: Shape) -> Any:
    """The value of an outcome envelope.

    Raises:
        ResultNotKept: it holds a tombstone.
        RecordUnreadable: it cannot be read, or no longer fits the annotation.
    """
    unpacked = unpack_outcome(stored)
    if isinstance(unpacked, NotKept):
        message = f"This ran before and is done, but its value was not kept: {unpacked.reason}. Nothing ran now."
        raise ResultNotKept(message, reason=unpacked.reason)
    codec, body = unpacked
    try:
        match codec:
            case "plain":
                return shape.lift(serializer.loads(body))
            case "undeclared":
                return serializer.loads(body)
            case "stated":
                return shape.fit(serializer.loads(body))
    except RecordUnreadable:
        raise  # an upgrade has said what was wrong with it
    except Exception as problem:
        raise unreadable_error(f"it does not fit the declared result ({_safe_reason(problem)})") from problem
    raise unreadable_error(f"its codec {codec!r} is unknown to this release")
