"""One byte string per value, and one value per byte string: the encoding under keys and fingerprints.

What always holds: two values have equal encodings only if they are equal. Every element carries a type tag and its
length, so that no joining of neighbours can look like another value. Numbers enter by exact decimal value (`1500`,
`1500.0` and `Decimal("1500.00")` are one), booleans are not numbers, aware datetimes enter as UTC and naive ones are
refused. Text enters in Unicode form NFC, so that one word typed on two systems is one word.
"""

from __future__ import annotations

import dataclasses
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec

MAX_DEPTH = 64
MAX_DIGITS = 1000
MAX_BYTES = 16 * 1024 * 1024


class CannotEncode(Exception):  # noqa: N818 - internal signal; callers turn it into their own typed error
    """The value has no canonical encoding; the message is a clause that says why."""


def encode(value: object) -> bytes:
    """The canonical bytes of `value`. Raises `CannotEncode` for what has none."""
    return _bounded(_encode(value, MAX_DEPTH))


class Members:
    """Dictionaries that all have the same names: what `encode` gives for them, with the names worked out once."""

    __slots__ = ("_members",)

    def __init__(self, names: Iterable[str]) -> None:
        self._members = sorted((_encode(name, MAX_DEPTH - 1), name) for name in names)

    def encode(self, values: Mapping[str, object]) -> bytes:
        """The canonical bytes of these members of `values`. Raises `CannotEncode` where one has none."""
        body = [encoded + _encode(values[name], MAX_DEPTH - 1) for encoded, name in self._members]
        return _bounded(_tagged(b"M", b"".join(body)))


def _bounded(encoded: bytes) -> bytes:
    if len(encoded) > MAX_BYTES:
        message = f"it takes {len(encoded)} bytes, more than the {MAX_BYTES} allowed"
        raise CannotEncode(message)
    return encoded


def _tagged(tag: bytes, body: bytes) -> bytes:
    return b"%b%d:%b" % (tag, len(body), body)


def _encode(value: object, depth: int) -> bytes:
    if depth == 0:
        message = f"it is nested more than {MAX_DEPTH} levels deep"
        raise CannotEncode(message)
    encoder = _EXACT.get(type(value))
    if encoder is not None:
        return encoder(value, depth)
    return _encode_by_kind(value, depth)


def _none(_value: Any, _depth: int) -> bytes:
    return b"N0:"


def _bool(value: Any, _depth: int) -> bytes:
    return b"B1:1" if value else b"B1:0"


def _text(value: Any, _depth: int) -> bytes:
    text = value if value.isascii() else unicodedata.normalize("NFC", value)
    try:
        return _tagged(b"S", text.encode())
    except UnicodeEncodeError:
        message = "its text holds a lone surrogate, which no encoding can carry"
        raise CannotEncode(message) from None


def _int(value: Any, _depth: int) -> bytes:
    if value.bit_length() > MAX_DIGITS * 3:  # cheaper than asking for the digits, which Python caps itself
        message = f"a number of more than about {MAX_DIGITS} digits is refused"
        raise CannotEncode(message)
    return _tagged(b"D", b"%d" % value)


def _float(value: Any, _depth: int) -> bytes:
    if not math.isfinite(value):
        message = f"{value} is not a number that can be compared"
        raise CannotEncode(message)
    return _decimal(Decimal(repr(value)), 0)


def _decimal(value: Any, _depth: int) -> bytes:
    if not value.is_finite():
        message = f"{value} is not a number that can be compared"
        raise CannotEncode(message)
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    exponent += len(text) - len(stripped)
    if not stripped:
        return _tagged(b"D", b"0")
    if len(stripped) + abs(exponent) > MAX_DIGITS:
        message = f"a number of more than {MAX_DIGITS} digits is refused"
        raise CannotEncode(message)
    minus = "-" if sign else ""
    if exponent >= 0:
        return _tagged(b"D", f"{minus}{stripped}{'0' * exponent}".encode())
    padded = stripped.rjust(-exponent + 1, "0")
    return _tagged(b"D", f"{minus}{padded[:exponent]}.{padded[exponent:]}".encode())


def _bytes(value: Any, _depth: int) -> bytes:
    return _tagged(b"Y", bytes(value))


def _datetime(value: Any, _depth: int) -> bytes:
    if value.utcoffset() is None:
        message = "a naive datetime names no moment; give it a time zone"
        raise CannotEncode(message)
    return _tagged(b"T", value.astimezone(UTC).isoformat().encode())


def _date(value: Any, _depth: int) -> bytes:
    return _tagged(b"A", value.isoformat().encode())


def _time(value: Any, _depth: int) -> bytes:
    return _tagged(b"I", value.isoformat().encode())


def _timedelta(value: Any, _depth: int) -> bytes:
    return _tagged(b"P", b"%d" % (value // timedelta(microseconds=1)))


def _uuid(value: Any, _depth: int) -> bytes:
    return _tagged(b"U", value.bytes)


def _sequence(value: Any, depth: int) -> bytes:
    return _tagged(b"L", b"".join([_encode(item, depth - 1) for item in value]))


def _set(value: Any, depth: int) -> bytes:
    return _tagged(b"C", b"".join(sorted(_encode(item, depth - 1) for item in value)))


def _mapping(value: Any, depth: int) -> bytes:
    # One dictionary may hold both forms of a text as two members; they would then claim to be one.
    pairs = {_encode(name, depth - 1): _encode(item, depth - 1) for name, item in value.items()}
    if len(pairs) != len(value):
        message = "two of its members have the same name"
        raise CannotEncode(message)
    return _tagged(b"M", b"".join(name + pairs[name] for name in sorted(pairs)))


def _object(kind: type, fields: Mapping[str, object], depth: int) -> bytes:
    # The class name is part of it: Refund(amount=1) is not Charge(amount=1).
    return _tagged(b"O", _tagged(b"S", kind.__name__.encode()) + _mapping(fields, depth))


def _encode_by_kind(value: Any, depth: int) -> bytes:
    match value:
        case Enum():
            # A member that is also a str or an int equals its plain value in Python, so it must be equal here.
            plain = isinstance(value, (str, int))
            return _encode(value.value, depth) if plain else _tagged(b"E", _encode(value.value, depth - 1))
        case msgspec.Struct():
            return _object(type(value), msgspec.structs.asdict(value), depth)
        case PurePath():
            return _tagged(b"F", str(value).encode())
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return _object(type(value), fields, depth)
        case _ if hasattr(type(value), "model_fields"):
            return _object(type(value), {name: getattr(value, name) for name in type(value).model_fields}, depth)
        case Mapping():
            return _mapping(value, depth)
    for base, encoder in _EXACT.items():
        if base is not type(None) and isinstance(value, base):
            return encoder(value, depth)
    message = f"a {type(value).__qualname__} has no canonical form"
    raise CannotEncode(message)


_EXACT: dict[type, Callable[[Any, int], bytes]] = {
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
