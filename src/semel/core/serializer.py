"""A self-describing binary form for plain Python values.

- `loads(dumps(x))` equals `x` with the same types at every level, or `dumps` raises `NotPlain`.
- MessagePack carries what it can by itself; tuples, sets, decimals, dates and big integers are extension types.
- No class is ever looked up by a name found in data.
- `redact` copies: what a caller holds is never changed. A path that leads into something without names is refused,
  because nobody can tell what it was meant for.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec.msgpack import Ext

MAX_DEPTH = 100  # a few frames each, so that what one stack could write another can read
REDACTED = "[redacted]"
_INT64 = range(-(2**63), 2**64)
_MICROSECOND = timedelta(microseconds=1)
_encode = msgspec.msgpack.Encoder().encode

_Zone = None | str | tuple[int, str]


class NotPlain(Exception):
    """The value is not plain data; the message is a clause that says why. An internal signal: it means a tombstone."""


class Damaged(ValueError):
    """Bytes that `dumps` did not write."""


def dumps(value: object) -> bytes:
    """The bytes of a plain value. Raises `NotPlain` for anything else."""
    try:
        return _encode(_lower(value, MAX_DEPTH))
    except UnicodeEncodeError:
        message = "its text holds a lone surrogate"
        raise NotPlain(message) from None


def loads(data: bytes) -> Any:
    """The value of `dumps`. Raises `Damaged` for anything that `dumps` did not write."""
    try:
        return _read(data)
    except Damaged:
        raise
    except Exception as problem:  # it shows in many ways: no such day, no such number, no end of nesting
        message = f"the data is damaged ({type(problem).__name__})"
        raise Damaged(message) from problem


def redact(value: Any, path: str) -> Any:
    """A copy of plain data in which the members at `path` read "[redacted]"; a member that is not there needs nothing.

    Raises:
        NotPlain: the path leads into something that is neither nothing nor has members of such names.
    """
    return _redact(value, path.split("."))


def _redact(value: Any, parts: list[str]) -> Any:
    if not parts:
        return REDACTED
    name, rest = parts[0], parts[1:]
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: _redact(item, rest) if name in ("*", str(key)) else item for key, item in value.items()}
    if name == "*" and isinstance(value, (list, tuple, set, frozenset)):
        return type(value)(_redact(item, rest) for item in value)
    message = f"a {type(value).__qualname__} has no member {name!r} that could be redacted"
    raise NotPlain(message)


def _lower(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _NATIVE:
        return value
    if depth == 0:
        message = f"it is nested more than {MAX_DEPTH} levels deep"
        raise NotPlain(message)
    if kind is dict:
        return _lower_dict(value, depth - 1)
    if kind is list:
        return [_lower(item, depth - 1) for item in value]
    if kind is int:
        return value if value in _INT64 else Ext(_BIG, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    extend = _EXTEND.get(kind)
    if extend is None:
        message = f"a {kind.__qualname__} is not plain data"
        raise NotPlain(message)
    code, body = extend
    return Ext(code, body(value, depth - 1))


def _lower_dict(value: dict[Any, Any], depth: int) -> Any:
    if all(type(name) is str for name in value):
        return {name: item if type(item) in _NATIVE else _lower(item, depth) for name, item in value.items()}
    pairs = [(_lower(name, depth), _lower(item, depth)) for name, item in value.items()]
    if any(type(name) is Ext for name, _ in pairs):
        return Ext(_PAIRS, _encode(pairs))  # an extension cannot be the name of a member
    return dict(pairs)


def _items(value: Any, depth: int) -> bytes:
    return _encode([_lower(item, depth) for item in value])


def _zone(zone: tzinfo | None) -> _Zone:
    """A time zone as data: none, the name of a region, or a fixed offset in microseconds with its name."""
    if zone is None:
        return None
    if type(zone) is ZoneInfo and zone.key:
        return zone.key
    if type(zone) is timezone:
        return zone.utcoffset(None) // _MICROSECOND, zone.tzname(None)
    message = f"a time zone that is a {type(zone).__qualname__} is not plain data"
    raise NotPlain(message)


def _load_zone(zone: _Zone) -> tzinfo | None:
    if zone is None:
        return None
    if isinstance(zone, tuple):
        offset, name = timedelta(microseconds=zone[0]), zone[1]
        unnamed = timezone(offset)
        return unnamed if unnamed.tzname(None) == name else timezone(offset, name)
    try:
        return ZoneInfo(zone)
    except ZoneInfoNotFoundError as problem:
        message = f"the time zone {zone!r:.100} is not known on this machine"
        raise Damaged(message) from problem


def _clock(value: datetime | time, _depth: int) -> bytes:
    """What the clock shows as ISO text, which of two equal hours it is, and the zone."""
    return _encode([value.replace(tzinfo=None).isoformat(), value.fold, _zone(value.tzinfo)])


def _load_datetime(body: bytes) -> datetime:
    text, fold, zone = msgspec.msgpack.decode(body, type=tuple[str, int, _Zone])
    return datetime.fromisoformat(text).replace(fold=fold, tzinfo=_load_zone(zone))


def _load_time(body: bytes) -> time:
    text, fold, zone = msgspec.msgpack.decode(body, type=tuple[str, int, _Zone])
    return time.fromisoformat(text).replace(fold=fold, tzinfo=_load_zone(zone))


_BIG = 1
_PAIRS = 13
_NATIVE = frozenset({type(None), bool, float, str, bytes})
_EXTEND: dict[type, tuple[int, Callable[[Any, int], bytes]]] = {
    tuple: (2, _items),
    set: (3, _items),
    frozenset: (4, _items),
    Decimal: (5, lambda value, _depth: str(value).encode()),
    datetime: (6, _clock),
    date: (7, lambda value, _depth: value.isoformat().encode()),
    time: (8, _clock),
    timedelta: (9, lambda value, _depth: _encode([value.days, value.seconds, value.microseconds])),
    UUID: (10, lambda value, _depth: value.bytes),
    complex: (11, lambda value, _depth: _encode([value.real, value.imag])),
    bytearray: (12, lambda value, _depth: bytes(value)),
}
_LOAD: dict[int, Callable[[bytes], Any]] = {
    _BIG: lambda body: int.from_bytes(body, "big", signed=True),
    2: lambda body: tuple(_read(body)),
    3: lambda body: set(_read(body)),
    4: lambda body: frozenset(_read(body)),
    5: lambda body: Decimal(body.decode()),
    6: _load_datetime,
    7: lambda body: date.fromisoformat(body.decode()),
    8: _load_time,
    9: lambda body: timedelta(*_read(body)),
    10: lambda body: UUID(bytes=body),
    11: lambda body: complex(*_read(body)),
    12: bytearray,
    _PAIRS: lambda body: dict(_read(body)),
}


def _extension(code: int, body: memoryview) -> Any:
    load = _LOAD.get(code)
    if load is None:
        message = f"extension type {code} is unknown to this release"
        raise Damaged(message)
    return load(bytes(body))


_read: Callable[[bytes], Any] = msgspec.msgpack.Decoder(ext_hook=_extension).decode
