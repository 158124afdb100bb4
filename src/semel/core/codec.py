"""From a result to bytes and back, by the annotation the handler declares.

What always holds: what is replayed equals what was returned, type included. Each value is read back and compared
before it is kept; one that does not come back equal leaves a tombstone. An annotation whose values could never come
back is refused when the shape is made, which for `once` is at decoration.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from semel.core import outcome, plain
from semel.core.same import same
from semel.core.shape import AsIs, ByMsgspec, ByPydantic, OneOf, Shape, taken_apart
from semel.errors import ResultNotKept, UsageError

__all__ = ["Shape", "decode", "encode", "encode_stated", "inspect_empty", "shape_of"]

PLAIN = "plain"
UNDECLARED = "undeclared"
STATED = "stated"
_DISCREET = (msgspec.ValidationError, TypeError, LookupError, plain.NotPlain, plain.Damaged)


class inspect_empty:  # noqa: N801 - stands where an annotation would
    """Marks a handler without a return annotation."""


def shape_of(annotation: Any) -> Shape:
    """The shape for `annotation`; `Any`, `object` and a missing annotation mean plain data.

    Raises:
        UsageError: values of this annotation could not be replayed.
    """
    if annotation is Any or annotation is object or annotation is inspect_empty:
        return AsIs()
    try:
        parts = list(_parts(msgspec.inspect.type_info(annotation)))
    except TypeError:
        return _one_of(annotation)
    except Exception as problem:  # a name inside that only type checkers know
        raise _refused(annotation, f"it cannot be resolved ({problem})") from problem
    if any(isinstance(part, (msgspec.inspect.RawType, msgspec.inspect.ExtType)) for part in parts):
        raise _refused(annotation, "undecoded data cannot be read back unchanged")
    if any(isinstance(part, msgspec.inspect.DictType) and _has_objects(part.key_type) for part in parts):
        raise _refused(annotation, "objects cannot be the keys of a dictionary that is stored")
    custom = [part.cls for part in parts if isinstance(part, msgspec.inspect.CustomType) and part.cls is not object]
    return _by_pydantic(annotation, custom) if custom else ByMsgspec(annotation)


def _one_of(annotation: Any) -> Shape:
    members = typing.get_args(annotation) if typing.get_origin(annotation) in (typing.Union, types.UnionType) else ()
    named = {getattr(member, "__name__", str(member)): shape_of(member) for member in members}
    if len(named) < 2 or len(named) != len(members):  # noqa: PLR2004 - a union has two members or more
        raise _refused(annotation, "it is of no kind that can be stored and read back unchanged")
    return OneOf(named)


def _by_pydantic(annotation: Any, custom: list[type]) -> Shape:
    if not any(hasattr(kind, "model_fields") for kind in custom):
        raise _refused(annotation, f"{custom[0].__qualname__} cannot be stored and read back unchanged")
    import pydantic  # optional: only reached where a model shows that it is installed

    try:
        adapter = pydantic.TypeAdapter(annotation)
        for kind in custom:
            _check_fields(kind, pydantic.TypeAdapter, {kind})
    except Exception as problem:
        raise _refused(annotation, f"pydantic cannot read it back ({type(problem).__name__})") from problem
    return ByPydantic(adapter, "by_name" in inspect.signature(adapter.validate_python).parameters)


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


def _refused(annotation: Any, why: str) -> UsageError:
    plain_class = isinstance(annotation, type) and not typing.get_args(annotation)
    shown = annotation.__qualname__ if plain_class else str(annotation)
    return UsageError(
        f"A result declared as {shown} cannot be replayed: {why}. Nothing ran. Return a dataclass, a Struct, a "
        f"pydantic model, or plain data; or return what identifies the result instead of the object."
    )


def encode(value: Any, shape: Shape, max_result: int) -> bytes:
    """The outcome envelope of a result; a tombstone where it cannot be kept. Never raises."""
    codec, (body, why) = PLAIN, _kept(value, shape)
    if not body and not isinstance(shape, AsIs):
        # Plain data of another type than declared (an int from a `float` function) is kept as what it is.
        codec, (body, _) = UNDECLARED, _kept(value, AsIs())
    if not body:
        return outcome.pack_tombstone(why)
    packed = outcome.pack(codec, body)
    if len(packed) > max_result:
        return outcome.pack_tombstone(f"the result takes {len(packed)} bytes, more than max_result={max_result}")
    return packed


def _kept(value: Any, shape: Shape) -> tuple[bytes, str]:
    """The bytes that bring the value back unchanged; nothing, and the reason, where there are none."""
    try:
        body = plain.dumps(shape.lower(value))
        if same(value, shape.lift(plain.loads(body))):
            return body, ""
    except Exception as problem:  # noqa: BLE001 - whatever a value does when taken apart, the effect has happened
        return b"", f"the result cannot be encoded: {_told(problem)}"
    return b"", "the result does not come back equal: it holds more, or other types, than is declared"


def _told(problem: Exception) -> str:
    """What may be said of an error: of those that quote values, which may be personal, only the kind."""
    kind = type(problem).__name__
    return f"{kind}: {problem}"[:500] if isinstance(problem, _DISCREET) else kind


def encode_stated(value: Any) -> bytes:
    """The envelope of a value that a person stated; it is fitted to the handler's annotation when replayed.

    Raises:
        UsageError: the value is not plain data.
    """
    try:
        return outcome.pack(STATED, _stated(value))
    except Exception as problem:
        message = f"The value stated cannot be stored: {_told(problem)}; nothing was resolved. Give plain data."
        raise UsageError(message) from problem


def _stated(value: Any) -> bytes:
    try:
        return plain.dumps(value)
    except plain.NotPlain:
        dump = getattr(value, "model_dump", None)
        return plain.dumps(taken_apart(dump() if dump is not None else value))


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
        match codec:
            case "plain":
                return shape.lift(plain.loads(body))
            case "undeclared":
                return plain.loads(body)
            case "stated":
                return shape.fit(plain.loads(body))
    except Exception as problem:
        raise outcome.unreadable(f"it does not fit the declared result ({_told(problem)})") from problem
    raise outcome.unreadable(f"its codec {codec!r} is unknown to this release")
