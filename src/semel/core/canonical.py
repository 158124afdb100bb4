"""One byte string per value, and one value per byte string: the encoding under keys and fingerprints.

What always holds: two values have equal encodings only if they are equal. Every element carries a type tag and its
length, so that no joining of neighbours can look like another value. Numbers enter by exact value (`1500`, `1500.0`
and `Decimal("1500.00")` are one; `0.1` and `Decimal("0.1")` are two, as they are in Python), booleans are not numbers,
aware datetimes enter by their instant and naive ones are refused. Lists and tuples are one; a mapping enters by its
members in any order, an object by the name of its class and its members. Text enters in Unicode form NFC, so that one
word typed on two systems is one word, except in the exact form, which keys use. Without defaults, a field that equals
its default is left out of an object: then equal encodings mean equal values under one definition of the class. Reading
a value takes time with its size: a number is never written out in more than 40 digits that it does not have.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import PurePath, PureWindowsPath
from typing import Any
from uuid import UUID

import msgspec

from semel.core.model_fields import MISSING, ModelField, fields_of
from semel.core.text import TooManyMarks, normalized

MAX_DEPTH = 64
MAX_DIGITS = 1000
MAX_WRITTEN = 40
"""Digits of a whole number that is written out; a larger one is written with an exponent."""
MAX_BYTES = 16 * 1024 * 1024
_MAX_BITS = 3322  # what a number of MAX_DIGITS digits takes at most; asking for bits costs nothing, unlike digits
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Member = tuple[bytes, str, object, bytes | None]
"""A member of an object: its name encoded, its name, its default, its default encoded."""


class CannotEncode(Exception):
    """The value has no canonical encoding; the message is a clause that says why. Callers make it a typed error."""


class Level:
    """How deep the encoder is, and in which form text and objects enter. `inner` is the next level down, if any."""

    __slots__ = ("drops_defaults", "exact", "inner")

    def __init__(self, *, exact: bool = False, drops_defaults: bool = False, depth: int = MAX_DEPTH) -> None:
        self.exact = exact
        self.drops_defaults = drops_defaults
        inner = depth > 1
        self.inner = Level(exact=exact, drops_defaults=drops_defaults, depth=depth - 1) if inner else None


_NORMAL = Level()
_EXACT = Level(exact=True)
_WITHOUT_DEFAULTS = Level(drops_defaults=True)


def encode(value: object, *, exact: bool = False) -> bytes:
    """The canonical bytes of `value`; `exact` keeps text as it is. Raises `CannotEncode` for what has none."""
    return _encode_at(_EXACT if exact else _NORMAL, value)


def encode_without_defaults(value: object) -> bytes:
    """The canonical bytes of `value`, objects without the fields that equal their default. Raises `CannotEncode`."""
    return _encode_at(_WITHOUT_DEFAULTS, value)


def _encode_at(level: Level, value: object) -> bytes:
    try:
        return _encode(value, level)
    except CannotEncode:
        raise
    except Exception as problem:
        raise _not_readable(problem) from problem


class Members:
    """Dictionaries that all have the same names: what `encode` gives for them, with the names worked out once."""

    __slots__ = ("_members",)

    def __init__(self, names: Iterable[str]) -> None:
        self._members = sorted((_encode(name, _NORMAL.inner), name) for name in names)

    def encode(self, values: Mapping[str, object]) -> bytes:
        """The canonical bytes of these members of `values`. Raises `CannotEncode` where one has none."""
        inner = _NORMAL.inner
        try:
            body = [encoded + _encode(values[name], inner) for encoded, name in self._members]
            return _tagged(b"M", b"".join(body))
        except CannotEncode:
            raise
        except Exception as problem:
            raise _not_readable(problem) from problem


class MembersWithoutDefaults:
    """The same, without the members that equal their default: a value that is the default itself costs nothing."""

    __slots__ = ("_members",)

    def __init__(self, names: Iterable[str], defaults: Mapping[str, object]) -> None:
        self._members = _sorted_members(ModelField(name, defaults.get(name, MISSING)) for name in names)

    def encode(self, values: Mapping[str, object]) -> bytes:
        """The canonical bytes of these members of `values`. Raises `CannotEncode` where one has none."""
        inner = _WITHOUT_DEFAULTS.inner
        try:
            body = []
            for encoded, name, default, encoded_default in self._members:
                value = values[name]
                if value is not default:
                    item = _encode(value, inner)
                    if item != encoded_default:
                        body.append(encoded + item)
            return _tagged(b"M", b"".join(body))
        except CannotEncode:
            raise
        except Exception as problem:
            raise _not_readable(problem) from problem


def _sorted_members(fields: Iterable[ModelField]) -> list[Member]:
    return sorted(map(_member, fields), key=lambda member: member[0])


def _member(field: ModelField) -> Member:
    """A field with its name and its default encoded; a default without an encoding is known by identity alone."""
    encoded_default: bytes | None = None
    if field.model is not None:
        encoded_default = _named_object(field.model, b"")  # an object all of whose fields equal their defaults
    elif field.default is not MISSING:
        try:
            encoded_default = encode_without_defaults(field.default)
        except CannotEncode:
            encoded_default = None
    return _encode(field.name, _NORMAL), field.name, field.default, encoded_default


def _not_readable(problem: Exception) -> CannotEncode:
    """A property that raised, a broken time zone, no stack left: whatever it was, nothing has run yet."""
    return CannotEncode(f"reading it failed with {type(problem).__name__}")


def _tagged(tag: bytes, body: bytes) -> bytes:
    if len(body) > MAX_BYTES:  # asked at every level, so that what repeats itself does not grow without end
        message = f"it takes more than the {MAX_BYTES} bytes allowed"
        raise CannotEncode(message)
    return b"%b%d:%b" % (tag, len(body), body)


def _encode(value: object, level: Level | None) -> bytes:
    if level is None:
        message = f"it is nested more than {MAX_DEPTH} levels deep"
        raise CannotEncode(message)
    encoder = _BY_TYPE.get(type(value))
    if encoder is not None:
        return encoder(value, level)
    return _encode_by_kind(value, level)


def _none(_value: Any, _level: Level) -> bytes:
    return b"N0:"


def _bool(value: Any, _level: Level) -> bytes:
    return b"B1:1" if value else b"B1:0"


def _text(value: Any, level: Level) -> bytes:
    return _tagged(b"S", _utf8(value if level.exact else _normalized(value)))


def _normalized(text: str) -> str:
    try:
        return normalized(text)
    except TooManyMarks as problem:
        raise CannotEncode(str(problem)) from None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        message = "its text holds a lone surrogate, which no encoding can carry"
        raise CannotEncode(message) from None


def _int(value: Any, _level: Level) -> bytes:
    if value.bit_length() > _MAX_BITS:
        raise _too_long()
    digits = b"%d" % value
    if len(digits) <= MAX_WRITTEN:
        return b"D%d:%b" % (len(digits), digits)
    text = digits.decode().removeprefix("-")
    if len(text) > MAX_DIGITS:
        raise _too_long()
    return _number(text, 0, negative=value < 0)


def _float(value: Any, level: Level) -> bytes:
    if not math.isfinite(value):
        raise _not_comparable(value)
    return _int(int(value), level) if value.is_integer() else _decimal(Decimal(value), level)


def _decimal(value: Any, _level: Level) -> bytes:
    if not value.is_finite():
        raise _not_comparable(value)
    sign, digits, exponent = value.as_tuple()
    return _number("".join(map(str, digits)), exponent, negative=bool(sign))


def _number(digits: str, exponent: int, *, negative: bool) -> bytes:
    if len(digits.strip("0")) > MAX_DIGITS:
        raise _too_long()
    return _tagged(b"D", number_text(digits, exponent, negative=negative).encode())


def number_text(digits: str, exponent: int, *, negative: bool) -> str:
    """One spelling of the number `digits` times ten to the `exponent`, the same for all spellings of it.

    A whole number of up to 40 digits is written out; every other has its digits without zeros at the ends, and an
    exponent: to write it out would take as much space as the exponent says.
    """
    text = digits.lstrip("0")
    short = text.rstrip("0")
    if not short:
        return "0"
    exponent += len(text) - len(short)
    is_plain = 0 <= exponent <= MAX_WRITTEN - len(short)
    return f"{'-' if negative else ''}{short}{'0' * exponent if is_plain else f'e{exponent}'}"


def _not_comparable(value: object) -> CannotEncode:
    return CannotEncode(f"{value} is not a number that can be compared")


def _too_long() -> CannotEncode:
    return CannotEncode(f"a number of more than {MAX_DIGITS} digits is refused")


def _bytes(value: Any, _level: Level) -> bytes:
    return _tagged(b"Y", bytes(value))


def _datetime(value: Any, _level: Level) -> bytes:
    if value.utcoffset() is None:
        message = "a naive datetime names no moment; give it a time zone"
        raise CannotEncode(message)
    return _tagged(b"T", b"%d" % ((value - _EPOCH) // _MICROSECOND))


def _date(value: Any, _level: Level) -> bytes:
    return _tagged(b"A", value.isoformat().encode())


def _time(value: Any, _level: Level) -> bytes:
    zone = ""
    if value.tzinfo is not None and value.utcoffset() is None:  # the offset depends on the day: the name has to do
        zone = getattr(value.tzinfo, "key", None) or ""
        if not zone:
            message = "a time of day in a zone without a fixed offset or a name cannot be compared"
            raise CannotEncode(message)
        zone = f"[{zone}]"
    return _tagged(b"I", f"{value.isoformat()}{zone}".encode())


def _timedelta(value: Any, _level: Level) -> bytes:
    return _tagged(b"P", b"%d" % (value // _MICROSECOND))


def _uuid(value: Any, _level: Level) -> bytes:
    return _tagged(b"U", value.bytes)


def _sequence(value: Any, level: Level) -> bytes:
    inner = level.inner
    return _tagged(b"L", b"".join([_encode(item, inner) for item in value]))


def _set(value: Any, level: Level) -> bytes:
    inner = level.inner
    return _tagged(b"C", b"".join(sorted([_encode(item, inner) for item in value])))


def _mapping(value: Any, level: Level) -> bytes:
    inner = level.inner
    # One dictionary may hold both forms of a text as two members; they would then claim to be one.
    pairs = {_encode(name, inner): _encode(item, inner) for name, item in value.items()}
    if len(pairs) != len(value):
        raise _same_name()
    return _tagged(b"M", b"".join([name + pairs[name] for name in sorted(pairs)]))


def _same_name() -> CannotEncode:
    return CannotEncode("two of its members have the same name")


def _object(value: Any, level: Level) -> bytes:
    """A dataclass, Struct or model: the members it declares, and those a model was given beyond that."""
    kind: Any = type(value)
    drops, inner = level.drops_defaults, level.inner
    members: dict[bytes, bytes] = {}
    for encoded, name, default, encoded_default in _members_of(kind):
        item = getattr(value, name)
        if drops and item is default:
            continue
        body = _encode(item, inner)
        if not drops or body != encoded_default:
            members[encoded] = body
    extra = getattr(value, "__pydantic_extra__", None)
    if extra:
        declared = {member[0] for member in _members_of(kind)}  # also of those left out
        members = _with_extra(members, extra, declared, level.inner)
    return _named_object(type(value), b"".join([name + body for name, body in members.items()]))


@lru_cache(maxsize=1024)
def _members_of(kind: type) -> list[Member]:
    return _sorted_members(fields_of(kind))


def _with_extra(
    members: dict[bytes, bytes], extra: Mapping[str, object], declared: set[bytes], inner: Level | None
) -> dict[bytes, bytes]:
    added = {_encode(name, inner): _encode(item, inner) for name, item in extra.items()}
    if len(added) != len(extra) or declared & added.keys():
        raise _same_name()
    return dict(sorted({**members, **added}.items()))


def _named_object(kind: type, members: bytes) -> bytes:
    # The class name is part of it: Refund(amount=1) is not Charge(amount=1).
    return _tagged(b"O", _tagged(b"S", kind.__name__.encode()) + _tagged(b"M", members))


def _enum(member: Any, level: Level) -> bytes:
    # A member that is also a str or an int equals its plain value in Python, so it must be equal here.
    match member:
        case str():
            return _text(str.__str__(member), level)
        case int():
            return _int(int(member), level)
        case _:
            name = type(member).__name__.encode()
            return _tagged(b"E", _tagged(b"S", name) + _encode(member.value, level.inner))


def _path(value: PurePath) -> bytes:
    return _tagged(b"W" if isinstance(value, PureWindowsPath) else b"F", _utf8(str(value)))


def _encode_by_kind(value: Any, level: Level) -> bytes:
    match value:
        case Enum():
            return _enum(value, level)
        case msgspec.Struct():
            return _object(value, level)
        case PurePath():
            return _path(value)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return _object(value, level)
        case _ if hasattr(type(value), "model_fields"):
            return _object(value, level)
        case Mapping():
            return _mapping(value, level)
    for base, encoder in _BY_TYPE.items():
        if base is not type(None) and isinstance(value, base):
            return encoder(value, level)
    message = f"a {type(value).__qualname__} has no canonical form"
    raise CannotEncode(message)


_BY_TYPE: dict[type, Callable[[Any, Level], bytes]] = {
    type(None): _none,
    bool: _bool,
    str: _text,
    int: _int,
    float: _float,
    Decimal: _decimal,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    datetime: _datetime,
    date: _date,
    time: _time,
    timedelta: _timedelta,
    UUID: _uuid,
    tuple: _sequence,
    list: _sequence,
    set: _set,
    frozenset: _set,
    dict: _mapping,
}
